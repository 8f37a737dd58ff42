"""StreamBasis: the blades in which networks store multivectors, the algebra's own or those of a null frame.

A conformal point o + x + |x|^2/2 inf has two coefficients near |x|^2/2 on e+ and e-, whose difference is 1: far from the
origin float32 loses it. On o and inf they are 1 and |x|^2/2.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from anygatr.algebra import Algebra

# axes: k blades of the stream, a blades of the algebra
DIGITS = 12  # coefficients closer than this are one number


class Pair(NamedTuple):
    """A term of the inner product: <x, y> = sum over pairs of sign * x[blade] * y[partner]."""

    blade: int
    partner: int
    sign: float


class ProductTerm(NamedTuple):
    """A term of a product: z[target] += sign * x[left] * y[right]."""

    target: int
    left: int
    right: int
    sign: int


@dataclass(frozen=True)
class StreamBasis:
    """Outer products of the rows of `vectors`, by grade, then lexicographically; None: of the algebra's generators.

    Grades occupy the same slices as in the algebra.
    """

    algebra: Algebra
    vectors: tuple[tuple[float, ...], ...] | None = None

    @classmethod
    def null(cls, algebra: Algebra, o: Float[Tensor, " k"], infinity: Float[Tensor, " k"]) -> "StreamBasis":
        """The algebra's generators but for the two that o and infinity span, which they replace in this order."""
        rows, vectors = np.eye(algebra.n), algebra.slices[1]
        support = torch.nonzero(infinity[vectors]).flatten().tolist()
        if len(support) != 2:
            raise ValueError(
                f"frame='null' needs an infinity made of two generators, not {algebra.format(infinity)}; use frame='algebra'"
            )
        rows[support[0]], rows[support[1]] = o[vectors].numpy(), infinity[vectors].numpy()
        return cls(algebra, tuple(map(tuple, rows.tolist())))

    @property
    def is_algebra(self) -> bool:
        """Whether it consists of the algebra's own blades."""
        return self.vectors is None

    @cached_property
    def leave(self) -> Float[Tensor, "a k"]:
        """Stored multivectors to the algebra's blades: x = leave @ stored."""
        algebra = self.algebra
        if self.vectors is None:
            return torch.eye(algebra.dim, dtype=torch.float64)
        rows = [algebra.vector(torch.tensor(row, dtype=torch.float64)) for row in self.vectors]
        columns = []
        for grade in range(algebra.n + 1):
            for subset in combinations(rows, grade):
                blade = algebra["1"]
                for vector in subset:
                    blade = algebra.outer(blade, vector)
                columns.append(blade)
        return torch.stack(columns, 1)

    @cached_property
    def enter(self) -> Float[Tensor, "k a"]:
        """The inverse of `leave`."""
        return _rounded(torch.linalg.inv(self.leave)) if self.vectors is not None else self.leave

    def of(self, matrix: Float[Tensor, "*batch a a"]) -> Float[Tensor, "*batch k k"]:
        """A linear map of the algebra, on stored multivectors."""
        return matrix if self.is_algebra else self.enter @ matrix @ self.leave

    @cached_property
    def metric(self) -> tuple[Pair, ...]:
        """The inner product, term by term: a blade with one of o and infinity meets its twin with the other."""
        if self.is_algebra:
            return tuple(Pair(b, b, sign) for b, sign in enumerate(self.algebra.metric.tolist()) if sign)
        form = _rounded(self.leave.T * self.algebra.metric @ self.leave)
        return tuple(Pair(b, c, float(form[b, c])) for b, c in form.nonzero().tolist())

    @property
    def weights(self) -> tuple[int, ...]:
        """The blades with o and without infinity, whose coefficients translations leave alone; none where there is no o."""
        if self.vectors is None:
            return ()
        spanned = [i for i, row in enumerate(self.vectors) if np.count_nonzero(row) > 1]
        return tuple(b for b, subset in enumerate(self.algebra.subsets) if set(spanned) & set(subset) == {spanned[0]})

    def terms(self, product: str) -> tuple[ProductTerm, ...]:
        """A product of the algebra, term by term, in the order of the targets."""
        return _terms(self, product)

    def inner(self, x: Float[Tensor, "*#batch k"], y: Float[Tensor, "*#batch k"]) -> Float[Tensor, "*batch"]:
        """The invariant inner product of stored multivectors."""
        blades, partners, signs = zip(*self.metric, strict=True)
        return (x[..., list(blades)] * y[..., list(partners)] * torch.tensor(signs).to(x)).sum(-1)


@lru_cache(maxsize=64)
def _terms(basis: StreamBasis, product: str) -> tuple[ProductTerm, ...]:
    left, sign = (t.numpy() for t in basis.algebra.table(product))
    target, right = np.nonzero(sign)
    value, left = sign[target, right], left[target, right]
    if not basis.is_algebra:
        target, left, right, value = _changed(basis, target, left, right, value)
    order = np.lexsort((left, right, target))
    whole = np.round(value).astype(int)
    if not np.array_equal(whole, value) or np.abs(whole).max(initial=0) > 1:
        raise ValueError(f"the {product} product has coefficients other than 1 and -1 in this frame; use frame='algebra'")
    columns = (target[order].tolist(), left[order].tolist(), right[order].tolist(), whole[order].tolist())
    return tuple(map(ProductTerm, *columns))


def _changed(
    basis: StreamBasis, target: np.ndarray, left: np.ndarray, right: np.ndarray, value: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The terms of a product on the algebra's blades as terms on stored ones: each blade is a sum of few of the others."""
    size = basis.algebra.dim
    there, back = basis.enter.numpy(), basis.leave.numpy()
    index = (target, left, right)
    for axis, matrix in enumerate((there, back.T, back.T)):  # rows: blades of the stream
        rows = [np.flatnonzero(matrix[:, a]) for a in range(size)]
        counts = np.array([len(r) for r in rows])[index[axis]]
        new = np.concatenate([rows[a] for a in index[axis]])
        spread = tuple(np.repeat(i, counts) for i in index)
        value = np.repeat(value, counts) * matrix[new, spread[axis]]
        first, second, third = (new if i == axis else spread[i] for i in range(3))
        index = first, second, third
    flat, inverse = np.unique(np.ravel_multi_index(index, (size,) * 3), return_inverse=True)
    summed = np.round(np.bincount(inverse, value, len(flat)), DIGITS)
    kept = summed != 0
    return (*np.unravel_index(flat[kept], (size,) * 3), summed[kept])


def _rounded(x: Tensor) -> Tensor:
    return torch.round(x, decimals=DIGITS) + 0.0
