"""Invariant tensors of a group in V_k1 x ... x V_kl, where V_k is the space of k-vectors: the engine under the solver.

A versor acts on k-vectors as the k-th exterior power of its action on vectors, so everything here is about n x n matrices
and minors of them. The group is split as a core so(W), for the largest set W of mutually orthogonal frame vectors whose
bivectors all belong to it, and the rest N of the frame. A k-vector is then a sum of channels: j vectors of W and a subset S
of N, and an so(W)-invariant tensor is a choice of channel per slot times an isotropic tensor of so(W). Only on those few
tensors are the remaining generators (one translation, for the Euclidean groups) imposed, one connected component of the
equations at a time.

# axes: slots of a tensor are numbered s; c channels, one per slot; columns are unknowns, rows are equations
"""

from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations, product
from math import comb
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from anygatr.equivariance.linalg import Array, echelon, null_space
from anygatr.equivariance.symmetry import Symmetry

Channel = tuple[int, tuple[int, ...]]  # number of vectors of W, subset of N
Grades = tuple[int, ...]

DENSE_LIMIT = 4 * 2**30  # bytes of one explicit set of tensors


class Group(NamedTuple):
    """The so(W)-invariant tensors with one choice of channels: `first` is the position of their first unknown."""

    channels: tuple[Channel, ...]
    kind: int  # 0 even, 1 odd under reflections in W; -1 both
    first: int


class Component(NamedTuple):
    """A connected set of groups and the solutions in their unknowns, as columns."""

    groups: list[Group]
    solutions: Array


