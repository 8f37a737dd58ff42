"""Which equivariant multilinear maps a set of products and linear maps can build, certified modulo primes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

import torch
from torch import Tensor

from anygatr.equivariance.constructible import PRIMES, Constructible, Primitives, Reached
from anygatr.equivariance.proposition import construct, linear_span
from anygatr.equivariance.solver import (
    Block,
    LinearBasis,
    MultilinearBasis,
    Progress,
    equivariance_defect,
    linear_maps,
    multilinear_maps,
)
from anygatr.equivariance.symmetry import Symmetry

__all__ = ["Expressivity", "construct", "expressivity", "linear_span"]


@dataclass(frozen=True, eq=False)
class Expressivity:
    """How many of all equivariant maps of an order can be built, and which blocks are not filled.

    `complete` is proven: the rank modulo a prime never exceeds the true rank, and the solver's count bounds it from above.
    `missing` is proven too: there every product of a basis of the lower orders was formed, modulo two primes.
    """

    symmetry: Symmetry
    order: int
    products: tuple[str, ...]
    linear: LinearBasis
    ranks: dict[Block, int]
    maps: MultilinearBasis
    primes: tuple[int, ...]

    @property
    def rank(self) -> int:
        """The number of independent maps that can be built."""
        return sum(self.ranks.values())

    @property
    def total(self) -> int:
        """The number of independent equivariant maps."""
        return len(self.maps)

    @property
    def complete(self) -> bool:
        """Whether every equivariant map can be built."""
        return self.rank == self.total

    @property
    def missing(self) -> dict[Block, int]:
        """For each block (input grades, output grade) that is not filled, how many maps it lacks."""
        return {g: n - self.ranks[g] for g, n in self.maps.counts.items() if n > self.ranks[g]}

    def witness(self, grades: Block) -> Tensor:
        """Equivariant maps (n, dim_o, dim_i, ...) of one block that are orthogonal to every constructible one.

        The contraction with such a map is a functional that vanishes on everything constructible, but not on itself.
        """
        if grades not in self.missing:
            raise ValueError(f"grades={grades!r} lacks nothing; blocks with missing maps: {sorted(self.missing)[:8]}")
        solved = self.maps.block(grades).flatten(1)
        primitives = Primitives(self.linear, self.products, None)
        built = Constructible(primitives, grades[:-1], _totals(self.symmetry)).tensors(grades[-1])
        if len(built) != self.ranks[grades]:
            raise ArithmeticError(f"rank {len(built)} in floating point, {self.ranks[grades]} modulo {self.primes}")
        orthonormal = torch.linalg.qr(solved.T).Q.T
        coordinates = built.flatten(1) @ orthonormal.T
        free = torch.linalg.svd(coordinates, full_matrices=True).Vh[self.ranks[grades] :]
        return (free @ orthonormal).reshape(len(free), *self.maps.block(grades).shape[1:])

    def __str__(self) -> str:
        verdict = "complete" if self.complete else "incomplete"
        text = (
            f"{verdict}: {self.rank} of {self.total} equivariant maps of order {self.order} of {self.symmetry.algebra} "
            f"from {' and '.join(self.products)} with {len(self.linear)} linear maps "
            f"(ranks modulo {' and '.join(map(str, self.primes))})"
        )
        lines = [f"  missing {n} in {_arrow(g)}" for g, n in sorted(self.missing.items())]
        return "\n".join([text, *lines[:12], *(["  ..."] if len(lines) > 12 else [])])


def expressivity(
    symmetry: Symmetry,
    order: int = 2,
    products: Sequence[str] = ("geometric",),
    linear: str | LinearBasis = "all",
    progress: Progress | None = None,
) -> Expressivity:
    """The rank of all maps of `order` inputs made of the products and equivariant linear maps, against all that exist.

    `linear`: "all" solved maps; "paper", those the paper lists (projections and products with invariants); or a basis.
    """
    basis = _chosen(symmetry, linear)
    for name in products:
        if not symmetry.is_equivariant(name):
            raise ValueError(
                f"products contains {name!r}, which is not equivariant under {symmetry}; drop the mirrors "
                f"(the join changes sign under them) or the product"
            )
    if not products:
        raise ValueError("products is empty; give at least one of 'geometric', 'outer', 'join'")
    maps, totals = multilinear_maps(symmetry, order), _totals(symmetry)
    primitives = Primitives(basis, tuple(products), PRIMES[0])
    inputs = list(combinations_with_replacement(range(symmetry.algebra.n + 1), order))
    reached: dict[tuple[int, ...], Reached] = {}
    primes: set[int] = {PRIMES[0]}
    for done, grades in enumerate(inputs, 1):
        found = Constructible(primitives, grades, totals).ranks()
        if found != totals(grades):
            again = Constructible(Primitives(basis, tuple(products), PRIMES[1]), grades, totals).ranks()
            primes.add(PRIMES[1])
            if found != again:
                raise ArithmeticError(
                    f"ranks of inputs {grades} differ modulo {PRIMES[0]} and {PRIMES[1]}: {found}, {again}"
                )
        reached[grades] = found
        if progress:
            progress(done, len(inputs))
    ranks = {g: reached[tuple(sorted(g[:-1]))][g[-1]] for g in maps.counts}
    return Expressivity(symmetry, order, tuple(products), basis, ranks, maps, tuple(sorted(primes)))


def _totals(symmetry: Symmetry) -> Callable[[tuple[int, ...]], Reached]:
    """The number of equivariant maps from inputs of given grades into each grade."""
    orders: dict[int, MultilinearBasis] = {}

    def totals(grades: tuple[int, ...]) -> Reached:
        order = len(grades)
        if order not in orders:
            orders[order] = multilinear_maps(symmetry, order)
        return {o: orders[order].counts[(*grades, o)] for o in range(symmetry.algebra.n + 1)}

    return totals


def _chosen(symmetry: Symmetry, linear: str | LinearBasis) -> LinearBasis:
    if isinstance(linear, LinearBasis):
        if linear.symmetry.algebra != symmetry.algebra:
            raise ValueError(
                f"linear belongs to {linear.symmetry.algebra}, the symmetry to {symmetry.algebra}; use one algebra"
            )
        if equivariance_defect(symmetry, linear.tensor) > 1e-9:
            raise ValueError(f"linear contains maps that are not equivariant under {symmetry}; use maps solved for it")
        _require_projections(linear)
        return linear
    if linear == "all":
        return linear_maps(symmetry)
    if linear == "paper":
        return linear_maps(symmetry).paper
    raise ValueError(f"linear={linear!r} is unknown; use 'all', 'paper' or a basis from linear_maps")


def _arrow(grades: Block) -> str:
    return f"({', '.join(map(str, grades[:-1]))}) -> {grades[-1]}"


def _require_projections(linear: LinearBasis) -> None:
    """Grade by grade counting is right only when every grade projection is at hand."""
    alg = linear.symmetry.algebra
    rows = linear.tensor.flatten(1)
    for k in range(alg.n + 1):
        projection = torch.diag((alg.grades == k).double()).flatten()
        fit = torch.linalg.lstsq(rows.T, projection[:, None]).solution if len(rows) else torch.zeros(0, 1).double()
        if float((rows.T @ fit - projection[:, None]).abs().max()) > 1e-9:
            raise ValueError(f"linear does not contain the grade projection <x>_{k}; add it")
