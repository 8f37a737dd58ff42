"""The most general equivariant linear map: which effective weight takes which blade to which, as one batched product."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from anygatr.equivariance.solver import LinearBasis
from anygatr.ops.batch import Batch
from anygatr.ops.op import Op, Tensors
from anygatr.ops.precision import autocast_type, lengthened, shortened, without_autocast
from anygatr.spaces.stream_basis import StreamBasis

# axes: k blades, m maps, e effective weights, j invariant blades, p entries
DIGITS = 9  # entries of a basis closer than this are one number


class BladeMap(NamedTuple):
    """y[target] += factor * weight(x[source])."""

    weight: int
    factor: float
    target: int
    source: int


class LinearWeights(NamedTuple):
    """The parameters of a layer: maps of multivectors, and what connects invariant blades and scalars."""

    mv: Float[Tensor, "c_out c_in m"]
    s_to_mv: Float[Tensor, "j c_out s_in"]
    mv_to_s: Float[Tensor, "j s_out c_in"]
    s_to_s: Float[Tensor, "s_out s_in"]
    bias_mv: Float[Tensor, "j c_out"] | None = None
    bias_s: Float[Tensor, " s_out"] | None = None


@dataclass(frozen=True)
class LinearPlan:
    """Which blades each effective weight connects.

    Entries of the basis that are proportional for all maps share one effective weight: weight_e = sum_m mixing_me weight_m.
    Entries between invariant blades come first.
    Blades outside `reads` are taken for zero; those outside `writes`, and all scalars without `scalars`, are left zero.
    """

    mixing: tuple[tuple[float, ...], ...]
    blades: int
    invariant: tuple[int, ...]
    entries: tuple[BladeMap, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    scalars: bool = True

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.mixing, self.entries, self.reads, self.writes, self.scalars))

    @property
    def maps(self) -> int:
        """How many maps the basis has."""
        return len(self.mixing)

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds per pair of an input and an output channel."""
        return len(self.entries)

    @property
    def inner(self) -> tuple[int, ...]:
        """The invariant blades that are read, counted among the invariant ones."""
        return tuple(j for j, blade in enumerate(self.invariant) if blade in self.reads)

    @property
    def outer(self) -> tuple[int, ...]:
        """The invariant blades that are written, counted among the invariant ones."""
        return tuple(j for j, blade in enumerate(self.invariant) if blade in self.writes)


@dataclass(frozen=True)
class Linear(Op):
    """y_o = sum_i sum_m w_oim W_m x_i, scalars mixed with the invariant blades: (x, s) -> (y, t).

    `precise` ones stay in float32 under autocast.
    """

    plan: LinearPlan
    precise: bool = False

    parameter_names = ("weight", "s_to_mv", "mv_to_s", "s_to_s", "bias_mv", "bias_s")

    def tables(self) -> dict[str, Tensor]:
        """The combinations of maps that take each blade to itself, then those of all other entries, with their blades.

        `sources` ends with the invariant blades that scalars read, so that one gather serves both.
        """
        plan = self.plan
        mixing = torch.tensor(plan.mixing, dtype=torch.float64).reshape(len(plan.mixing), -1)
        others = [e for e in plan.entries if e.target != e.source]
        combinations = torch.zeros(plan.blades + len(others), len(plan.mixing), dtype=torch.float64)
        for row, e in [*((e.target, e) for e in plan.entries if e.target == e.source), *enumerate(others, plan.blades)]:
            combinations[row] += mixing[:, e.weight] * e.factor
        return {
            "sources": torch.tensor(
                [e.source for e in others] + [plan.invariant[j] for j in self._inner], dtype=torch.int64
            ),
            "targets": torch.tensor([e.target for e in others], dtype=torch.int64),
            "outer": torch.tensor([plan.invariant[j] for j in plan.outer], dtype=torch.int64),
            "combinations": combinations,
        }

    def run(self, values: Sequence[Tensor], parameters: Tensors, batch: Batch | None = None) -> tuple[Tensor, Tensor]:
        """One batched matrix product for blades that stay what they are, one for those that change; in autocast's type."""
        if self.precise and autocast_type(values[0]) is not None:
            with without_autocast(values[0]):
                return self._run(lengthened(*values), parameters)
        x, s, *given = shortened(*values, *parameters)
        return self._run((x, s), given)

    def _run(self, values: Sequence[Tensor], given: Sequence[Any]) -> tuple[Tensor, Tensor]:
        x, s = values
        weights, (sources, targets, outer, combinations) = LinearWeights(*given[:6]), given[6:]
        plan, tokens = self.plan, s.shape[:-1]
        c_out, c_in, _ = weights.mv.shape
        flat = x.flatten(1, -2)
        effective = (combinations @ weights.mv.flatten(0, 1).T).view(len(combinations), c_out, c_in).transpose(1, 2)
        own, others = effective.split((plan.blades, len(targets)))
        y, read = flat @ own, None
        if len(sources):
            moved, read = flat.index_select(0, sources).split((len(targets), len(self._inner)))
            if len(targets):
                y.index_add_(0, targets, moved @ others)
        if plan.outer:
            y.index_add_(0, outer, self._fed_by_scalars(s, weights))
        y = y.unflatten(1, tokens)
        t, unused = self._scalars(read, s, weights), self._unused(weights)
        return (y + 0 * sum(w.sum() for w in unused), t) if unused else (y, t)

    def _unused(self, weights: LinearWeights) -> list[Tensor]:
        """Parameters that a narrowed plan leaves out: their gradients are zeros, for which distributed training waits."""
        plan = self.plan
        out: list[Tensor | None] = []
        if not plan.outer:
            out += [weights.s_to_mv, weights.bias_mv]
        if not plan.scalars:
            out += [weights.s_to_s, weights.bias_s]
        if not plan.scalars or not plan.inner:
            out += [weights.mv_to_s]
        return [w for w in out if w is not None and w.numel()]

    @property
    def _inner(self) -> tuple[int, ...]:
        return self.plan.inner if self.plan.scalars else ()

    def _fed_by_scalars(self, s: Tensor, weights: LinearWeights) -> Float[Tensor, "j n c_out"]:
        """What scalars and biases add to the invariant blades that are written."""
        outer, bias = self.plan.outer, weights.bias_mv
        matrix = _some(weights.s_to_mv, outer).flatten(0, 1)
        fed = _affine(s.flatten(0, -2), matrix, None if bias is None else _some(bias, outer).flatten())
        return fed.unflatten(-1, (len(outer), weights.mv.shape[0])).movedim(1, 0)

    def _scalars(self, read: Tensor | None, s: Tensor, weights: LinearWeights) -> Float[Tensor, "*tokens s_out"]:
        """Scalars from scalars and from the invariant blades that are read, (j, n, c_in)."""
        if not self.plan.scalars:
            return s.new_zeros(*s.shape[:-1], len(weights.s_to_s))
        if read is None or not self._inner:
            return _affine(s, weights.s_to_s, weights.bias_s)
        rows = torch.cat([s.flatten(0, -2), read.movedim(0, 1).flatten(1)], -1)
        matrix = torch.cat([weights.s_to_s, _some(weights.mv_to_s, self._inner).movedim(0, 1).flatten(1)], -1)
        return _affine(rows, matrix, weights.bias_s).unflatten(0, s.shape[:-1])


