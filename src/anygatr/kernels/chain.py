"""Several operations as one node of torch's graph: a node of its own for each takes as long as a small kernel.

Where a stream goes several ways, into the chain, past it and into a later map, its gradients are added inside the kernels.
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import forward_ad

from anygatr.kernels import linear_native, native
from anygatr.kernels.function import Function
from anygatr.kernels.linear_native import Entry
from anygatr.kernels.maps_source import TOKENS
from anygatr.kernels.precision import autocast_type
from anygatr.kernels.second import gradients
from anygatr.kernels.steps import Map, Mixture, Step, Stream, Tensors

Hows = tuple[tuple[Map | Mixture, int], ...]
"""Operations, each with how many tensors are its own."""


def chainable(x: Float[Tensor, "k *tokens c"]) -> bool:
    """Whether chains are for such streams: not where C is not, nor while they are converted or empty."""
    return native.applies(x) and autocast_type(x) is None and 0 not in x.shape[:-1]


def chains(
    x: Float[Tensor, "k *tokens c"], s: Float[Tensor, "*tokens c_s"], steps: Sequence[Step], onto: Stream | None
) -> bool:
    """Whether there are steps, linear maps first and last, and all can run in C."""
    if not steps or not isinstance(steps[0].how, Map) or not isinstance(steps[-1].how, Map):
        return False
    channels = x.shape[-1]
    for how, tensors in steps:
        if not how.fits(channels):
            return False
        if isinstance(how, Map):
            channels = tensors[0].shape[0]  # type: ignore[union-attr]
    return native.applies(x, s, *(onto or ()), *(t for step in steps for t in step.tensors if t is not None))


def chain(
    x: Float[Tensor, "k *tokens c"], s: Float[Tensor, "*tokens c_s"], steps: Sequence[Step], onto: Stream | None
) -> Stream:
    """One step after the other, the last one's results added to `onto`."""
    residual = onto is not None and onto[0] is x and onto[1] is s
    given = (None, None) if onto is None or residual else onto
    hows = tuple((step.how, len(step.tensors)) for step in steps)
    tensors = [t for step in steps for t in step.tensors]
    keep = torch.is_grad_enabled()
    run: Callable[..., tuple[Tensor, ...]] = _Chain.apply if keep or not _plain() else _Chain.forward
    y, t, *_ = run(x, s, *given, residual, keep, hows, *tensors)
    return y, t


def _plain() -> bool:
    """Whether nobody looks at what torch is told, but for the derivatives of backward passes."""
    transformed = torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
    return not transformed and torch._C._get_tracing_state() is None


class _Chain(Function):
    """Saves what goes into each step."""

    @staticmethod
    def forward(
        x: Tensor,
        s: Tensor,
        onto_x: Tensor | None,
        onto_s: Tensor | None,
        residual: bool,
        keep: bool,
        hows: Hows,
        *tensors: Tensor | None,
    ) -> tuple[Tensor, ...]:
        onto = (x, s) if residual else (onto_x, onto_s)
        now, kept, dealt = (x, s), list[Tensor](), _dealt(hows, tensors)
        for alone, steps in groupby(dealt, lambda step: isinstance(step[0], Mixture) and (keep or step[0].length is None)):
            run = list(steps)
            if alone:
                ((how, given),) = run
                made: Any = [how.forward(*now, given)]  # type: ignore[union-attr]
            else:
                made = _on_tiles(*now, run, onto if run[-1] is dealt[-1] else (None, None), keep, s)
            kept += [t for each in made for t in each] if keep else []
            now = made[-1][0], made[-1][1]
        return *now, *kept[:-2]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        x, s, _, _, ctx.residual, _, ctx.hows, *tensors = inputs
        ctx.mark_non_differentiable(*output[2:])
        ctx.set_materialize_grads(False)  # of what is kept: none has any
        ctx.sizes = [t.shape for t in output[:2]]
        ctx.save_for_backward(x, s, *tensors, *output[2:])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        x, s, *others = ctx.saved_tensors
        needed = ctx.needs_input_grad
        count = sum(count for _, count in ctx.hows)
        tensors, kept = others[:count], others[count:]
        given = [x.new_zeros(size) if g is None else g for g, size in zip(grads[:2], ctx.sizes, strict=True)]
        if torch.is_grad_enabled():
            found = _again(x, s, tensors, ctx.hows, ctx.residual, given)
        elif not native.applies(*given):
            with torch.enable_grad():
                found = _again(x, s, tensors, ctx.hows, ctx.residual, given)
            found = tuple(None if t is None else t.detach() for t in found)
        else:
            found = _backwards(x, s, tensors, kept, ctx.hows, ctx.residual, given, any(needed[:2]))
        onto = (g if needed else None for g, needed in zip(given, needed[2:4], strict=True))
        return *found[:2], *onto, None, None, None, *found[2:]


