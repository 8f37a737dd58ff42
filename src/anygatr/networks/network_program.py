"""The program of a whole network, for analyses: cost, reachable grades."""

from typing import get_args

import torch
from torch import Tensor, nn

from anygatr.networks.axial import AxialGATr
from anygatr.networks.conditional import ConditionalGATr
from anygatr.networks.gatr import GATr
from anygatr.networks.pooled import PooledGATr
from anygatr.nn.width import Width
from anygatr.ops.batch import Batch
from anygatr.program.cost import flops
from anygatr.program.program import Program
from anygatr.program.trace import trace

Network = GATr | AxialGATr | ConditionalGATr | PooledGATr
NAMES = ", ".join(kind.__name__ for kind in get_args(Network))
POOLED = "px", "ps"
"""The inputs of a program that only the pooled tokens have."""


def network_program(net: Network) -> Program:
    """All layers of a network in one program; parameters are named as in its state dict."""
    x, s = _empty(net, net.inputs)
    again = Width(len(getattr(net, "reinsert", ())), len(getattr(net, "reinsert_s", ())))
    inputs, scalars = _empty(net, again)
    batch = Batch(s.new_empty(1, 1), inputs, scalars=scalars)
    others = isinstance(net, ConditionalGATr | PooledGATr)
    streams = (x, s, *_empty(net, net.condition if isinstance(net, ConditionalGATr) else net.inputs)) if others else (x, s)
    batches = (batch, batch) if isinstance(net, PooledGATr) else (batch,)

    def stages(*arguments: object) -> object:
        return net.stages(*arguments, _call)  # type: ignore[call-arg, arg-type]

    names = ("x", "s", *(POOLED if isinstance(net, PooledGATr) else ("cx", "cs")))[: len(streams)]
    return trace(net, (*streams, *batches), stages, names=(*names, *("batch" for _ in batches)))


def step_tokens(net: Network, program: Program, tokens: int) -> list[tuple[int, int]]:
    """For each step of a network's program over a sample of so many tokens: how many it is for, and the keys they have."""
    few = net.count(tokens) if isinstance(net, PooledGATr) else tokens
    known = [few if name in POOLED else tokens for name in program.inputs]
    known += [tokens] * (len(program.widths) - len(known))
    found = []
    for step in program.steps:
        found.append((known[step.inputs[0]], known[step.inputs[-1]]))
        for value in step.outputs:
            known[value] = known[step.inputs[0]]
    return found


def network_flops(net: Network, program: Program, tokens: int) -> list[int]:
    """FLOPs of each step of a network's program, in a forward pass over one sample of so many tokens."""
    counts = step_tokens(net, program, tokens)
    return [n * flops(program, step, keys) for step, (n, keys) in zip(program.steps, counts, strict=True)]


def _call(layer: nn.Module, *arguments: object) -> object:
    return layer.forward(*arguments)


def _empty(net: Network, width: Width) -> tuple[Tensor, Tensor]:
    """Tensors of one token that have channels but no numbers."""
    blades = net.geometry.algebra.dim
    return torch.empty(blades, 1, width.mv, device="meta"), torch.empty(1, width.s, device="meta")
