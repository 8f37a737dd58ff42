"""Divide the samples of a step between processes by what they cost: attention grows with the square of their tokens."""

import heapq

import torch
from torch import Tensor, nn

from anygatr.networks.network_program import Network, network_flops, network_program


def shares(costs: Tensor, parts: int) -> list[Tensor]:
    """The places 0..n-1 in so many parts of nearly equal cost, each part in ascending order; every place is in one part.

    The most expensive that is left goes to the part that has least, so no part costs more than 4/3 of the best division.
    Parts are empty where there are fewer places.
    """
    found: list[list[int]] = [[] for _ in range(parts)]
    heap = [(0.0, part) for part in range(parts)]
    for place in costs.argsort(descending=True, stable=True).tolist():
        load, part = heapq.heappop(heap)
        found[part].append(place)
        heapq.heappush(heap, (load + float(costs[place]), part))
    return [torch.tensor(sorted(part), dtype=torch.int64) for part in found]


def rank_shares(costs: Tensor, ranks: int, rank: int, pieces: int) -> list[Tensor]:
    """What one rank does of a step, piece by piece: its share of all, divided again. Pieces without samples are left out."""
    own = shares(costs, ranks)[rank]
    return [own[piece] for piece in shares(costs[own], pieces) if len(piece)]


def sample_costs(module: nn.Module, counts: Tensor) -> Tensor:
    """What samples of so many tokens cost, in float64: the FLOPs of a GATr; of other networks, their tokens."""
    net = next((m for m in module.modules() if isinstance(m, Network)), None)
    if net is None:
        return counts.double()
    program, (lengths, which) = network_program(net), counts.unique(return_inverse=True)
    costs = [float(sum(network_flops(net, program, n))) for n in lengths.tolist()]
    return torch.tensor(costs, dtype=torch.float64)[which]
