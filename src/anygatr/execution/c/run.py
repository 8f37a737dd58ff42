"""The kernels of a segment in their order, forwards and backwards."""

from collections.abc import Sequence

import torch
from torch import Tensor

from anygatr.execution.c import attention, linear
from anygatr.execution.c.samples import Streams, samples_of
from anygatr.execution.c.schedule import FusedAttention, FusedLinear, Kernel, Segment
from anygatr.execution.c.tensors import TOKENS
from anygatr.ops.attention import feature_weights
from anygatr.ops.batch import Batch

Known = dict[int, Tensor]
"""Tensors by the number of their value or parameter."""


def forward(segment: Segment, known: Known, parameters: Known, batch: Batch | None, keep: bool) -> list[Tensor]:
    """Run all kernels, adding results to the known values; what attention needs again in the backward pass.

    Without `keep`, results that nothing outside reads need no memory: they stay in the workspace of a tile.
    """
    extra: list[Tensor] = []
    for chain in _chains(segment, known, batch, keep):
        first = chain[0]
        if isinstance(first, FusedAttention):
            weights = feature_weights(_given(first, parameters), first.op, known[first.reads[0]])
            streams = Streams(*(known[v] for v in first.reads))
            x, s, log_sum = attention.forward(streams, weights, samples_of(streams, _batch(batch), first.op), first.op)
            known.update(zip(first.outputs, (x, s), strict=True))
            extra += [log_sum, weights]
        else:
            _pipeline(first, chain, known, parameters, keep)
    return extra


def backward(
    segment: Segment,
    known: Known,
    parameters: Known,
    extra: list[Tensor],
    batch: Batch | None,
    grads_of: Known,
    needed: set[int],
) -> list[Tensor | None]:
    """The gradients of inputs and parameters, kernel by kernel from the last.

    `grads_of` has the gradients of values so far. Where a value has one already, the kernel adds it to its own.
    """
    outside, found = set(segment.inputs) - needed, dict[int, Tensor]()
    for kernel in reversed(segment.kernels):
        x, s = (grads_of.pop(v) if v in grads_of else torch.zeros_like(known[v]) for v in kernel.outputs)
        if isinstance(kernel, FusedAttention):
            found.update(_attention_backward(kernel, (x, s), known, extra, batch, grads_of))
            continue
        for value, gradient in zip(kernel.residual or (), (x, s), strict=False):
            _add(grads_of, value, gradient)
        below, weights = not {kernel.x, kernel.s} <= outside, _given(kernel, parameters)
        reference, sums = _reference(kernel, known, known[kernel.s]), (grads_of.get(kernel.x), grads_of.get(kernel.s))
        grad_x, grad_s, *own = linear.backward(
            x, s, known[kernel.x], known[kernel.s], weights, kernel.plan, kernel.prologue, below, reference, sums
        )
        if grad_x is not None and grad_s is not None:
            grads_of[kernel.x], grads_of[kernel.s] = grad_x, grad_s
        found.update({p: g for p, g in zip(kernel.parameters, own, strict=True) if p is not None and g is not None})
    return [*(grads_of.get(v) for v in segment.inputs), *(found.get(p) for p in segment.parameters)]


def _chains(segment: Segment, known: Known, batch: Batch | None, keep: bool) -> tuple[tuple[Kernel, ...], ...]:
    """Which kernels one call runs: with attention among them where samples are whole in a tile."""
    if keep:
        return segment.training_chains
    dense = batch is None or (batch.mask is None and batch.packed is None)
    whole = dense and known[segment.inputs[1]].shape[-2] <= TOKENS
    return segment.inference_chains_with_attention if whole else segment.inference_chains


def _pipeline(first: FusedLinear, chain: Sequence[Kernel], known: Known, parameters: Known, keep: bool) -> None:
    """Linear maps, perhaps with attention between them, tile by tile in one call."""
    x, s = known[first.x], known[first.s]
    entries, side, tile = [], None, TOKENS
    for kernel in chain:
        given = _given(kernel, parameters)
        if isinstance(kernel, FusedAttention):
            length = s.shape[-2]
            entries.append(attention.entry(feature_weights(given, kernel.op, x), length, kernel.op))
            tile = TOKENS // length * length
        else:
            takes_side = kernel is not first and kernel.s in known
            side = known[kernel.s] if takes_side else side
            reference = _reference(kernel, known, s)
            entries.append(linear.entry(kernel.plan, kernel.prologue, given, reference, x.dtype, takes_side))
    residual = getattr(chain[-1], "residual", None)
    added = (None, None) if residual is None else (known[residual[0]], known[residual[1]])
    made = linear.forward(x, s, entries, added, keep, side, tile)
    for kernel, results in zip(chain if keep else chain[-1:], made, strict=True):
        known.update(zip(kernel.outputs, results, strict=True))


def _attention_backward(
    kernel: FusedAttention,
    grads: tuple[Tensor, Tensor],
    known: Known,
    extra: list[Tensor],
    batch: Batch | None,
    grads_of: Known,
) -> Known:
    """Add the gradients of queries, keys and values to `grads_of`; the gradients of its parameters."""
    weights, log_sum = extra.pop(), extra.pop()
    streams, (x, s) = Streams(*(known[v] for v in kernel.reads)), (known[v] for v in kernel.outputs)
    samples = samples_of(streams, _batch(batch), kernel.op)
    *made, grad_weights = attention.backward(grads, (x, s, log_sum), streams, weights, samples, kernel.op)
    for value, gradient in zip(kernel.reads, made, strict=False):
        assert gradient is not None
        _add(grads_of, value, gradient)
    assert grad_weights is not None
    return {p: g for p, g in zip(kernel.parameters, grad_weights * weights, strict=True) if p is not None}


def _add(grads_of: Known, value: int, gradient: Tensor) -> None:
    grads_of[value] = grads_of[value] + gradient if value in grads_of else gradient


def _given(kernel: Kernel, parameters: Known) -> tuple[Tensor | None, ...]:
    return tuple(None if p is None else parameters[p] for p in kernel.parameters)


def _batch(batch: Batch | None) -> Batch:
    assert batch is not None, "attention needs to know its samples"
    return batch


def _reference(kernel: FusedLinear, known: Known, s: Tensor) -> Tensor | None:
    """The join reference where products need it: a number for each token, one after the other in memory."""
    if kernel.reference is None or not kernel.prologue.referred:
        return None
    reference, tokens = known[kernel.reference].detach(), s.shape[:-1]
    ready = reference.shape[:-1] == tokens and reference.is_contiguous()
    return reference if ready else reference.expand(*tokens, 1).contiguous()
