"""The operations that chains are made of: forwards and backwards in C, and by torch for any derivative."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from jaxtyping import Float
from torch import Tensor

from anygatr.kernels import attend, attend_native, linear, linear_native
from anygatr.kernels.attend_native import Comparison, Samples, Streams, feature_weights
from anygatr.kernels.linear_native import Entry
from anygatr.kernels.linear_plan import LinearPlan, Weights
from anygatr.kernels.maps_source import TOKENS
from anygatr.kernels.product import lanes, per_token
from anygatr.kernels.prologue import NOTHING, Prologue

Stream = tuple[Tensor, Tensor]
Tensors = Sequence[Tensor | None]


class Map(NamedTuple):
    """The most general linear map; `beside` takes the scalars that went into the chain, not those made last.

    Its tensors are the weights and the number of each token that products may need.
    """

    plan: LinearPlan
    before: Prologue = NOTHING
    beside: bool = False

    def fits(self, channels: int) -> bool:
        """Whether C can do it to so many channels."""
        return self.before.products is None or bool(lanes(channels, self.before.products))

    def entry(self, x: Tensor, channels: int, scalars: int, tensors: Tensors) -> Entry:
        """What `linear_native.forward` takes for it."""
        return linear_native.entry(self.plan, self.before, tensors, x.dtype, channels, self.beside)

    def backward(
        self, grads: Stream, x: Tensor, s: Tensor, tensors: Tensors, made: Any, below: bool, plus: Tensors
    ) -> tuple[Tensor | None, ...]:
        """The gradients of x and s, with those of other ways added, and of the tensors."""
        *weights, number = tensors
        given = Weights(*weights)  # type: ignore[arg-type]
        found = linear_native.backward(*grads, x, s, given, self.plan, self.before, below, number, (plus[0], plus[1]))
        return *found, None

    def clear(self, x: Tensor, s: Tensor, tensors: Tensors) -> Stream:
        """By torch operations."""
        *given, number = tensors
        weights = Weights(*given)  # type: ignore[arg-type]
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

    def fits(self, channels: int) -> bool:
        """Whether C can do it to so many channels."""
        return self.comparison.known

    @property
    def length(self) -> int | None:
        """How many tokens samples have, if tiles can be cut where they begin."""
        queries, keys, mask, packed = self.layout
        return queries if queries == keys <= TOKENS and mask is None and packed is None else None

    def entry(self, x: Tensor, channels: int, scalars: int, tensors: Tensors) -> Entry:
        """What `linear_native.forward` takes for it."""
        assert self.length is not None
        weights = self._weights(x, channels, tensors)
        return attend_native.entry(weights, self.length, self.scale, self.comparison, channels, scalars)

    def forward(self, x: Tensor, s: Tensor, tensors: Tensors) -> tuple[Tensor, ...]:
        """In C; the third and fourth results are for the backward pass."""
        given = self._given(x, s, self._weights(x, x.shape[-1], tensors))
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
        weights = self._weights(x, x.shape[-1], tensors)
        return attend.clear(Streams(x, s, None, None), weights, self.layout, self.scale, self.comparison)

    def _given(self, x: Tensor, s: Tensor, weights: Tensor) -> tuple[Streams, Tensor, Samples, float, Comparison]:
        samples = attend.samples_of(self.layout, s.shape[:-1].numel())
        return Streams(x, s, None, None), weights, samples, self.scale, self.comparison

    def _weights(self, x: Tensor, channels: int, tensors: Tensors) -> Float[Tensor, "w h c"]:
        heads, key_heads = self.comparison.heads, self.comparison.key_heads
        return feature_weights(tensors, heads, channels // (heads + 2 * key_heads), x)  # type: ignore[arg-type]


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
