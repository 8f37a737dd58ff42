"""Ragged batches: packed tokens, the buckets of samples of similar length, and attention within each sample."""

import warnings
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from anygatr.ops import sdpa

PADDING = 0.125  # samples share a bucket while the shortest wastes at most this part of its row


class Packed(NamedTuple):
    """The bucket plan of n packed tokens: rows of samples of similar length, padded to the longest of their bucket.

    `slots` holds the token at each place of each row, bucket after bucket, padding repeating the sample's first token;
    `places` the same with n for padding; `buckets`, on the CPU, the (rows, length, padded?) of each bucket.
    """

    slots: Int[Tensor, " places"]
    places: Int[Tensor, " places"]
    buckets: Int[Tensor, "buckets 3"]
    sample: Int[Tensor, " n"]
    position: Int[Tensor, " n"]
    lengths: Int[Tensor, " samples"]
    offsets: Int[Tensor, " samples+1"]


def pack(offsets: Int[Tensor, " samples+1"], device: torch.device | None = None) -> Packed:
    """The plan for samples that start at offsets[:-1] and end at offsets[1:], for tokens on a device."""
    device, offsets = device or offsets.device, offsets.detach().to("cpu", torch.int64)  # sizes of buckets are Python's
    starts, lengths, count = offsets[:-1], offsets.diff(), int(offsets[-1])
    order = lengths.argsort(descending=True, stable=True)
    sizes = lengths[order].tolist()
    slots, places, buckets, first = [], [], [], 0
    while first < len(sizes):
        longest, last = sizes[first], first
        while last < len(sizes) and sizes[last] >= (1 - PADDING) * longest:
            last += 1
        rows = order[first:last]
        column = torch.arange(longest)
        inside = column < lengths[rows, None]
        slot = starts[rows, None] + column * inside
        slots.append(slot.flatten())
        places.append(torch.where(inside, slot, count).flatten())
        buckets.append([last - first, longest, int(not bool(inside.all()))])
        first = last
    sample = torch.arange(len(lengths)).repeat_interleave(lengths)
    position = torch.arange(count) - starts[sample]
    parts = [torch.cat(slots), torch.cat(places), sample, position, lengths, offsets]
    slot, place, sample, position, lengths, offsets = torch.cat(parts).to(device).split([len(t) for t in parts])  # one copy
    return Packed(slot, place, torch.tensor(buckets), sample, position, lengths, offsets)


def packed_attention(
    q: Float[Tensor, "n h f"], k: Float[Tensor, "n g f"], v: Float[Tensor, "n g w"], plan: Packed, scale: float
) -> Float[Tensor, "n h w"]:
    """Each token attends to the tokens of its own sample."""
    if torch.compiler.is_compiling():  # the number of buckets depends on the data
        return _packed(q, k, v, plan.slots, plan.places, plan.buckets, scale)
    buckets = plan.slots, plan.places, plan.buckets, scale
    if takes_jagged(q):
        fast = lambda q, k, v: jagged_attention(q, k, v, plan, scale)  # noqa: E731
        return sdpa.twice_differentiable(fast, lambda q, k, v: _bucket_by_bucket(q, k, v, *buckets), q, k, v)
    return _bucket_by_bucket(q, k, v, *buckets)


def takes_jagged(q: Tensor) -> bool:
    """Whether torch has fast kernels for sequences of different lengths there, and they work."""
    return q.device.type == "cuda" and _jagged_works(q.device, q.dtype)


def jagged_attention(
    q: Float[Tensor, "n h f"], k: Float[Tensor, "n g f"], v: Float[Tensor, "n g w"], plan: Packed, scale: float
) -> Float[Tensor, "n h w"]:
    """The same for all samples at once, by torch's kernels for sequences of different lengths: nothing is padded."""
    longest, width, heads = int(plan.buckets[0, 1]), v.shape[-1], q.shape[1] // k.shape[1]
    q, k, v = sdpa.equal_widths(q, k, v)
    offsets = plan.offsets.clone()  # torch takes sequences with the same tensor of offsets for the same lengths
    # heads that share keys become more queries of the same sample
    many = q.unflatten(1, (-1, heads)).transpose(1, 2).flatten(0, 1)
    rows = functional.scaled_dot_product_attention(
        _jagged(many, offsets * heads, longest * heads),
        _jagged(k, offsets, longest),
        _jagged(v, offsets, longest),
        scale=scale,
    )
    out = rows.transpose(1, 2).values().unflatten(0, (-1, heads)).transpose(1, 2).flatten(1, 2)
    return out[..., :width]


def _jagged(rows: Float[Tensor, "n h f"], offsets: Tensor, longest: int) -> Tensor:
    """(samples, heads, tokens, numbers), with as many tokens as each sample has."""
    nested = torch.nested.nested_tensor_from_jagged(rows, offsets, min_seqlen=1, max_seqlen=longest)
    return nested.transpose(1, 2)


