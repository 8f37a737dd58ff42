"""Attention within each sample of a packed ragged batch, bucketed by length, as one operator the compiler does not enter."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anygatr.kernels import flash
from anygatr.kernels.second import gradients

PADDING = 0.125  # samples share a bucket while the shortest wastes at most this part of its row


class Packed(NamedTuple):
    """The bucket plan of n packed tokens: rows of samples of similar length, padded to the longest of their bucket.

    `slots` holds the token at each place of each row, bucket after bucket, padding repeating the sample's first token;
    `real` says which places are not padding; `buckets`, on the CPU, has the (rows, length, padded?) of each bucket.
    """

    slots: Int[Tensor, " places"]
    real: Bool[Tensor, " places"]
    buckets: Int[Tensor, "buckets 3"]
    sample: Int[Tensor, " n"]
    position: Int[Tensor, " n"]
    lengths: Int[Tensor, " samples"]


def pack(offsets: Int[Tensor, " samples+1"]) -> Packed:
    """The plan for samples that start at offsets[:-1] and end at offsets[1:]."""
    device, offsets = offsets.device, offsets.detach().to("cpu", torch.int64)
    starts, lengths = offsets[:-1], offsets.diff()
    order = lengths.argsort(descending=True, stable=True)
    sizes = lengths[order].tolist()
    slots, real, buckets, first = [], [], [], 0
    while first < len(sizes):
        longest, last = sizes[first], first
        while last < len(sizes) and sizes[last] >= (1 - PADDING) * longest:
            last += 1
        rows = order[first:last]
        column = torch.arange(longest)
        inside = column < lengths[rows, None]
        slots.append((starts[rows, None] + column * inside).flatten())
        real.append(inside.flatten())
        buckets.append([last - first, longest, int(not bool(inside.all()))])
        first = last
    sample = torch.arange(len(lengths)).repeat_interleave(lengths)
    position = torch.arange(int(offsets[-1])) - starts[sample]
    tensors = (torch.cat(slots), torch.cat(real), sample, position, lengths)
    slot, inside, sample, position, lengths = (t.to(device) for t in tensors)
    return Packed(slot, inside, torch.tensor(buckets), sample, position, lengths)


def packed_attention(
    q: Float[Tensor, "n h f"], k: Float[Tensor, "n g f"], v: Float[Tensor, "n g w"], plan: Packed, scale: float
) -> Float[Tensor, "n h w"]:
    """Each token attends to the tokens of its own sample."""
    return _packed(q, k, v, plan.slots, plan.real, plan.buckets, scale)[0]


@torch.library.custom_op("anygatr::packed_attention", mutates_args=())
def _packed(
    q: Tensor, k: Tensor, v: Tensor, slots: Tensor, real: Tensor, buckets: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    out = q.new_empty(*q.shape[:2], v.shape[-1])
    totals = []
    for bucket in _buckets(slots, real, buckets, q):
        rows, total = flash.forward(*bucket.fold(q, k, v), scale, bucket.mask)
        bucket.put(out, rows)
        totals.append(total.flatten())
    return out, torch.cat(totals)


@_packed.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, slots: Tensor, real: Tensor, buckets: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    wide = torch.promote_types(q.dtype, torch.float32)
    return q.new_empty(*q.shape[:2], v.shape[-1]), q.new_empty(slots.shape[0] * q.shape[1], dtype=wide)


@torch.library.custom_op("anygatr::packed_attention_backward", mutates_args=())
def _packed_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    totals: Tensor,
    slots: Tensor,
    real: Tensor,
    buckets: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    gradients = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    place = 0
    for bucket in _buckets(slots, real, buckets, q):
        folded = bucket.fold(q, k, v)
        grad_rows, out_rows = bucket.rows(grad, k), bucket.rows(out, k)
        shape = folded[0].shape[:-1]
        total = totals[place : place + shape.numel()].view(shape)
        place += shape.numel()
        results = flash.backward(grad_rows, *folded, out_rows, total, scale, bucket.mask)
        for target, rows in zip(gradients, results, strict=True):
            bucket.put(target, rows)
    return gradients


@_packed_backward.register_fake
def _(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    totals: Tensor,
    slots: Tensor,
    real: Tensor,
    buckets: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.scale = inputs
    ctx.save_for_backward(*tensors, *output)


def _differentiate(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    q, k, v, slots, real, buckets, out, totals = ctx.saved_tensors
    if torch.is_grad_enabled():  # a second derivative is wanted

        def again(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            rows = q.new_zeros(out.shape)
            for bucket in _buckets(slots, real, buckets, q):
                rows = bucket.put(rows, flash.explicit(*bucket.fold(q, k, v), ctx.scale, bucket.mask))
            return rows

        return *gradients(again, (q, k, v), [grad]), None, None, None, None
    return *_packed_backward(grad, q, k, v, out, totals, slots, real, buckets, ctx.scale), None, None, None, None


_packed.register_autograd(_differentiate, setup_context=_save)


class _Bucket(NamedTuple):
    """Samples of similar length as one dense batch."""

    slots: Int[Tensor, "b m"]
    real: Bool[Tensor, " b*m"] | None
    mask: Float[Tensor, "b 1 1 m"] | None

    def fold(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The samples' rows, heads before tokens."""
        return flash.fold(q[self.slots], k[self.slots], v[self.slots])

    def rows(self, t: Float[Tensor, "n h w"], k: Tensor) -> Tensor:
        """The rows of an output folded as its queries; padding, which repeats a token, is zero."""
        rows = t[self.slots]
        if self.real is not None:
            rows = rows * self.real.view(*self.slots.shape, 1, 1)
        return flash.fold(rows, k[:1, None], k[:1, None])[0]

    def put(self, target: Float[Tensor, "n h w"], rows: Tensor) -> Tensor:
        """Write the rows back to their tokens, in place."""
        slots, rows = self.slots.flatten(), flash.unfold(rows, target.shape[1]).flatten(0, 1)
        if self.real is None:
            return target.index_copy_(0, slots, rows)
        return target.index_copy_(0, slots[self.real], rows[self.real])


def _buckets(slots: Tensor, real: Tensor, buckets: Tensor, like: Tensor) -> Iterator[_Bucket]:
    place = 0
    for rows, length, padded in buckets.tolist():
        part = slice(place, place + rows * length)
        place += rows * length
        inside = real[part].view(rows, 1, 1, length)
        mask = like.new_zeros(inside.shape).masked_fill(~inside, -torch.inf) if padded else None
        yield _Bucket(slots[part].view(rows, length), real[part] if padded else None, mask)
