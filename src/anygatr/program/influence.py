"""Influence: which inputs every value of a program can depend on, at which order, and how that behaves under mirrors.

A value is a sum of terms, products of the inputs' coefficients. Its `Terms` say, for each blade, sign and source, the lowest
order of a term that is there: infinite where none is. The source is an input field that the term varies with, or none for
constants. The sign says what a mirror does: even terms of mirrored data are the mirrored terms, odd ones their opposite,
such as points of projective geometry. What is infinite is exactly zero in every network, whatever its weights; what is
finite may be non-zero.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from anygatr.ops.attention import Attention, Rope
from anygatr.ops.gate import Gate
from anygatr.ops.linear import Linear, LinearPlan
from anygatr.ops.norm import Norm, NormPlan
from anygatr.ops.product import Product, Term
from anygatr.ops.stream import Add, Dropout
from anygatr.program.program import Program, Step
from anygatr.spaces.features import Feature, Inner

# axes of orders: sign (even, odd), source (constants, then the fields), blade
NEVER = np.inf
SIGNS = ((0, 0), (0, 1), (1, 0), (1, 1))


@dataclass(frozen=True, eq=False)
class Terms:
    """The lowest order of a term for each sign, source and blade; scalar values have one blade."""

    order: np.ndarray

    @classmethod
    def nothing(cls, sources: int, blades: int) -> "Terms":
        """No terms: zero."""
        return cls(np.full((2, sources, blades), NEVER))

    @classmethod
    def constant(cls, sources: int) -> "Terms":
        """A number that is the same for all data."""
        out = cls.nothing(sources, 1)
        out.order[0, 0] = 0
        return out

    def __or__(self, other: "Terms") -> "Terms":
        return Terms(np.minimum(self.order, other.order))

    def __mul__(self, other: "Terms") -> "Terms":
        """The product of blades with the same number; a scalar meets all of them."""
        out = np.full(np.broadcast_shapes(self.order.shape, other.order.shape), NEVER)
        for a, b in SIGNS:
            x, y = self.order[a], other.order[b]
            together = np.minimum(x + y.min(0), x.min(0) + y)
            together[0] = x[0] + y[0]  # constant only if both are
            out[a ^ b] = np.minimum(out[a ^ b], together)
        return Terms(out)

    def at(self, blades: Sequence[int] | np.ndarray, flips: Sequence[bool] | np.ndarray = ()) -> "Terms":
        """Some blades, in this order; where something flips, even terms become odd and odd ones even."""
        picked = self.order[..., list(blades)]
        return Terms(np.where(np.asarray(flips, dtype=bool), picked[::-1], picked) if len(flips) else picked)

    def total(self) -> "Terms":
        """A number made of all blades."""
        return Terms(self.order.min(-1, keepdims=True, initial=NEVER))

    def spread(self, targets: Sequence[int] | np.ndarray, blades: int) -> "Terms":
        """Each blade moved to its target."""
        out = np.full((blades, *self.order.shape[:2]), NEVER)
        np.minimum.at(out, np.asarray(targets, dtype=int), np.moveaxis(self.order, -1, 0))
        return Terms(np.moveaxis(out, 0, -1))

    def varied_by(self, weights: "Terms") -> "Terms":
        """What weights of a mean over tokens add: they matter where tokens differ, which constants do not."""
        out = np.full_like(self.order, NEVER)
        out[:, 0] = self.order[:, 1:].min(1, initial=NEVER)
        out = (Terms(out) * weights).order
        out[:, 0] = NEVER
        return Terms(out)

    def curved(self) -> "Terms":
        """A smooth function of a number: even and odd terms mix, and products of terms appear."""
        return self | self * self

    @property
    def alive(self) -> np.ndarray:
        """Whether there is a term, by sign and blade."""
        return np.isfinite(self.order.min(1))


def influence(program: Program, given: Mapping[str, Terms], mirror: np.ndarray) -> list[Terms]:
    """The terms of all values of a program, for the terms of its inputs by name; inputs that are not named are zero.

    `mirror` says for each blade whether its coefficient changes sign in one mirror of the group, or that it could have.
    """
    sources, blades = next(iter(given.values())).order.shape[1], max(x.order.shape[-1] for x in given.values())
    none = Terms.nothing(sources, blades)
    values = [given.get(name, none) for name in program.inputs]
    values += [none] * (len(program.widths) - len(values))
    for step in program.steps:
        for number, terms in zip(step.outputs, made_by(step, [values[i] for i in step.inputs], mirror), strict=True):
            values[number] = terms if program.widths[number] else Terms.nothing(*terms.order.shape[1:])
    return values


def made_by(step: Step, values: Sequence[Terms], mirror: np.ndarray) -> list[Terms]:
    """What a step writes."""
    match step.op:
        case Linear(plan):
            return _linear(plan, values[0], values[1].total(), step.parameters[4] is not None, mirror)
        case Product(plan):
            every = [_product(term, values[0], values[1].total(), mirror) for term in plan.terms]
            return [_union(every)]
        case Attention(features=features):
            weights = _union([_compared(f, values[0], values[-2]) for f in features] + [values[1] * values[-1].total()])
            factor = weights.total().curved()
            return [v | v.varied_by(factor) for v in values[-2:]]
        case Norm(plan):
            sources = values[0].order.shape[1]
            size = Terms.constant(sources) | _size(plan, values[0]).curved()
            return [values[0] * size, values[1].curved()]
        case Gate():
            return [values[0] * values[0].at([0]).curved(), values[1].curved()]
        case Add():
            return [values[0] | values[2], values[1] | values[3]]
        case Dropout() | Rope():
            return list(values)
    raise TypeError(f"{type(step.op).__name__} has no rule for influence; add one to program/influence.py")


def _linear(plan: LinearPlan, x: Terms, s: Terms, biased: bool, mirror: np.ndarray) -> list[Terms]:
    blades, invariant = x.order.shape[-1], list(plan.invariant)
    fed = s | Terms.constant(s.order.shape[1]) if biased else s
    sources, targets = _maps(plan)
    y = x.at(sources, mirror[sources] ^ mirror[targets]).spread(targets, blades)
    y = y | fed.at([0] * len(invariant), mirror[invariant]).spread(invariant, blades)
    return [y, fed | x.at(invariant, mirror[invariant]).total()]


def _product(term: Term, h: Terms, reference: Terms, mirror: np.ndarray) -> Terms:
    targets, lefts, rights = _entries(term)
    made = h.at(lefts, mirror[lefts] ^ mirror[rights] ^ mirror[targets]) * h.at(rights)
    made = made.spread(targets, h.order.shape[-1])
    return made * reference if term.odd else made


def _compared(feature: Feature, q: Terms, k: Terms) -> Terms:
    """What a feature makes of queries and keys: the inner product pairs blades, others are taken to read all of theirs."""
    blades = list(getattr(feature, "blades", range(q.order.shape[-1])))
    if isinstance(feature, Inner):
        return (q.at(blades) * k.at(feature.key_blades)).total()
    both, weight = q.at(blades).total() * k.at(blades).total(), getattr(feature, "weight", None)
    return both if weight is None else both * q.at([weight]) * k.at([weight])  # a point without weight vanishes


def _size(plan: NormPlan, x: Terms) -> Terms:
    pairs = [pair for group in plan.groups for pair in group]
    return (x.at([pair.blade for pair in pairs]) * x.at([pair.partner for pair in pairs])).total()


def _union(parts: Sequence[Terms]) -> Terms:
    out = parts[0]
    for part in parts[1:]:
        out = out | part
    return out


@lru_cache(maxsize=64)
def _maps(plan: LinearPlan) -> tuple[np.ndarray, np.ndarray]:
    pairs = sorted({(e.source, e.target) for e in plan.entries})
    return np.array([i for i, _ in pairs], dtype=int), np.array([o for _, o in pairs], dtype=int)


@lru_cache(maxsize=64)
def _entries(term: Term) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return tuple(np.array([e[i] for e in term.entries], dtype=int) for i in range(3))  # type: ignore[return-value]
