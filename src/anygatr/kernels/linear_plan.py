"""Which matrix products on which runs of blades make up the most general equivariant linear map."""

from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import combinations
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from anygatr.equivariance.solver import LinearBasis
from anygatr.equivariance.symmetry import Frame
from anygatr.kernels import graph
from anygatr.kernels.plans import remember
from anygatr.kernels.runs import Run, listed, runs, transposed, unwritten

# axes: k blades, m maps, e effective weights, j invariant blades
DIGITS = 9  # entries of a basis closer than this are one number


class Entry(NamedTuple):
    """target += factor * weight(source) between two invariant blades, counted among the invariant ones."""

    weight: int
    factor: float
    target: int
    source: int


class Weights(NamedTuple):
    """The parameters of a layer: maps of multivectors, and what connects invariant blades and scalars."""

    mv: Float[Tensor, "c_out c_in m"]
    s_to_mv: Float[Tensor, "j c_out s_in"]
    mv_to_s: Float[Tensor, "j s_out c_in"]
    s_to_s: Float[Tensor, "s_out s_in"]
    bias_mv: Float[Tensor, "j c_out"] | None = None
    bias_s: Float[Tensor, " s_out"] | None = None


@dataclass(frozen=True, eq=False)
class LinearPlan:
    """Which runs of blades each effective weight multiplies.

    Entries of the basis that are proportional for all maps share one effective weight: weight_e = sum_m mixing_me weight_m.
    What connects invariant blades with each other is kept apart, in `joint`: these mix with the scalars in one product.
    `enter` and `leave` change to the group's frame and back where the maps are sparser there (o and infinity for conformal
    space); both are empty where the algebra's own blades do. `table` is for exporters.
    Blades outside `reads` are taken for zero; those outside `writes`, and all scalars without `scalars`, are left zero.
    `whole` is the plan that a narrowed one is a part of.
    """

    mixing: Float[Tensor, "m e"]
    blades: int
    invariant: tuple[int, ...]
    joint: tuple[Entry, ...]
    products: tuple[Run, ...]
    table: graph.LinearTable
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    scalars: bool = True
    whole: "LinearPlan | None" = None
    enter: tuple[Run, ...] = ()
    leave: tuple[Run, ...] = ()
    key: str = field(init=False)

    def __post_init__(self) -> None:
        what = (self.reads, self.writes, self.scalars)
        content = (self.blades, self.invariant, self.joint, self.products, self.enter, self.leave, *what)
        object.__setattr__(self, "key", remember(self, ("linear", content)))

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds per pair of an input and an output channel."""
        return len(self.joint) + sum(run.length for run in self.products)

    @cached_property
    def inner(self) -> tuple[int, ...]:
        """The invariant blades that are read, counted among the invariant ones."""
        return tuple(j for j, blade in enumerate(self.invariant) if blade in self.reads)

    @cached_property
    def outer(self) -> tuple[int, ...]:
        """The invariant blades that are written, counted among the invariant ones."""
        return tuple(j for j, blade in enumerate(self.invariant) if blade in self.writes)

    @cached_property
    def unwritten(self) -> tuple[int, ...]:
        """The blades that nothing is mapped to."""
        return unwritten(self.products, self.blades, self.picked(self.outer))

    @cached_property
    def backwards(self) -> tuple[Run, ...]:
        """The runs of the transpose."""
        return transposed(self.products, self.picked(self.inner))

    @cached_property
    def unread(self) -> tuple[int, ...]:
        """The blades that nothing is made from."""
        return unwritten(self.backwards, self.blades, self.picked(self.inner))

    def picked(self, places: tuple[int, ...]) -> tuple[int, ...]:
        """Some of the invariant blades."""
        return tuple(self.invariant[j] for j in places)


@lru_cache(maxsize=64)
def linear_plan(basis: LinearBasis) -> LinearPlan:
    """The plan for the maps of a basis, each divided by its Frobenius norm."""
    algebra = basis.symmetry.algebra
    maps = basis.tensor.numpy() / basis.tensor.flatten(1).norm(dim=1).clamp(min=1e-30).numpy()[:, None, None]
    invariant = invariant_blades(basis)
    leave = _blades_of(basis.symmetry.frame)
    enter = np.linalg.inv(leave)
    framed = enter @ maps @ leave
    keeps = all(
        np.array_equal(leave[j], np.eye(algebra.dim)[j]) and np.array_equal(leave[:, j], leave[j]) for j in invariant
    )
    if keeps and _entries(framed) < _entries(maps):
        there, back = _linear_runs(enter), _linear_runs(leave)
        mixing, entries = _effective(framed)
    else:
        there, back = (), ()
        mixing, entries = _effective(maps)
    place = {blade: j for j, blade in enumerate(invariant)}
    joint = tuple(Entry(w, f, place[o], place[i]) for w, f, o, i in entries if o in place and i in place)
    products = runs([entry for entry in entries if not (entry[2] in place and entry[3] in place)], invariant)
    table = graph.linear_table(basis, invariant)
    every = tuple(range(algebra.dim))
    sizes = torch.from_numpy(mixing), algebra.dim, invariant
    return LinearPlan(*sizes, joint, products, table, every, every, enter=there, leave=back)


@lru_cache(maxsize=256)
def narrowed(plan: LinearPlan, reads: tuple[int, ...], writes: tuple[int, ...], scalars: bool) -> LinearPlan:
    """The part of a plan that reads and writes these blades, whole grades of them: changes of frame keep grades."""
    joint = tuple(e for e in plan.joint if plan.invariant[e.source] in reads and plan.invariant[e.target] in writes)
    entries = [e for e in listed(plan.products) if e[2] in writes and e[3] in reads]
    return replace(
        plan,
        joint=joint,
        products=runs(entries, [blade for blade in plan.invariant if blade in writes]),
        reads=reads,
        writes=writes,
        scalars=scalars,
        whole=plan,
        enter=runs(e for e in listed(plan.enter) if e[2] in reads),
        leave=runs(e for e in listed(plan.leave) if e[2] in writes),
    )


def invariant_blades(basis: LinearBasis) -> tuple[int, ...]:
    """The blades with a non-zero square that the group leaves alone: the scalar, and the pseudoscalar without mirrors."""
    out = []
    for matrix, (source, _) in zip(basis.tensor, basis.grades, strict=True):
        support = matrix[:, 0].nonzero().flatten().tolist()
        if source == 0 and len(support) == 1 and basis.symmetry.algebra.metric[support[0]] != 0:
            out.append(support[0])
    return tuple(sorted(out))


def _blades_of(frame: Frame) -> np.ndarray:
    """The frame's blades as columns: x = matrix @ (coefficients in the frame)."""
    algebra = frame.algebra
    columns = []
    for grade in range(algebra.n + 1):
        for subset in combinations(range(algebra.n), grade):
            blade = algebra["1"]
            for i in subset:
                blade = algebra.outer(blade, frame.multivector(i))
            columns.append(blade.numpy())
    return np.stack(columns, axis=1)


