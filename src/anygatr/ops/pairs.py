"""Attention with pairs: what belongs to a pair of tokens adds to its logit and to the value that its receiver takes."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anygatr.ops import sdpa
from anygatr.ops.ragged import Packed
from anygatr.ops.torch_state import transformed

# axes: n tokens, e pairs, b rows of a bucket, i queries, j keys, h heads, g key heads, r heads of each, f and w numbers
TILE = 2**22  # logits in memory at once


class Bucket(NamedTuple):
    """Samples as rows of one length: the token at each place, which are real, and its pairs with their cells (b, i, j)."""

    slots: Int[Tensor, "b m"]
    real: Bool[Tensor, "b m"] | None
    pairs: Int[Tensor, " e"]
    cells: Int[Tensor, " e"]


class TokenPairs(NamedTuple):
    """Pairs of tokens: the one that receives, what the pair brings, and where its logit lies.

    At a network's border x and s are the pairs' own channels; a block is given those of keys and values, and a bias of each
    head. Pairs with the same ends add up.
    """

    receiver: Int[Tensor, " e"]
    buckets: tuple[Bucket, ...]
    x: Float[Tensor, "k e c"]
    s: Float[Tensor, "e c_s"]
    bias: Float[Tensor, "e h"] | None = None


def buckets(
    edges: Int[Tensor, "2 e"], tokens: torch.Size, mask: Bool[Tensor, "*tokens"] | None, packed: Packed | None
) -> tuple[Bucket, ...]:
    """Where the pairs (sender, receiver) of a batch lie among its logits."""
    sender, receiver = edges
    every = torch.arange(edges.shape[1], device=edges.device)
    if packed is None:
        count = tokens[-1]
        slots = torch.arange(tokens.numel(), device=edges.device).view(-1, count)
        real = None if mask is None else sdpa.attended(mask).reshape(-1, count)
        return (Bucket(slots, real, every, receiver * count + sender % count),)
    out, start = [], 0
    place = torch.empty(tokens[0] + 1, dtype=torch.int64, device=edges.device)
    for rows, length, padded in packed.buckets.tolist():
        part = slice(start, start + rows * length)
        start += rows * length
        place.fill_(-1)
        place[packed.places[part]] = torch.arange(rows * length, device=edges.device)
        place[-1] = -1  # of padding
        chosen = every[place[receiver] >= 0]
        cells = place[receiver[chosen]] * length + place[sender[chosen]] % length
        real = (packed.places[part] != tokens[0]).view(rows, length) if padded else None
        out.append(Bucket(packed.slots[part].view(rows, length), real, chosen, cells))
    return tuple(out)


def pair_attention(
    q: Float[Tensor, "n h f"],
    k: Float[Tensor, "n g f"],
    v: Float[Tensor, "n g w"],
    logits: Float[Tensor, "e h"],
    values: Float[Tensor, "e g w"],
    places: tuple[Bucket, ...],
    scale: float,
) -> Float[Tensor, "n h w"]:
    """a = softmax over keys of (scale q.k + logits of pairs), then sum_j a_ij v_j + sum over pairs of a_ij values."""
    heads = q.shape[1]
    few = sum(bucket.slots.numel() * bucket.slots.shape[1] for bucket in places) * heads <= TILE
    if torch.compiler.is_compiling() or transformed([q, k, v, logits, values]) or few:
        return _explicit(q, k, v, logits, values, [_whole(bucket) for bucket in places], scale)
    tiles = [tile for bucket in places for tile in _tiles(bucket, max(1, TILE // (heads * bucket.slots.shape[1])))]
    return _Tiled.apply(q, k, v, logits, values, tiles, scale)


class _Tile(NamedTuple):
    """Queries of a bucket, whole rows or a part of one, with their keys and pairs."""

    queries: Int[Tensor, "b i"]
    keys: Int[Tensor, "b j"]
    real_queries: Bool[Tensor, "b i"] | None
    real_keys: Bool[Tensor, "b j"] | None
    pairs: Int[Tensor, " e"]
    cells: Int[Tensor, " e"]


def _whole(bucket: Bucket) -> _Tile:
    return _Tile(bucket.slots, bucket.slots, bucket.real, bucket.real, bucket.pairs, bucket.cells)


def _tiles(bucket: Bucket, most: int) -> list[_Tile]:
    """Runs of at most `most` queries, or of one."""
    rows, length = bucket.slots.shape
    cells, order = bucket.cells.sort()
    together, out = max(1, most // length), []
    for row in range(0, rows, together):
        part = slice(row, row + together)
        for start in range(0, length, length if most >= length else most):
            stop = length if most >= length else min(start + most, length)
            first = (row * length + start) * length
            last = ((min(row + together, rows) - 1) * length + stop) * length
            lower, upper = torch.searchsorted(cells, cells.new_tensor([first, last])).tolist()
            real = None if bucket.real is None else bucket.real[part]
            here = order[lower:upper]
            queries, known = bucket.slots[part, start:stop], None if real is None else real[:, start:stop]
            out.append(_Tile(queries, bucket.slots[part], known, real, bucket.pairs[here], cells[lower:upper] - first))
    return out


def _explicit(
    q: Tensor, k: Tensor, v: Tensor, logits: Tensor, values: Tensor, tiles: list[_Tile], scale: float
) -> Float[Tensor, "n h w"]:
    """Tile by tile in torch operations; differentiable any number of times."""
    out = q.new_zeros(len(q) + 1, q.shape[1], v.shape[-1])
    for tile in tiles:
        found = _mixed(tile, scale, *_taken(tile, q, k, v, logits, values)).flatten(0, 1)
        if len(tiles) == 1 and tile.queries.numel() == len(q):  # a dense batch, in order
            return found
        places = tile.queries if tile.real_queries is None else torch.where(tile.real_queries, tile.queries, len(q))
        out = out.index_copy(0, places.flatten(), found)
    return out[:-1]


def _taken(tile: _Tile, q: Tensor, k: Tensor, v: Tensor, logits: Tensor, values: Tensor) -> tuple[Tensor, ...]:
    return q[tile.queries], k[tile.keys], v[tile.keys], logits[tile.pairs], values[tile.pairs]


def _mixed(
    tile: _Tile,
    scale: float,
    q: Float[Tensor, "b i h f"],
    k: Float[Tensor, "b j g f"],
    v: Float[Tensor, "b j g w"],
    logits: Float[Tensor, "e h"],
    values: Float[Tensor, "e g w"],
) -> Float[Tensor, "b i h w"]:
    (b, i, h), j, g = q.shape[:3], k.shape[1], k.shape[2]
    added = logits.new_zeros(b * i * j, h).index_add(0, tile.cells, logits).view(b, i, j, h).permute(0, 3, 1, 2)
    scores = torch.einsum("bigrf,bjgf->bgrij", q.unflatten(2, (g, -1)), k * scale).flatten(1, 2) + added
    if tile.real_keys is not None:
        scores = scores.masked_fill(~tile.real_keys[:, None, None], -torch.inf)
    weights = scores.softmax(-1)
    out = torch.einsum("bgrij,bjgw->bigrw", weights.unflatten(1, (g, -1)), v).flatten(0, 1)
    of_pairs = weights.permute(0, 2, 3, 1).reshape(b * i * j, h)[tile.cells].unflatten(1, (g, -1))
    messages = of_pairs.unsqueeze(-1) * values.unsqueeze(2)
    return out.index_add(0, tile.cells // j, messages).flatten(1, 2).unflatten(0, (b, i))


class _Tiled(torch.autograd.Function):
    """Keeps nothing but its inputs: tiles are computed again in the backward pass."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        *tensors, ctx.tiles, ctx.scale = arguments
        ctx.save_for_backward(*tensors)
        return _explicit(*arguments)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        tensors = ctx.saved_tensors
        if torch.is_grad_enabled():
            nodes = [t.view_as(t) for t in tensors]
            again = _explicit(nodes[0], nodes[1], nodes[2], nodes[3], nodes[4], ctx.tiles, ctx.scale)
            return *torch.autograd.grad(again, nodes, grad, create_graph=True, materialize_grads=True), None, None
        found = tuple(torch.zeros_like(t) for t in tensors)
        for tile in ctx.tiles:
            with torch.enable_grad():
                given = [t.detach().requires_grad_() for t in _taken(tile, *tensors)]
                out = _mixed(tile, ctx.scale, *given)
            above = grad[tile.queries]
            if tile.real_queries is not None:
                above = above * tile.real_queries[..., None, None]
            places = (tile.queries, tile.keys, tile.keys, tile.pairs, tile.pairs)
            for total, place, part in zip(found, places, torch.autograd.grad(out, given, above), strict=True):
                total.index_add_(0, place.flatten(), part.flatten(0, 1) if place.dim() == 2 else part)
        return *found, None, None
