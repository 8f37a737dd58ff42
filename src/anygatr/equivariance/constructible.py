"""The space of multilinear maps built from products and linear maps, evaluated at points, exactly modulo a prime.

A map with inputs A is L(P(a, b)): a linear map of a product of maps a and b with inputs B and A without B, for every ordered
split of A. Random elements of the smaller spaces give random elements of the larger one, and as many of those as its
dimension span it. When they fill all equivariant maps there is nothing left to check; otherwise every product of basis
elements is formed, so that the rank is that of the whole constructible space.

# axes: k blades, t trial maps, r basis maps, n points
"""

from collections.abc import Callable
from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anygatr.algebra import Algebra
from anygatr.equivariance.linalg import Array
from anygatr.equivariance.solver import LinearBasis

PRIMES = (2097143, 2097131)  # the largest below 2^21: 2^11 products of two residues sum exactly in float64
SPARE = 8  # trials and equations beyond the dimension: failing by chance has probability about 1 / prime each
MAX_BYTES = 2**26  # of the products formed at a time

Reached = dict[int, int]  # output grade -> number of maps
Span = dict[int, Array]  # output grade -> values (r, k of that grade, n) of a basis


class Arithmetic:
    """Float64 arrays that hold residues modulo a prime, or real numbers when there is none."""

    def __init__(self, prime: int | None):
        self.prime = prime
        self.random = np.random.default_rng(0)

    def draw(self, *shape: int) -> Array:
        """Uniform residues, or Gaussian numbers."""
        if self.prime is None:
            return self.random.standard_normal(shape)
        return self.random.integers(0, self.prime, shape).astype(np.float64)

    def reduce(self, x: Array) -> Array:
        """Residues from 0 to p, whichever way x / p rounds; exact as long as |x| < 2^53."""
        return x if self.prime is None else x - self.prime * np.floor(x / self.prime)

    def project(self, rows: Array, width: int) -> Array:
        """`width` random combinations of the columns: they keep every rank up to it, but for bad luck."""
        if rows.shape[1] <= width:
            return rows
        out = np.zeros((len(rows), width))
        for start in range(0, rows.shape[1], 1024):
            part = rows[:, start : start + 1024]
            out = self.reduce(out + part @ self.draw(part.shape[1], width))
        return out

    def independent(self, rows: Array) -> NDArray[np.int64]:
        """The indices of a maximal independent set of rows."""
        return _pivots_float(rows) if self.prime is None else _pivots_modular(rows, self.prime)


class Primitives:
    """What maps are built from: products of an algebra, and linear maps closed under composition."""

    def __init__(self, linear: LinearBasis, products: tuple[str, ...], prime: int | None):
        self.algebra: Algebra = linear.symmetry.algebra
        self.products = products
        self.arithmetic = Arithmetic(prime)
        self.linear = self._closed(_rational(linear.tensor.numpy(), prime))

    def multiply(self, name: str, a: Array, b: Array) -> Array:
        """The product of values (k, t, n), blade by blade."""
        index, sign = (t.numpy() for t in self.algebra.table(name))
        out = np.zeros_like(a)
        present_a, present_b = (np.any(x, axis=(1, 2)).tolist() for x in (a, b))
        for k, j in zip(*np.nonzero(sign), strict=True):
            i = index[k, j]
            if present_a[i] and present_b[j]:
                out[k] += sign[k, j] * (a[i] * b[j])
        return self.arithmetic.reduce(out)

    def images(self, values: Array) -> Span:
        """Every linear map of every value (k, t, n), by output grade."""
        images = self.arithmetic.reduce(np.tensordot(self.linear, values, 1)).transpose(0, 2, 1, 3)
        flat = images.reshape(-1, *images.shape[2:])
        return {o: flat[:, s] for o, s in enumerate(self.algebra.slices)}

    def random_images(self, values: Array) -> Span:
        """One random linear map of each value (k, t, n), by output grade."""
        weights = self.arithmetic.draw(values.shape[1], len(self.linear))
        mixed = self.arithmetic.reduce(np.tensordot(weights, self.linear, 1))
        images = self.arithmetic.reduce(mixed @ values.transpose(1, 0, 2))
        return {o: images[:, s] for o, s in enumerate(self.algebra.slices)}

    def _closed(self, linear: Array) -> Array:
        """A basis of the algebra of matrices that the linear maps generate by composition."""
        basis = linear
        while True:
            composed = np.tensordot(basis, basis, ([2], [1])).transpose(0, 2, 1, 3).reshape(-1, *basis.shape[1:])
            grown = np.concatenate([basis, self.arithmetic.reduce(composed)])
            rows = self.arithmetic.project(grown.reshape(len(grown), -1), 4 * len(basis) + SPARE)
            grown = grown[self.arithmetic.independent(rows)]
            if len(grown) <= len(basis):
                return basis
            basis = grown