def _entries(maps: np.ndarray) -> int:
    """How many pairs of blades any of the maps connects."""
    return int(np.any(np.abs(maps) > 10.0**-DIGITS, axis=0).sum())


def _effective(maps: np.ndarray) -> tuple[np.ndarray, list[tuple[int, float, int, int]]]:
    """The mixing matrix (m, e) and the entries (weight, factor, target, source)."""
    classes: dict[tuple[float, ...], tuple[int, np.ndarray]] = {}
    entries = []
    for target, source in np.argwhere(np.any(np.abs(maps) > 10.0**-DIGITS, axis=0)).tolist():
        vector = maps[:, target, source]
        pivot = np.abs(vector).max()
        direction = np.round(vector / pivot, DIGITS)
        sign = float(np.sign(direction[np.flatnonzero(direction)[0]]))
        index, first = classes.setdefault(tuple((sign * direction).tolist()), (len(classes), sign * vector))
        factor = round(float(sign * pivot / np.abs(first).max()), DIGITS)
        entries.append((index, factor, target, source))
    mixing = np.array([vector for _, vector in classes.values()]).reshape(len(classes), len(maps)).T
    return mixing, entries


def _linear_runs(matrix: np.ndarray) -> tuple[Run, ...]:
    return runs((0, float(matrix[o, i]), int(o), int(i)) for o, i in np.argwhere(np.abs(matrix) > 10.0**-DIGITS))
