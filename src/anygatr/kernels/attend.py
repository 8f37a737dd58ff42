"""Attention from channels to channels: in C where it can be, else rows, softmax and mixtures by torch; any derivative."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from anygatr.kernels import attend_native, native
from anygatr.kernels.attend_native import Comparison, Samples, Streams, even
from anygatr.kernels.attention import attended, attention
from anygatr.kernels.function import Function
from anygatr.kernels.heads import channels, rows
from anygatr.kernels.packed import Packed
from anygatr.kernels.plans import recall, remember
from anygatr.kernels.second import gradients

# axes: k blades, h heads, w learned features, c channels of a head


class Layout(NamedTuple):
    """How the tokens are split into samples: rows of equal length, the keys' perhaps masked, or packed ones."""

    queries: int
    keys: int
    mask: Bool[Tensor, "b m"] | None
    packed: Packed | None


class AttendPlan(NamedTuple):
    """What is compared; its name for compiled code, and whether that can use the C function: tracing cannot find out."""

    comparison: Comparison
    key: str
    built: bool

    @classmethod
    def of(cls, comparison: Comparison) -> "AttendPlan":
        """Remember it for compiled code."""
        return cls(comparison, remember(comparison, ("attend", comparison)), native.compiler() is not None)


def attend(
    streams: Streams,
    weights: Float[Tensor, "w h c"],
    layout: Layout,
    scale: float,
    plan: AttendPlan,
    short: torch.dtype | None = None,
) -> tuple[Float[Tensor, "k *queries h*c"], Float[Tensor, "*queries h*s"]]:
    """softmax over keys of scale * (query . key) applied to the values.

    `short` is the type that matrix products may be done in; on the CPU they gain nothing from it and stay as they are.
    """
    given = [t for t in (*streams, weights) if t is not None]
    inside = plan.comparison.known and all(0 not in t.shape[:-1] for t in given[:-1]) and not torch.compiler.is_exporting()
    traced = plan.built and streams.x.device.type == "cpu" and streams.x.dtype in native.REALS
    if inside and torch.compiler.is_compiling() and traced:
        tokens = streams.s.shape[:-1]
        x, s, _ = _attend(*_flat(streams), weights, *_split(layout), layout.queries, layout.keys, scale, plan.key)
        return x.unflatten(1, tokens), s.unflatten(0, tokens)
    if inside and native.applies(*given):
        x, s, _ = _Attend.apply(*streams, weights, layout, scale, plan.comparison)
        return x, s
    return clear(streams, weights, layout, scale, plan.comparison, short)