class Constructible:
    """The maps that primitives build out of inputs of fixed grades, known by their values at points.

    `totals(grades)` says how many equivariant maps there are from inputs of these grades into each grade.
    """

    def __init__(self, primitives: Primitives, inputs: tuple[int, ...], totals: Callable[[tuple[int, ...]], Reached]):
        self.primitives = primitives
        self.arithmetic = primitives.arithmetic
        self.slices = primitives.algebra.slices
        self.inputs = inputs
        self.totals = totals
        self.points: list[Array] = []
        self._spans: dict[tuple[int, ...], Span] = {}

    def ranks(self) -> Reached:
        """How many independent maps into each grade can be built."""
        needed = max(-(-(total + SPARE) // self._size(o)) for o, total in self.totals(self.inputs).items())
        for i in self.inputs:
            x = np.zeros((self.primitives.algebra.dim, needed))
            x[self.slices[i]] = self.arithmetic.draw(self._size(i), needed)
            self.points.append(x)
        return {o: len(values) for o, values in self._span(tuple(range(len(self.inputs)))).items()}

    def tensors(self, out: int) -> Tensor:
        """A basis of the buildable maps into one grade, as tensors (r, dim_o, dim_i1, ...)."""
        sizes = [self._size(i) for i in self.inputs]
        # the points run over all tuples of basis blades, so that the values are the components
        grid = np.stack(np.meshgrid(*(np.arange(s) for s in sizes), indexing="ij")).reshape(len(sizes), -1)
        for place, i in zip(grid, self.inputs, strict=True):
            x = np.zeros((self.primitives.algebra.dim, grid.shape[1]))
            x[self.slices[i].start + place, np.arange(grid.shape[1])] = 1
            self.points.append(x)
        values = self._span(tuple(range(len(self.inputs))))[out]
        return torch.from_numpy(values.reshape(len(values), self._size(out), *sizes))

    def _size(self, grade: int) -> int:
        return self.slices[grade].stop - self.slices[grade].start

    def _span(self, members: tuple[int, ...]) -> Span:
        """A basis of the maps of some of the inputs."""
        if members not in self._spans:
            totals = self.totals(tuple(self.inputs[m] for m in members))
            if len(members) == 1:
                found = self._extended(self._empty(), self.primitives.images(self.points[members[0]][:, None]), totals)
            else:
                found = self._from_trials(members, totals)
                if any(len(found[o]) < total for o, total in totals.items()):
                    found = self._from_all_products(members, totals)
            self._spans[members] = found
        return self._spans[members]

    def _from_trials(self, members: tuple[int, ...], totals: Reached) -> Span:
        """Random maps, split by split, until they fill every grade or the splits are exhausted."""
        trials = max(totals.values()) + SPARE
        found = self._empty()
        for left, right in _splits(members):
            for name in self.primitives.products:
                a, b = self._random(self._span(left), trials), self._random(self._span(right), trials)
                new = self.primitives.random_images(self.primitives.multiply(name, a, b))
                found = self._extended(found, new, totals)
                if all(len(found[o]) == total for o, total in totals.items()):
                    return found
        return found

    def _from_all_products(self, members: tuple[int, ...], totals: Reached) -> Span:
        """Every linear map of every product of basis elements of every split."""
        found = self._empty()
        for left, right in _splits(members):
            a, b = self._stacked(self._span(left)), self._stacked(self._span(right))
            i, j = (grid.ravel() for grid in np.meshgrid(np.arange(a.shape[1]), np.arange(b.shape[1]), indexing="ij"))
            batch = max(1, MAX_BYTES // (8 * len(self.primitives.linear) * a.shape[0] * a.shape[2]))
            for name in self.primitives.products:
                for start in range(0, len(i), batch):
                    part = slice(start, start + batch)
                    values = self.primitives.multiply(name, a[:, i[part]], b[:, j[part]])
                    found = self._extended(found, self.primitives.images(values), totals)
        return found

    def _empty(self) -> Span:
        return {o: np.zeros((0, self._size(o), self.points[0].shape[1])) for o in range(len(self.slices))}

    def _extended(self, found: Span, new: Span, totals: Reached) -> Span:
        """A basis of both spans; once a grade holds all equivariant maps, nothing can be added to it."""
        out = {}
        for o, total in totals.items():
            if len(found[o]) == total:
                out[o] = found[o]
                continue
            values = np.concatenate([found[o], new[o]])
            rows = self.arithmetic.project(values.reshape(len(values), -1), total + SPARE)
            out[o] = values[self.arithmetic.independent(rows)]
            if len(out[o]) > total:
                raise ArithmeticError(
                    f"built {len(out[o])} maps {self.inputs} -> {o}, but only {total} are equivariant; "
                    "the linear maps or products are not"
                )
        return out

    def _random(self, span: Span, trials: int) -> Array:
        """Random elements (k, t, n) of a span."""
        out = np.zeros((self.slices[-1].stop, trials, self.points[0].shape[1]))
        for o, values in span.items():
            if len(values):
                weights = self.arithmetic.draw(trials, len(values))
                out[self.slices[o]] = self.arithmetic.reduce(weights @ values.transpose(1, 0, 2))
        return out

    def _stacked(self, span: Span) -> Array:
        """All basis elements (k, r, n) of a span, whatever their grade."""
        out, start = np.zeros((self.slices[-1].stop, sum(map(len, span.values())), self.points[0].shape[1])), 0
        for o, values in span.items():
            out[self.slices[o], start : start + len(values)] = values.transpose(1, 0, 2)
            start += len(values)
        return out


def _splits(members: tuple[int, ...]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """All ordered ways to share the inputs between the two factors of a product."""
    chosen = [left for size in range(1, len(members)) for left in combinations(members, size)]
    return [(left, tuple(i for i in members if i not in left)) for left in chosen]


def _rational(maps: Array, prime: int | None) -> Array:
    """Matrices with small rational entries as residues modulo the prime."""
    if prime is None:
        return maps
    for denominator in range(1, 65):
        scaled = np.round(maps * denominator)
        if np.abs(scaled - maps * denominator).max(initial=0) < 1e-7:
            inverse = pow(denominator, -1, prime)
            return (scaled.astype(np.int64) * inverse % prime).astype(np.float64)
    raise ValueError("linear has entries that are not small rational numbers; pass maps with rational entries")


def _pivots_modular(rows: Array, prime: int) -> NDArray[np.int64]:
    """The rows of an echelon form over the integers modulo a prime."""
    work = np.mod(rows, prime).astype(np.int64)
    chosen: list[int] = []
    active = np.arange(len(work))
    for column in range(work.shape[1]):
        if not len(active):
            break
        nonzero = active[work[active, column] != 0]
        if not len(nonzero):
            continue
        pivot = nonzero[0]
        chosen.append(int(pivot))
        row = work[pivot] * pow(int(work[pivot, column]), -1, prime) % prime
        others = nonzero[1:]
        work[others, column:] = (work[others, column:] - work[others, column, None] * row[column:]) % prime
        active = active[active != pivot]
    return np.array(sorted(chosen), dtype=np.int64)


def _pivots_float(rows: Array) -> NDArray[np.int64]:
    """Gram-Schmidt in order, keeping the rows that add to the span."""
    kept = np.zeros((0, rows.shape[1]))
    chosen = []
    for number, row in enumerate(rows):
        new = row - kept.T @ (kept @ row)
        new = new - kept.T @ (kept @ new)
        if np.linalg.norm(new) > 1e-8 * max(1.0, float(np.linalg.norm(row))):
            kept = np.concatenate([kept, new[None] / np.linalg.norm(new)])
            chosen.append(number)
    return np.array(chosen, dtype=np.int64)