@lru_cache(maxsize=16)
def _jagged_works(device: torch.device, dtype: torch.dtype) -> bool:
    """Tried once on small numbers, gradients included: the API is young, and buckets do as well."""
    generator = torch.Generator().manual_seed(0)
    plan = pack(torch.tensor([0, 3, 8, 9]), device)
    q, k, v = (torch.randn(9, n, 8, generator=generator).to(device, dtype).requires_grad_() for n in (2, 1, 1))
    buckets = plan.slots, plan.places, plan.buckets, 0.5
    try:
        with torch.enable_grad():
            made = [jagged_attention(q, k, v, plan, 0.5), _bucket_by_bucket(q, k, v, *buckets)]
            a, b = ([y.detach(), *torch.autograd.grad(y.sum(), (q, k, v))] for y in made)
    except Exception as error:  # whatever a version of torch raises
        warnings.warn(
            f"attention over jagged tensors failed: {error}; samples are padded instead", RuntimeWarning, stacklevel=4
        )
        return False
    bound = {torch.float32: 1e-3, torch.float64: 1e-6}.get(dtype, 5e-2)
    if all(float((x - y).abs().max()) <= bound for x, y in zip(a, b, strict=True)):
        return True
    warnings.warn("attention over jagged tensors is inexact here; samples are padded instead", RuntimeWarning, stacklevel=4)
    return False


def _bucket_by_bucket(
    q: Tensor, k: Tensor, v: Tensor, slots: Tensor, places: Tensor, buckets: Tensor, scale: float
) -> Float[Tensor, "n h w"]:
    """Each bucket as one dense batch; the rows of padding are written behind the last token and cut off."""
    out = q.new_zeros(len(q) + 1, q.shape[1], v.shape[-1])
    for bucket in _buckets(slots, places, buckets, q):
        rows = sdpa.folded_attention(*sdpa.fold(q[bucket.slots], k[bucket.slots], v[bucket.slots]), scale, bucket.mask)
        out = out.index_copy(0, bucket.places, sdpa.unfold(rows, q.shape[1]).flatten(0, 1).to(out.dtype))
    return out[:-1]


class _Bucket(NamedTuple):
    slots: Int[Tensor, "b m"]
    places: Int[Tensor, " b*m"]
    mask: Float[Tensor, "b 1 1 m"] | None


def _buckets(slots: Tensor, places: Tensor, buckets: Tensor, like: Tensor) -> Iterator[_Bucket]:
    start = 0
    for rows, length, padded in buckets.tolist():
        part = slice(start, start + rows * length)
        start += rows * length
        mask = None
        if padded:
            outside = (places[part] == len(like)).view(rows, 1, 1, length)
            mask = like.new_zeros(outside.shape).masked_fill(outside, -torch.inf)
        yield _Bucket(slots[part].view(rows, length), places[part], mask)


@torch.library.custom_op("anygatr::packed_attention", mutates_args=())
def _packed(q: Tensor, k: Tensor, v: Tensor, slots: Tensor, places: Tensor, buckets: Tensor, scale: float) -> Tensor:
    return _bucket_by_bucket(q, k, v, slots, places, buckets, scale).contiguous()


@_packed.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *others: Any) -> Tensor:
    return q.new_empty(*q.shape[:2], v.shape[-1])


@torch.library.custom_op("anygatr::packed_attention_backward", mutates_args=())
def _packed_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, slots: Tensor, places: Tensor, buckets: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    found = [t.new_zeros(len(t) + 1, *t.shape[1:]) for t in (q, k, v)]
    padded = torch.cat([grad, torch.zeros_like(grad[:1])])  # padding has no gradient
    for bucket in _buckets(slots, places, buckets, q):
        folded = sdpa.fold(q[bucket.slots], k[bucket.slots], v[bucket.slots])
        rows = sdpa.fold(padded[bucket.places.view_as(bucket.slots)], *(k[:1, None],) * 2)[0]
        made = sdpa.gradients(rows, *folded, scale, bucket.mask)
        for target, part, like in zip(found, made, (q, k, v), strict=True):
            target.index_copy_(0, bucket.places, sdpa.unfold(part, like.shape[1]).flatten(0, 1))
    gq, gk, gv = (t[:-1].clone() for t in found)
    return gq, gk, gv


@_packed_backward.register_fake
def _(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.scale = inputs
    ctx.save_for_backward(*tensors)


def _differentiate(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return *_packed_backward(grad, *ctx.saved_tensors, ctx.scale), None, None, None, None


_packed.register_autograd(_differentiate, setup_context=_save)