@dataclass
class InvariantTensors:
    """All invariant tensors of one symmetry, solved once per sorted tuple of grades and parity."""

    symmetry: Symmetry
    residual: float = 0.0
    _solved: dict[tuple[Grades, int], list[Component]] = field(default_factory=dict)
    _isotropic: dict[tuple[Grades, int], Array] = field(default_factory=dict)
    _blocks: dict[tuple[int, int], dict[Channel, list[tuple[Channel, Array]]]] = field(default_factory=dict)
    _contracted: dict[tuple, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        frame, alg = self.symmetry.frame, self.symmetry.algebra
        to_frame = np.linalg.inv(frame.vectors).T
        vectors = slice(1, 1 + alg.n)

        def in_frame(matrix: Tensor) -> Array:
            out = to_frame @ matrix.numpy()[vectors, vectors] @ frame.vectors.T
            # exact zeros: rounding errors would tie unrelated components of the equations together
            return np.where(np.abs(out) <= 1e-12 * np.abs(out).max(initial=0.0), 0.0, out)

        # unit size: rank decisions compare the generators with each other
        generators = [
            x / np.abs(x).max() for x in (in_frame(alg.commutator(b)) for b in self.symmetry.generators) if x.any()
        ]
        mirrors = [in_frame(alg.action(m)) for m in self.symmetry.mirrors]
        self.core = _core(frame.metric, generators)
        self.rest = tuple(i for i in range(alg.n) if i not in self.core)
        self.squares = tuple(float(np.sign(frame.metric[i, i])) for i in self.core)
        self.extra = _beyond_core(generators, [_plane(frame.metric, i, j) for i, j in combinations(self.core, 2)])
        axes = [np.diag([-1.0 if i == w else 1.0 for i in range(alg.n)]) for w in self.core]
        # a tensor splits into an even and an odd part only if reflections in the core normalise the group
        self.splits = bool(axes) and all(_in_span(axes[0] @ x @ axes[0], generators) for x in generators)
        reflections = [m for m in mirrors if self.splits and any(np.allclose(m, a) for a in axes)]
        self.parity_known = bool(reflections)
        self.other_mirrors = [m for m in mirrors if not any(m is known for known in reflections)]

    def count(self, grades: Grades, parity: int) -> int:
        """The number of independent invariant tensors with those grades; under mirrors, of that parity."""
        return _total(self.solve(grades, parity))

    def solve(self, grades: Grades, parity: int) -> list[Component]:
        """Solutions for sorted grades: t with g t = det(g)^parity t for every g of the group."""
        key = (grades, parity if len(self.symmetry.mirrors) else 0)
        if key not in self._solved:
            kinds = [parity] if self.parity_known else [0, 1] if self.splits else [-1]
            components = [c for kind in kinds for c in self._impose_generators(grades, kind)]
            for mirror in self.other_mirrors:
                components = self._impose_mirror(grades, components, mirror, np.linalg.det(mirror) ** parity)
            self._solved[key] = [c for c in components if c.solutions.shape[1]]
        return self._solved[key]

    def expand(self, grades: Grades, components: list[Component]) -> Array:
        """The solutions as tensors (solution, blades of slot 1, ..., blades of slot l) in the frame's exterior powers."""
        shape = tuple(len(self.blades(k)) for k in grades)
        total = _total(components)
        size = 8.0 * total * float(np.prod(shape))
        if size > DENSE_LIMIT:
            raise ValueError(
                f"grades={grades}: {total} tensors of shape {shape} need {size / 2**30:.1f} GiB; ask for counts only"
            )
        out = np.zeros((total, *shape))
        ranges = [self._ranges(k) for k in grades]
        start = 0
        for groups, solutions in components:
            stop = start + solutions.shape[1]
            for channels, kind, first in groups:
                tensors = self._isotropic_tensors(_vectors(channels), kind)
                window = tuple(r[c] for r, c in zip(ranges, channels, strict=True))
                out[(slice(start, stop), *window)] += np.tensordot(solutions[first : first + len(tensors)].T, tensors, 1)
            start = stop
        return out

    def blades(self, k: int) -> list[tuple[int, ...]]:
        """The frame vectors behind each blade of a slot of grade k, channel by channel."""
        return [(*a, *s) for j, s in self._channels(k) for a in combinations(self.core, j)]

    def _channels(self, k: int) -> list[Channel]:
        return [(j, s) for j in range(min(len(self.core), k) + 1) for s in combinations(self.rest, k - j)]

    def _ranges(self, k: int) -> dict[Channel, slice]:
        out, start = {}, 0
        for j, s in self._channels(k):
            out[j, s] = slice(start, start + comb(len(self.core), j))
            start = out[j, s].stop
        return out

    def _impose_generators(self, grades: Grades, kind: int) -> list[Component]:
        """The so(W)-invariant tensors annihilated by the generators beyond the core."""
        groups = [g for g in product(*(self._channels(k) for k in grades)) if self._size(g, kind)]
        equations: dict[tuple[int, tuple[Channel, ...]], dict[int, list[tuple[int, Array]]]] = {}
        for number, channels in enumerate(groups):
            for x in range(len(self.extra)):
                for s, k in enumerate(grades):
                    for target, matrix in self._slot_blocks(x, k)[channels[s]]:
                        moved = (*channels[:s], target, *channels[s + 1 :])
                        equations.setdefault((x, moved), {}).setdefault(number, []).append((s, matrix))
        return [self._solve_component(groups, kind, *part) for part in _components(len(groups), list(equations.values()))]

    def _solve_component(
        self,
        groups: list[tuple[Channel, ...]],
        kind: int,
        members: list[int],
        equations: list[dict[int, list[tuple[int, Array]]]],
    ) -> Component:
        stops = np.cumsum([self._size(groups[m], kind) for m in members])
        unknowns = {m: np.arange(stop - self._size(groups[m], kind), stop) for m, stop in zip(members, stops, strict=True)}
        gram = np.zeros((stops[-1], stops[-1]))
        for equation in equations:
            rows = np.concatenate(
                [sum(self._contract(_vectors(groups[g]), kind, s, m) for s, m in terms) for g, terms in equation.items()]
            )
            columns = np.concatenate([unknowns[g] for g in equation])
            gram[columns[:, None], columns] += rows @ rows.T
        solutions = null_space(gram, scale=1.0)
        if solutions.shape[1]:
            self.residual = max(self.residual, float(np.abs(gram @ solutions).max()))
        return Component([Group(groups[m], kind, int(unknowns[m][0])) for m in members], solutions)

    def _size(self, channels: tuple[Channel, ...], kind: int) -> int:
        return len(self._isotropic_tensors(_vectors(channels), kind))

    def _contract(self, js: Grades, kind: int, slot: int, matrix: Array) -> Array:
        """The isotropic tensors with one slot multiplied by a matrix, flattened: (tensors, equations)."""
        key = (js, kind, slot, matrix.tobytes(), matrix.shape)
        if key not in self._contracted:
            tensors = self._isotropic_tensors(js, kind)
            moved = np.moveaxis(np.tensordot(tensors, matrix, ([slot + 1], [1])), -1, slot + 1)
            self._contracted[key] = moved.reshape(len(tensors), -1)
        return self._contracted[key]

    def _slot_blocks(self, x: int, k: int) -> dict[Channel, list[tuple[Channel, Array]]]:
        """The action of extra generator x on k-vectors, as its non-zero blocks from channel to channel."""
        if (x, k) not in self._blocks:
            action = _derivation(self.extra[x], self.blades(k))
            ranges = self._ranges(k)
            self._blocks[x, k] = {
                source: [(target, action[rows, cols]) for target, rows in ranges.items() if action[rows, cols].any()]
                for source, cols in ranges.items()
            }
        return self._blocks[x, k]

    def _isotropic_tensors(self, js: Grades, kind: int) -> Array:
        """Invariants (tensor, blades...) of so(W) in products of exterior powers of W; kind -1 takes both parities."""
        if kind < 0:
            return np.concatenate([self._isotropic_tensors(js, 0), self._isotropic_tensors(js, 1)])
        order = sorted(range(len(js)), key=js.__getitem__)
        key = (tuple(js[i] for i in order), kind)
        if key not in self._isotropic:
            self._isotropic[key] = _isotropic(key[0], kind, self.squares)
        return np.transpose(self._isotropic[key], (0, *(1 + np.argsort(order))))

    def _impose_mirror(self, grades: Grades, components: list[Component], mirror: Array, sign: float) -> list[Component]:
        """Keep the solutions with M t = sign * t, for a mirror that is not a reflection in an axis of the core."""
        tensors = self.expand(grades, components)
        moved = tensors
        for s, k in enumerate(grades):
            moved = np.moveaxis(
                np.tensordot(moved, minors(mirror, self.blades(k), self.blades(k)), ([s + 1], [1])), -1, s + 1
            )
        defect = (moved - sign * tensors).reshape(len(tensors), int(np.prod(tensors.shape[1:])))
        kept = null_space(defect @ defect.T, scale=1.0)
        joined, parts, unknown, start = [], [np.zeros((0, kept.shape[1]))], 0, 0
        for groups, solutions in components:
            stop = start + solutions.shape[1]
            joined += [Group(g.channels, g.kind, g.first + unknown) for g in groups]
            parts.append(solutions @ kept[start:stop])
            unknown, start = unknown + len(solutions), stop
        return [Component(joined, np.concatenate(parts))]


@lru_cache(maxsize=64)
def invariant_tensors(symmetry: Symmetry) -> InvariantTensors:
    """The engine of a symmetry, kept in memory with everything it has solved."""
    return InvariantTensors(symmetry)


def minors(matrix: Array, rows: list[tuple[int, ...]], columns: list[tuple[int, ...]]) -> Array:
    """The exterior power of a matrix: its minors for the given ordered subsets of rows and columns."""
    if not rows or not rows[0]:
        return np.ones((len(rows), len(columns)))
    r, c = np.array(rows), np.array(columns)
    return np.linalg.det(matrix[r[:, None, :, None], c[None, :, None, :]])


def _vectors(channels: tuple[Channel, ...]) -> Grades:
    return tuple(j for j, _ in channels)


def _total(components: list[Component]) -> int:
    return sum(c.solutions.shape[1] for c in components)


def _plane(metric: Array, i: int, j: int) -> Array:
    """The infinitesimal rotation v -> e_i <e_j, v> - e_j <e_i, v>."""
    out = np.zeros_like(metric)
    out[i], out[j] = metric[j], -metric[i]
    return out


def _in_span(x: Array, matrices: list[Array]) -> bool:
    if not matrices:
        return not x.any()
    basis = np.stack([m.ravel() for m in matrices], axis=1)
    return bool(np.abs(basis @ np.linalg.lstsq(basis, x.ravel(), rcond=None)[0] - x.ravel()).max() < 1e-9)


def _core(metric: Array, generators: list[Array]) -> tuple[int, ...]:
    """The largest set of orthogonal, non-null frame vectors whose rotations all belong to the group."""
    axes = [i for i in range(len(metric)) if metric[i, i] and np.count_nonzero(metric[i]) == 1]
    allowed = {(i, j) for i, j in combinations(axes, 2) if _in_span(_plane(metric, i, j), generators)}
    for size in range(len(axes), 0, -1):
        for subset in combinations(axes, size):
            if all(pair in allowed for pair in combinations(subset, 2)):
                return subset
    return ()


def _beyond_core(generators: list[Array], core: list[Array]) -> list[Array]:
    """A short list of generators that, together with the core, generates the whole Lie algebra by brackets."""
    closed, extra = _closure(core), []
    for x in generators:
        if not _in_span(x, closed):
            extra.append(x)
            closed = _closure([*closed, x])
    return extra


def _closure(matrices: list[Array]) -> list[Array]:
    """A basis of the Lie algebra generated by the matrices."""
    basis: list[Array] = []
    queue = list(matrices)
    while queue:
        x = queue.pop()
        if not _in_span(x, basis):
            x = x / np.abs(x).max()
            queue += [x @ y - y @ x for y in basis]
            basis.append(x)
    return basis


def _derivation(x: Array, blades: list[tuple[int, ...]]) -> Array:
    """The matrix of v1 ^ v2 ^ ... -> (x v1) ^ v2 ^ ... + v1 ^ (x v2) ^ ... + ... on ordered blades."""
    where = {frozenset(blade): row for row, blade in enumerate(blades)}
    out = np.zeros((len(blades), len(blades)))
    for column, blade in enumerate(blades):
        for place, old in enumerate(blade):
            for new in np.flatnonzero(x[:, old]):
                moved = (*blade[:place], int(new), *blade[place + 1 :])
                if len(set(moved)) == len(moved):
                    row = where[frozenset(moved)]
                    out[row, column] += x[new, old] * _permutation_sign(moved, blades[row])
    return out


def _permutation_sign(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    order = [b.index(i) for i in a]
    return -1 if sum(x > y for x, y in combinations(order, 2)) % 2 else 1


def _components(count: int, equations: list[dict[int, Any]]) -> list[tuple[list[int], list[dict[int, Any]]]]:
    """Split unknowns into connected components: (members, their equations), linked when an equation contains both."""
    parent = list(range(count))

    def find(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for equation in equations:
        first, *others = equation
        for other in others:
            parent[find(other)] = find(first)
    parts: dict[int, tuple[list[int], list[dict[int, Any]]]] = {}
    for i in range(count):
        parts.setdefault(find(i), ([], []))[0].append(i)
    for equation in equations:
        parts[find(next(iter(equation)))][1].append(equation)
    return list(parts.values())


def _isotropic(js: Grades, kind: int, squares: tuple[float, ...]) -> Array:
    """Invariants of so(W) in the product of the j-vectors of W, even (kind 0) or odd (1) under reflections.

    A half turn in the plane of two axes is in the group, so every axis occurs an even number of times in each component of
    an invariant tensor, or every axis an odd number of times.
    """
    d = len(squares)
    shape = tuple(comb(d, j) for j in js)
    if not d:
        return np.ones((1 - kind, *shape))
    blades = [np.array([sum(1 << i for i in a) for a in combinations(range(d), j)]) for j in js]
    unknowns = _balanced(blades, kind * (2**d - 1))
    if not len(unknowns):
        return np.zeros((0, *shape))
    gram = sum((_rotation_gram(i, blades, unknowns, squares) for i in range(d - 1)), np.zeros((len(unknowns),) * 2))
    basis = echelon(null_space(gram).T)
    out = np.zeros((len(basis), *shape))
    out[(slice(None), *unknowns.T)] = basis
    return out


def _balanced(blades: list[NDArray[np.int64]], target: int) -> NDArray[np.int64]:
    """All components (unknown, slot) whose axes cancel to `target`, an exclusive or of the blades' bit sets."""
    positions = np.zeros((1, 0), dtype=np.int64)
    bits = np.zeros(1, dtype=np.int64)
    for slot in blades:
        bits = (bits[:, None] ^ slot).ravel()
        grown = np.repeat(positions, len(slot), axis=0)
        positions = np.concatenate([grown, np.tile(np.arange(len(slot)), len(positions))[:, None]], axis=1)
    return positions[bits == target]


def _rotation_gram(
    i: int, blades: list[NDArray[np.int64]], unknowns: NDArray[np.int64], squares: tuple[float, ...]
) -> Array:
    """A^T A for the rotation in the plane of axes i and i + 1: neighbours, so that no reordering sign arises."""
    both = 3 << i
    shape = [len(slot) for slot in blades]
    rows, columns, values = [], [], []
    for s, slot in enumerate(blades):
        bits = slot[unknowns[:, s]]
        moved = np.flatnonzero(np.bitwise_count(bits & both) == 1)
        target = unknowns[moved].copy()
        target[:, s] = np.searchsorted(np.sort(slot), bits[moved] ^ both)
        target[:, s] = np.argsort(slot)[target[:, s]]
        rows.append(np.ravel_multi_index(tuple(target.T), shape))
        columns.append(moved)
        values.append(np.where((bits[moved] >> i) & 1, -squares[i], squares[i + 1]))
    names, row = np.unique(np.concatenate(rows), return_inverse=True)
    a = np.zeros((len(names), len(unknowns)))
    np.add.at(a, (row, np.concatenate(columns)), np.concatenate(values))
    return a.T @ a
