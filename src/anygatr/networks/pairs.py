"""Pairs at the border of a network: dense grids or lists of edges, checked, as one list with its place in the batch."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anygatr.nn.width import Width
from anygatr.ops.pairs import TokenPairs, buckets
from anygatr.ops.ragged import Packed
from anygatr.spaces.coordinates import require
from anygatr.spaces.geometry import Geometry


def grid(tokens: torch.Size, device: torch.device) -> Int[Tensor, "2 e"]:
    """The edges (sender, receiver) of all pairs (..., receiver, sender) of each sample, in the order of a dense grid."""
    count = tokens[-1]
    receiver = torch.arange(tokens.numel(), device=device)
    sender = (receiver // count * count)[:, None] + torch.arange(count, device=device)
    return torch.stack([sender.flatten(), receiver[:, None].expand(-1, count).flatten()])


def real_cells(mask: Bool[Tensor, "*tokens"]) -> Bool[Tensor, "*tokens n"]:
    """The pairs of a dense grid whose ends are both real."""
    return mask.unsqueeze(-1) & mask.unsqueeze(-2)


def check_edges(
    edges: Tensor, tokens: torch.Size, mask: Bool[Tensor, "*tokens"] | None, sample: Int[Tensor, " n"] | None
) -> Int[Tensor, "2 e"]:
    """The edges themselves, once their ends are known to be real tokens of one sample."""
    if (
        not isinstance(edges, Tensor)
        or edges.dim() != 2
        or edges.shape[0] != 2
        or edges.dtype not in (torch.int64, torch.int32)
    ):
        found = f"{tuple(edges.shape)} {edges.dtype}" if isinstance(edges, Tensor) else type(edges).__name__
        raise ValueError(f"edges is {found}; pass integers (2, E): the tokens that send above those that receive")
    edges, most = edges.long(), tokens.numel()
    inside = edges.clamp(0, max(most - 1, 0))
    of = inside // tokens[-1] if sample is None else sample[inside]

    def outside() -> ValueError:
        return ValueError(
            f"edges names token {int(edges[(edges < 0) | (edges >= most)][0])}; the batch has tokens 0 to {most - 1}, "
            "numbered through all its samples"
        )

    def between() -> ValueError:
        at = int((of[0] != of[1]).nonzero()[0])
        return ValueError(
            f"edges[:, {at}] = {edges[:, at].tolist()} joins samples {int(of[0, at])} and {int(of[1, at])}; tokens are "
            "numbered through all samples of the batch: add to each edge the first token of its sample"
        )

    def padded() -> ValueError:
        assert mask is not None
        at = int((~mask.flatten()[inside].all(0)).nonzero()[0])
        return ValueError(f"edges[:, {at}] = {edges[:, at].tolist()} has padding at an end; leave such edges out")

    require(lambda: (edges == inside).all(), outside)
    require(lambda: (of[0] == of[1]).all(), between)
    if mask is not None:
        require(lambda: mask.flatten()[inside].all(), padded)
    return edges


def enter_pairs(
    x: Float[Tensor, "*pairs c k"],
    s: Float[Tensor, "*pairs c_s"] | None,
    edges: Tensor | None,
    geometry: Geometry,
    width: Width,
    mask: Bool[Tensor, "*tokens"] | None,
    packed: Packed | None,
    tokens: torch.Size,
) -> TokenPairs:
    """Pairs as one list, blade-major; padding of a dense grid brings nothing."""
    if edges is None and packed is not None:
        raise ValueError("edges=None, but packed samples have no grid of pairs; pass edges (2, E)")
    cells = torch.Size((*tokens, tokens[-1])) if edges is None else edges.shape[1:]
    s = x.new_zeros(*x.shape[:-2], width.s) if s is None else s
    if x.shape != (*cells, width.mv, geometry.algebra.dim) or s.shape != (*cells, width.s):
        wanted = (*cells, width.mv, geometry.algebra.dim), (*cells, width.s)
        raise ValueError(f"px has shape {tuple(x.shape)}, ps {tuple(s.shape)}; pass {wanted[0]} and {wanted[1]}")
    if edges is None:
        edges = grid(tokens, x.device)
        if mask is not None:
            real = real_cells(mask)
            x, s = torch.where(real[..., None, None], x, 0), torch.where(real[..., None], s, 0)
    else:
        edges = check_edges(edges, tokens, mask, None if packed is None else packed.sample)
    x, s = x.reshape(-1, *x.shape[-2:]), s.reshape(-1, s.shape[-1])
    return TokenPairs(edges[1], buckets(edges, tokens, mask, packed), x.movedim(-1, 0).contiguous(), s)