def clear(
    streams: Streams,
    weights: Float[Tensor, "w h c"],
    layout: Layout,
    scale: float,
    comparison: Comparison,
    short: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """The same from operations that torch differentiates any number of times, with the rows in memory."""
    tokens = streams.s.shape[:-1]
    q, k, v = rows(_flat(streams), weights, comparison)
    if short is not None:
        q, k, v = q.to(short), k.to(short), v.to(short)
    width = weights.shape[-1], v.shape[-1] - len(comparison.mixed) * weights.shape[-1]
    if layout.packed is None:
        q, k, v = (
            t.unflatten(0, (-1, n)) for t, n in zip((q, k, v), (layout.queries, layout.keys, layout.keys), strict=True)
        )
    out = attention(q, k, v, scale, layout.mask, layout.packed)
    x, s = channels(out.flatten(0, -3), comparison, width)
    return x.unflatten(1, tokens), s.unflatten(0, tokens)


def _flat(streams: Streams) -> Streams:
    """All tokens in one axis."""
    return Streams(*(None if t is None else t.flatten(1 - i % 2, -2) for i, t in enumerate(streams)))  # type: ignore[arg-type]


class _Attend(Function):
    """Saves its inputs, its results and one number per query and head."""

    @staticmethod
    def forward(
        x: Tensor,
        s: Tensor,
        keys_x: Tensor | None,
        keys_s: Tensor | None,
        weights: Tensor,
        layout: Layout,
        scale: float,
        comparison: Comparison,
    ) -> tuple[Tensor, Tensor, Tensor]:
        samples = samples_of(layout, s.shape[:-1].numel())
        return attend_native.forward(Streams(x, s, keys_x, keys_s), weights, samples, scale, comparison)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        *tensors, ctx.layout, ctx.scale, ctx.comparison = inputs
        ctx.mark_non_differentiable(output[2])
        ctx.save_for_backward(*tensors, *output)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        *inputs, out_x, out_s, total = ctx.saved_tensors
        if torch.is_grad_enabled():
            call = lambda x, s, kx, ks, w: clear(Streams(x, s, kx, ks), w, ctx.layout, ctx.scale, ctx.comparison)  # noqa: E731
            return *gradients(call, inputs, grads[:2]), None, None, None
        *streams, weights = inputs
        given = Streams(*streams), weights, samples_of(ctx.layout, streams[1].shape[:-1].numel()), ctx.scale, ctx.comparison
        return *attend_native.backward(grads[:2], (out_x, out_s, total), *given), None, None, None  # type: ignore[arg-type]


@torch.library.custom_op("anygatr::attend", mutates_args=())
def _attend(
    x: Tensor,
    s: Tensor,
    keys_x: Tensor | None,
    keys_s: Tensor | None,
    weights: Tensor,
    mask: Tensor | None,
    lengths: Tensor | None,
    queries: int,
    keys: int,
    scale: float,
    key: str,
) -> tuple[Tensor, Tensor, Tensor]:
    samples = _samples(queries, keys, len(s), mask, lengths)
    return attend_native.forward(Streams(x, s, keys_x, keys_s), weights, samples, scale, recall(key))


@_attend.register_fake
def _(x: Tensor, s: Tensor, keys_x: Tensor | None, keys_s: Tensor | None, weights: Tensor, *others: Any) -> Any:
    comparison: Comparison = recall(others[-1])
    _, heads, mv = weights.shape
    scalars = s.shape[-1] // (heads + (2 * comparison.key_heads if keys_x is None else 0))
    out = x.new_empty(comparison.blades, x.shape[1], heads * mv), s.new_empty(s.shape[0], heads * scalars)
    return *out, s.new_empty(s.shape[0], heads)


@torch.library.custom_op("anygatr::attend_backward", mutates_args=())
def _attend_backward(
    grad_x: Tensor,
    grad_s: Tensor,
    out_x: Tensor,
    out_s: Tensor,
    total: Tensor,
    x: Tensor,
    s: Tensor,
    keys_x: Tensor | None,
    keys_s: Tensor | None,
    weights: Tensor,
    mask: Tensor | None,
    lengths: Tensor | None,
    queries: int,
    keys: int,
    scale: float,
    key: str,
) -> list[Tensor]:
    samples = _samples(queries, keys, len(s), mask, lengths)
    given = Streams(x, s, keys_x, keys_s), weights, samples, scale, recall(key)
    found = attend_native.backward((grad_x, grad_s), (out_x, out_s, total), *given)
    return [t for t in found if t is not None]


@_attend_backward.register_fake
def _(grad_x: Tensor, grad_s: Tensor, out_x: Tensor, out_s: Tensor, total: Tensor, *inputs: Any) -> list[Tensor]:
    return [t.new_empty(t.shape) for t in inputs[:5] if t is not None]


def _save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    *tensors, ctx.queries, ctx.keys, ctx.scale, ctx.key = inputs
    ctx.save_for_backward(*tensors, *output)


def _differentiate(ctx: Any, grad_x: Tensor, grad_s: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    *inputs, out_x, out_s, total = ctx.saved_tensors
    found = iter(_attend_backward(grad_x, grad_s, out_x, out_s, total, *inputs, ctx.queries, ctx.keys, ctx.scale, ctx.key))
    return *(None if t is None else next(found) for t in inputs[:5]), *(None,) * 6


_attend.register_autograd(_differentiate, setup_context=_save)


def samples_of(layout: Layout, tokens: int) -> Samples:
    """Where the samples of so many queries begin.

    For operations' own code: outside it torch may wrap what is made, and the cache keeps it.
    """
    return _samples(layout.queries, layout.keys, tokens, *_split(layout))


def _split(layout: Layout) -> tuple[Tensor | None, Tensor | None]:
    """Which keys are real, and how long packed samples are."""
    mask = None if layout.mask is None else attended(layout.mask).flatten()
    return mask, None if layout.packed is None else layout.packed.lengths


def _samples(queries: int, keys: int, tokens: int, mask: Tensor | None, lengths: Tensor | None) -> Samples:
    """Where the samples of flat tokens begin."""
    if lengths is not None:
        at = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        return Samples(at, at, None, int(lengths.max()) if len(lengths) else 0)
    count = tokens // queries
    return Samples(even(count, queries), even(count, keys), mask, keys)