def _on_tiles(
    x: Tensor, s: Tensor, run: Sequence[tuple[Map | Mixture, Tensors]], onto: Any, keep: bool, beside: Tensor
) -> list[Stream]:
    """Linear maps, with attention between them where samples are short and nothing is to be kept."""
    entries, channels, scalars, tile = list[Entry](), x.shape[-1], s.shape[-1], TOKENS
    for how, tensors in run:
        entries.append(how.entry(x, channels, scalars, tensors))
        *_, channels, scalars = entries[-1].widths
        if isinstance(how, Mixture) and how.length:
            tile = TOKENS // how.length * how.length
    return linear_native.forward(x, s, entries, onto, keep, beside, tile)


def _backwards(
    x: Tensor,
    s: Tensor,
    tensors: Tensors,
    kept: Sequence[Tensor],
    hows: Hows,
    residual: bool,
    grads: Sequence[Tensor],
    below: bool,
) -> tuple[Tensor | None, ...]:
    """The gradients of x, s and the tensors, step by step from the last."""
    made: list[Any] = [(x, s)]
    for how, _ in hows[:-1]:
        size = 4 if isinstance(how, Mixture) else 2
        made.append(tuple(kept[:size]))
        kept = kept[size:]
    grad: Any = tuple(grads)
    plus_x, plus_s = grad if residual else (None, None)
    found: list[tuple[Tensor | None, ...]] = []
    for i, (how, given) in reversed(list(enumerate(_dealt(hows, tensors)))):
        into, first = made[i], i == 0
        plus = plus_x if first else None, plus_s if first or how.beside else None
        scalars = s if how.beside else into[1]
        results = made[i + 1] if i + 1 < len(hows) else None
        grad_x, grad_s, *own = how.backward(grad, into[0], scalars, given, results, below or not first, plus)
        found.insert(0, tuple(own))
        if how.beside and not first:
            plus_s, grad_s = grad_s, torch.zeros_like(into[1])
        grad = grad_x, grad_s
    return *grad, *(t for own in found for t in own)


def _again(
    x: Tensor, s: Tensor, tensors: Tensors, hows: Hows, residual: bool, grads: Sequence[Tensor]
) -> tuple[Tensor | None, ...]:
    """The same as functions that can be differentiated again."""

    def clear(x: Tensor, s: Tensor, *tensors: Tensor | None) -> Stream:
        now = x, s
        for how, given in _dealt(hows, tensors):
            now = how.clear(now[0], s if how.beside else now[1], given)
        return (x + now[0], s + now[1]) if residual else now

    return tuple(gradients(clear, (x, s, *tensors), grads))


def _dealt(hows: Hows, tensors: Tensors) -> list[tuple[Map | Mixture, Tensors]]:
    """Each operation with its tensors."""
    out, at = [], 0
    for how, count in hows:
        out.append((how, tensors[at : at + count]))
        at += count
    return out
