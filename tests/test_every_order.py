"""The argument for every order in docs/mathematics.md: counts by walks, spanning words, and where it must fail."""

from collections import Counter
from functools import cache, reduce
from itertools import permutations, product
from math import comb

import pytest
import torch
from groups import group, infinity
from oracles import spin_count

from anygatr import expressivity, multilinear_maps


def catalan(n: int) -> int:
    return comb(2 * n, n) // (n + 1)


@cache
def octant_walks(steps: int) -> Counter:
    """How many walks of unit steps stay in x >= y >= 0, by where they end: tensor powers of the spinors of Sp(4)."""
    ends = Counter({(0, 0): 1})
    for _ in range(steps):
        moved: Counter = Counter()
        for (x, y), count in ends.items():
            for a, b in ((x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)):
                if a >= b >= 0:
                    moved[a, b] += count
        ends = moved
    return ends


def predicted(space: str, order: int) -> int:
    """The number of SE(3)-equivariant maps: the centre's 2^(l+1), times the commutant of the group on l + 1 spinors."""
    m = order + 1
    return 2**m * (catalan(m) if space == "E" else sum(n for (x, y), n in octant_walks(2 * m).items() if x == y))


def test_walks_that_end_on_the_diagonal_are_products_of_catalan_numbers():
    for m in range(1, 32):
        assert sum(count for (x, y), count in octant_walks(2 * m).items() if x == y) == catalan(m) * catalan(m + 1)


@pytest.mark.parametrize(
    ("space", "order"),
    [
        *(("E", order) for order in range(1, 6)),
        *(("C", order) for order in (1, 2, 3)),
        *(pytest.param(space, order, marks=pytest.mark.slow) for space, order in (("E", 6), ("C", 4))),
    ],
)
def test_the_solver_counts_what_the_walks_predict(space, order):
    total = predicted(space, order)
    assert 2 * len(multilinear_maps(group(space, 3), order)) == total
    if order < 4:
        assert len(multilinear_maps(group(space, 3, mirrors=False), order)) == total


@pytest.mark.parametrize(("order", "wanted", "without"), [(1, 10, 3), (2, 70, 14)])
def test_words_with_infinity_span_all_maps_of_even_multivectors(order, wanted, without):
    """Monomials and traces in x, its reverse and N = I inf: what the two fundamental theorems leave to be built.

    Without N they are the maps of the whole spin group, of which there are as many as Sp(4) has invariants.
    """
    algebra = group("C", 3).algebra
    even = torch.cat([torch.arange(algebra.dim)[algebra.slices[k]] for k in (0, 2, 4)])
    pseudoscalar = torch.zeros(algebra.dim, dtype=torch.float64)
    pseudoscalar[-1] = 1
    one = torch.zeros_like(pseudoscalar)
    one[0] = 1
    null = algebra.geometric(pseudoscalar, infinity("C", 3))
    assert not algebra.geometric(null, null).any()
    units = torch.eye(algebra.dim, dtype=torch.float64)[even]
    for letters, count in (([one, null], wanted), ([one], without)):
        found = torch.stack([word.flatten() for word in words(algebra, units, letters, order)])
        assert int(torch.linalg.matrix_rank(found, rtol=1e-9)) == count


def words(algebra, units, letters, order):
    """Every product over a permutation of the inputs, cut into a monomial and traces; letters between them, reverses."""
    inputs = [units.reshape(*(-1 if i == k else 1 for i in range(order)), algebra.dim) for k in range(order)]
    for chosen in permutations(range(order)):
        for flips in product((False, True), repeat=order):
            x = [algebra.reverse(inputs[k]) if flip else inputs[k] for k, flip in zip(chosen, flips, strict=True)]
            for between in product(letters, repeat=order + 1):
                for cuts in product((False, True), repeat=order):
                    yield word(algebra, x, between, cuts)


def word(algebra, x, between, cuts):
    """a x1 b x2 c ..., where what stands before a cut is replaced by its trace."""
    value = between[0]
    for factor, letter, cut in zip(x, between[1:], cuts, strict=True):
        value = reduce(algebra.geometric, (value, factor, letter))
        if cut:
            scalar = torch.zeros_like(value)
            scalar[..., 0] = value[..., 0]
            value = scalar
    return value


@pytest.mark.slow
def test_everything_can_be_built_at_order_five():
    found = expressivity(group("E", 3), 5)
    assert found.complete
    assert 2 * found.total == predicted("E", 5)


@pytest.mark.slow
def test_in_eleven_dimensions_products_do_not_build_everything():
    """Three bracketings with an inner grade of 0, 2, ..., 10 are at most 18 maps of 5-vectors; there are 21."""
    assert spin_count(11, (5, 5, 5, 5)) == 21 > 3 * len(range(0, 11, 2))
