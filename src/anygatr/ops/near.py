"""Sparse attention: every token attends to itself, its nearest neighbours and the anchors of its sample, in one softmax."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anygatr.ops.torch_state import transformed

# axes: n tokens, t tokens of a tile, j neighbours, a anchors, g key heads, r query heads of each, f and w numbers of a row
TILE = 2**20  # numbers that a tile of queries gathers


class Near(NamedTuple):
    """Which keys each of n tokens, sample after sample, attends to.

    `neighbours` begins with the token itself. `counted` is False for neighbours that are anchors, to which everybody attends
    already, and where a sample has too few. The anchors of sample b are `anchors[anchor_bounds[b]:anchor_bounds[b + 1]]`.
    """

    neighbours: Int[Tensor, "n j"]
    counted: Bool[Tensor, "n j"]
    anchors: Int[Tensor, " a"]
    bounds: tuple[int, ...]
    anchor_bounds: tuple[int, ...]


def near_attention(
    q: Float[Tensor, "n h f"], k: Float[Tensor, "n g f"], v: Float[Tensor, "n g w"], near: Near, scale: float
) -> Float[Tensor, "n h w"]:
    """softmax over a token's keys of (scale q.k) applied to v; time and memory linear in tokens."""
    if torch.compiler.is_compiling() or transformed([q, k, v]):
        return _explicit(q, k, v, near, scale)
    return _NearAttention.apply(q, k, v, near, scale)


def _explicit(q: Tensor, k: Tensor, v: Tensor, near: Near, scale: float) -> Tensor:
    """Tile by tile in torch operations; differentiable any number of times."""
    parts = []
    for tile, anchors in _tiles(q, k, v, near):
        around = near.neighbours[tile]
        parts.append(_mixed(q[tile], k[around], v[around], k[anchors], v[anchors], near.counted[tile], scale))
    return torch.cat(parts)


def _tiles(q: Tensor, k: Tensor, v: Tensor, near: Near) -> list[tuple[slice, Tensor]]:
    """Runs of queries of one sample, with its anchors."""
    out, around = [], near.neighbours.shape[1]
    for b in range(len(near.bounds) - 1):
        anchors = near.anchors[near.anchor_bounds[b] : near.anchor_bounds[b + 1]]
        numbers = around * k.shape[1] * (k.shape[-1] + v.shape[-1]) + q.shape[1] * (len(anchors) + around)
        size = max(1, TILE // max(numbers, 1))
        starts = range(near.bounds[b], near.bounds[b + 1], size)
        out += [(slice(start, min(start + size, near.bounds[b + 1])), anchors) for start in starts]
    return out


def _mixed(
    q: Float[Tensor, "t h f"],
    k_near: Float[Tensor, "t j g f"],
    v_near: Float[Tensor, "t j g w"],
    k_far: Float[Tensor, "a g f"],
    v_far: Float[Tensor, "a g w"],
    counted: Bool[Tensor, "t j"],
    scale: float,
) -> Float[Tensor, "t h w"]:
    q = q.unflatten(1, (k_far.shape[1], -1)) * scale
    near = torch.einsum("tgrf,tjgf->tgrj", q, k_near).masked_fill(~counted[:, None, None], -torch.inf)
    far = torch.einsum("tgrf,agf->tgra", q, k_far)
    weights = torch.cat([near, far], -1).softmax(-1)
    near, far = weights.split([near.shape[-1], far.shape[-1]], -1)
    out = torch.einsum("tgrj,tjgw->tgrw", near, v_near) + torch.einsum("tgra,agw->tgrw", far, v_far)
    return out.flatten(1, 2)


class _NearAttention(torch.autograd.Function):
    """Keeps nothing but its inputs: tiles are computed again in the backward pass."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, near: Near, scale: float) -> Tensor:
        ctx.near, ctx.scale = near, scale
        ctx.save_for_backward(q, k, v)
        return _explicit(q, k, v, near, scale)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v = ctx.saved_tensors
        if torch.is_grad_enabled():
            q, k, v = (t.view_as(t) for t in (q, k, v))
            again = _explicit(q, k, v, ctx.near, ctx.scale)
            return *torch.autograd.grad(again, (q, k, v), grad, create_graph=True, materialize_grads=True), None, None
        found = tuple(torch.zeros_like(t) for t in (q, k, v))
        for tile, anchors in _tiles(q, k, v, ctx.near):
            around = ctx.near.neighbours[tile]
            with torch.enable_grad():
                given = [t.detach().requires_grad_() for t in (q[tile], k[around], v[around], k[anchors], v[anchors])]
                out = _mixed(given[0], given[1], given[2], given[3], given[4], ctx.near.counted[tile], ctx.scale)
            of_q, k_near, v_near, k_far, v_far = torch.autograd.grad(out, given, grad[tile])
            found[0][tile] = of_q
            for total, near, far in ((found[1], k_near, k_far), (found[2], v_near, v_far)):
                total.index_add_(0, around.flatten(), near.flatten(0, 1))
                total.index_add_(0, anchors, far)
        return *found, None, None
