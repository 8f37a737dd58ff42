"""The operations that chains are made of: forwards and backwards in C, and by torch for any derivative."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jaxtyping import Float
from torch import Tensor

from anygatr.kernels import attend, attend_native, linear, linear_native
from anygatr.kernels.attend_native import Comparison, Samples, Streams, feature_weights
from anygatr.kernels.linear_plan import LinearPlan, Weights
from anygatr.kernels.product import lanes, per_token
from anygatr.kernels.prologue import NOTHING, Prologue

Stream = tuple[Tensor, Tensor]
Tensors = Sequence[Tensor | None]


class Call(NamedTuple):
    """A function in C: it takes addresses, of x, s, `own`, what its results are added to and these, and then `sizes`."""

    run: Callable[..., None]
    own: Tensors
    sizes: tuple[int, ...]
    shape: tuple[int, int, int]  # blades, channels and scalars of each token in its results
    more: int = 0  # numbers of each token in a third result; where there is one, results are not added to anything

    @property
    def results(self) -> tuple[int, ...]:
        """The numbers of each token in all of its results."""
        blades, channels, scalars = self.shape
        return (blades * channels, scalars, self.more) if self.more else (blades * channels, scalars)


class Map(NamedTuple):
    """The most general linear map; `beside` takes the scalars that went into the chain, not those made last.

    Its tensors are the number of each token that products may need, and the weights.
    """

    plan: LinearPlan
    before: Prologue = NOTHING
    beside: bool = False

    def fits(self, channels: int) -> bool:
        """Whether C can do it to so many channels."""
        return self.before.products is None or bool(lanes(channels, self.before.products))

    def call(self, x: Tensor, channels: int, scalars: int, tokens: int, tensors: Tensors) -> Call:
        """What it does to that many tokens, channels and scalars, of the type of x."""
        weights = _weights(tensors)
        run, sizes = linear_native.settled("linear", weights, self.plan, self.before, x.dtype, channels, tokens)
        return Call(run, tensors, sizes, (self.plan.blades, weights.mv.shape[0], weights.s_to_s.shape[0]))

    def forward(self, x: Tensor, s: Tensor, tensors: Tensors, onto: tuple[Tensor | None, Tensor | None]) -> Stream:
        """In C."""
        return linear_native.forward(x, s, _weights(tensors), self.plan, self.before, onto, tensors[0])

    def backward(
        self, grads: Stream, x: Tensor, s: Tensor, tensors: Tensors, made: Any, below: bool, plus: Tensors
    ) -> tuple[Tensor | None, ...]:
        """The gradients of x and s, with those of other ways added, and of the tensors."""
        weights, number, others = _weights(tensors), tensors[0], (plus[0], plus[1])
        found = linear_native.backward(*grads, x, s, weights, self.plan, self.before, below, number, others)
        return *found[:2], None, *found[2:]

    def clear(self, x: Tensor, s: Tensor, tensors: Tensors) -> Stream:
        """By torch operations."""
        weights, number = _weights(tensors), tensors[0]
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

    def call(self, x: Tensor, channels: int, scalars: int, tokens: int, tensors: Tensors) -> Call:
        """What it does to that many tokens, channels and scalars, of the type of x."""
        samples, comparison = attend.samples_of(self.layout, tokens), self.comparison
        every, weights = comparison.heads + 2 * comparison.key_heads, self._weights(x, channels, tensors)
        head = channels // every, scalars // every
        run, sizes = attend_native.settled("attend", weights, samples, comparison, head, tokens, tokens)
        shape = comparison.blades, comparison.heads * head[0], comparison.heads * head[1]
        return Call(run, (None, None, *attend_native.given(weights, samples, self.scale)), sizes, shape, comparison.heads)

    def forward(self, x: Tensor, s: Tensor, tensors: Tensors, onto: Tensors) -> tuple[Tensor, ...]:
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
    return Step(how, (None if reference is None else per_token(reference, x), *weights))


def mixed(log_weights: Sequence[Float[Tensor, "h c"]], layout: attend.Layout, scale: float, comparison: Comparison) -> Step:
    """The step of attention."""
    return Step(Mixture(layout, scale, comparison), tuple(log_weights))


def _weights(tensors: Tensors) -> Weights:
    return Weights(*tensors[1:])  # type: ignore[arg-type]
