"""Several operations as one node of torch's graph: a node of its own for each takes as long as a small kernel.

Where a stream goes several ways, into the chain, past it and into a later map, its gradients are added inside the kernels.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from anygatr.kernels import attend, attend_native, linear, linear_native, native
from anygatr.kernels.attend_native import Comparison, Samples, Streams, feature_weights
from anygatr.kernels.function import Function
from anygatr.kernels.linear_plan import LinearPlan, Weights
from anygatr.kernels.precision import autocast_type
from anygatr.kernels.product import lanes, per_token
from anygatr.kernels.prologue import NOTHING, Prologue
from anygatr.kernels.second import gradients

Stream = tuple[Tensor, Tensor]
Tensors = Sequence[Tensor | None]


class Map(NamedTuple):
    """The most general linear map; `beside` takes the scalars that went into the chain, not those made last.

    Its tensors are the weights and the number of each token that products may need.
    """

    plan: LinearPlan
    before: Prologue = NOTHING
    beside: bool = False

    def forward(self, x: Tensor, s: Tensor, tensors: Tensors, onto: tuple[Tensor | None, Tensor | None]) -> Stream:
        """In C."""
        return linear_native.forward(x, s, _weights(tensors), self.plan, self.before, onto, tensors[-1])

    def backward(
        self, grads: Stream, x: Tensor, s: Tensor, tensors: Tensors, made: Any, below: bool, plus: Tensors
    ) -> tuple[Tensor | None, ...]:
        """The gradients of x and s, with those of other ways added, and of the tensors."""
        grad_y, grad_t = grads
        weights, number, others = _weights(tensors), tensors[-1], (plus[0], plus[1])
        found = linear_native.backward(grad_y, grad_t, x, s, weights, self.plan, self.before, below, number, others)
        return *found, None

    def clear(self, x: Tensor, s: Tensor, tensors: Tensors) -> Stream:
        """By torch operations."""
        weights, number = _weights(tensors), tensors[-1]
        reference = None if number is None else number.view(*s.shape[:-1], 1)
        return linear.clear(*self.before(x, s, reference), self.plan.mixing.to(weights.mv), weights, self.plan)


class Mixture(NamedTuple):
    """Attention of a stream's queries to its own keys; its tensors are the logarithms of the learned features' weights."""

    layout: attend.Layout
    scale: float
    comparison: Comparison

    @property
    def beside(self) -> bool:
        """It takes the scalars made last."""
        return False

    def forward(self, x: Tensor, s: Tensor, tensors: Tensors, onto: Tensors) -> tuple[Tensor, ...]:
        """In C; the third and fourth results are for the backward pass."""
        given = self._given(x, s, self._weights(x, tensors))
        return *attend_native.forward(*given), given[1]

    def backward(
        self, grads: Stream, x: Tensor, s: Tensor, tensors: Tensors, made: Any, below: bool, plus: Tensors
    ) -> tuple[Tensor | None, ...]:
        """The gradients of x, s and the tensors."""
        *results, weights = made
        grad_x, grad_s, _, _, grad_weights = attend_native.backward(grads, results, *self._given(x, s, weights))
        assert grad_weights is not None
        return grad_x, grad_s, *(grad_weights * weights)

    def clear(self, x: Tensor, s: Tensor, tensors: Tensors) -> Stream:
        """By torch operations."""
        return attend.clear(Streams(x, s, None, None), self._weights(x, tensors), self.layout, self.scale, self.comparison)

    def _given(self, x: Tensor, s: Tensor, weights: Tensor) -> tuple[Streams, Tensor, Samples, float, Comparison]:
        return Streams(x, s, None, None), weights, attend.samples_of(self.layout, s), self.scale, self.comparison

    def _weights(self, x: Tensor, tensors: Tensors) -> Float[Tensor, "w h c"]:
        heads, key_heads = self.comparison.heads, self.comparison.key_heads
        return feature_weights(tensors, heads, x.shape[-1] // (heads + 2 * key_heads), x)  # type: ignore[arg-type]


Hows = tuple[tuple[Map | Mixture, int], ...]
"""Operations, each with how many tensors are its own."""


class Step(NamedTuple):
    """An operation and its tensors."""

    how: Map | Mixture
    tensors: tuple[Tensor | None, ...]


def mapped(
    x: Float[Tensor, "k *tokens c"],
    weights: Weights,
    how: Map,
    reference: Float[Tensor, "*#tokens 1"] | None = None,
) -> Step:
    """The step of a linear map; x is any stream with its tokens."""
    return Step(how, (*weights, None if reference is None else per_token(reference, x)))


def mixed(log_weights: Sequence[Float[Tensor, "h c"]], layout: attend.Layout, scale: float, comparison: Comparison) -> Step:
    """The step of attention."""
    return Step(Mixture(layout, scale, comparison), tuple(log_weights))


def chainable(x: Float[Tensor, "k *tokens c"]) -> bool:
    """Whether chains are for such streams: not where C is not, nor while they are converted or empty."""
    return native.applies(x) and autocast_type(x) is None and 0 not in x.shape[:-1]


def chains(
    x: Float[Tensor, "k *tokens c"], s: Float[Tensor, "*tokens c_s"], steps: Sequence[Step], onto: Stream | None
) -> bool:
    """Whether there are steps and all can run in C."""
    if not steps:
        return False
    channels = x.shape[-1]
    for how, tensors in steps:
        if isinstance(how, Mixture):
            fits: bool | int = how.comparison.known
        else:
            fits = how.before.products is None or lanes(channels, how.before.products)
            channels = tensors[0].shape[0]  # type: ignore[union-attr]
        if not fits:
            return False
    return native.applies(x, s, *(onto or ()), *(t for step in steps for t in step.tensors if t is not None))


def chain(
    x: Float[Tensor, "k *tokens c"], s: Float[Tensor, "*tokens c_s"], steps: Sequence[Step], onto: Stream | None
) -> Stream:
    """One step after the other, the last one's results added to `onto`."""
    residual = onto is not None and onto[0] is x and onto[1] is s
    given = (None, None) if onto is None or residual else onto
    hows = tuple((step.how, len(step.tensors)) for step in steps)
    tensors = [t for step in steps for t in step.tensors]
    y, t, *_ = _Chain.apply(x, s, *given, residual, torch.is_grad_enabled(), hows, *tensors)
    return y, t


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
        now, kept = (x, s), list[Tensor]()
        for i, (how, given) in enumerate(_dealt(hows, tensors)):
            last = i == len(hows) - 1
            made = how.forward(now[0], s if how.beside else now[1], given, onto if last else (None, None))
            kept += made if keep and not last else ()
            now = made[0], made[1]
        return *now, *kept

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


def _weights(tensors: Tensors) -> Weights:
    return Weights(*tensors[: len(Weights._fields)])  # type: ignore[arg-type]