def _affine(rows: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
    """As functional.linear; not as a matrix product where it is an outer one: inductor asks for the sizes of small ones."""
    return rows * matrix.T if bias is None and rows.shape[-1] == 1 else functional.linear(rows, matrix, bias)


def _some(weights: Tensor, which: tuple[int, ...]) -> Tensor:
    """Those of some invariant blades."""
    return weights if len(which) == len(weights) else torch.stack([weights[j] for j in which])


@lru_cache(maxsize=64)
def linear_plan(basis: LinearBasis, stored: StreamBasis) -> LinearPlan:
    """The plan for the maps of a basis, each of unit Frobenius norm on the algebra's blades, on stored multivectors."""
    algebra = basis.symmetry.algebra
    maps = basis.tensor / basis.tensor.flatten(1).norm(dim=1).clamp(min=1e-30)[:, None, None]
    invariant = invariant_blades(basis)
    mixing, entries = _effective(stored.of(maps).numpy())
    joint = [e for e in entries if e.target in invariant and e.source in invariant]
    others = _in_order(e for e in entries if e not in joint)
    every = tuple(range(algebra.dim))
    rows = tuple(tuple(row) for row in mixing.tolist())
    return LinearPlan(rows, algebra.dim, invariant, (*joint, *others), every, every)


@lru_cache(maxsize=256)
def narrowed(plan: LinearPlan, reads: tuple[int, ...], writes: tuple[int, ...], scalars: bool) -> LinearPlan:
    """The part of a plan that reads and writes these blades."""
    return replace(
        plan,
        entries=tuple(e for e in plan.entries if e.target in writes and e.source in reads),
        reads=reads,
        writes=writes,
        scalars=scalars,
    )


def invariant_blades(basis: LinearBasis) -> tuple[int, ...]:
    """The blades with a non-zero square that the group leaves alone: the scalar, and the pseudoscalar without mirrors."""
    out = []
    for matrix, (source, _) in zip(basis.tensor, basis.grades, strict=True):
        support = matrix[:, 0].nonzero().flatten().tolist()
        if source == 0 and len(support) == 1 and basis.symmetry.algebra.metric[support[0]] != 0:
            out.append(support[0])
    return tuple(sorted(out))


def _effective(maps: np.ndarray) -> tuple[np.ndarray, list[BladeMap]]:
    """The mixing matrix (m, e) and the entries."""
    classes: dict[tuple[float, ...], tuple[int, np.ndarray]] = {}
    entries = []
    for target, source in np.argwhere(np.any(np.abs(maps) > 10.0**-DIGITS, axis=0)).tolist():
        vector = maps[:, target, source]
        pivot = np.abs(vector).max()
        direction = np.round(vector / pivot, DIGITS)
        sign = float(np.sign(direction[np.flatnonzero(direction)[0]]))
        index, first = classes.setdefault(tuple((sign * direction).tolist()), (len(classes), sign * vector))
        factor = round(float(sign * pivot / np.abs(first).max()), DIGITS)
        entries.append(BladeMap(index, factor, target, source))
    mixing = np.array([vector for _, vector in classes.values()]).reshape(len(classes), len(maps)).T
    return mixing, entries


def _in_order(entries: Iterable[BladeMap]) -> tuple[BladeMap, ...]:
    """The diagonal first, then by weight and blade: the order in which sums are taken, on every backend."""
    return tuple(sorted(set(entries), key=lambda e: (e.target != e.source, *e)))
