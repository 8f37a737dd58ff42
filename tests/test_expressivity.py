"""Which maps can be built: the paper's conjecture, what is missing where it fails, and certificates that hold."""

import pytest
import torch

from anygatr import Algebra, Symmetry, euclidean, expressivity, linear_maps, multilinear_maps
from anygatr.equivariance.constructible import PRIMES, Constructible, Primitives
from anygatr.equivariance.solver import LinearBasis

CGA = Algebra(4, 1, 0, ("e1", "e2", "e3", "e+", "e-"))
PGA = Algebra(3, 0, 1)
EGA = Algebra(3)


def group(name: str, mirrors: bool) -> Symmetry:
    infinity = {"E": (EGA, None), "P": (PGA, -PGA["e0"]), "C": (CGA, CGA["e-"] - CGA["e+"])}
    return euclidean(*infinity[name], mirrors=mirrors)


# geometry, mirrors, products, linear maps, order -> constructible, all
VERDICTS = [
    ("E", True, ("geometric",), "all", 2, 20, 20),
    ("E", False, ("geometric",), "all", 2, 40, 40),
    ("C", True, ("geometric",), "all", 2, 280, 280),
    ("C", False, ("geometric",), "all", 2, 560, 560),
    ("P", True, ("geometric",), "all", 2, 54, 58),
    ("P", False, ("geometric",), "all", 2, 111, 117),
    ("P", False, ("geometric", "join"), "all", 2, 117, 117),
    ("P", False, ("geometric", "join"), "paper", 2, 113, 117),
]
DEEP = [
    ("E", True, ("geometric",), "all", 3, 112, 112),
    ("C", True, ("geometric",), "all", 3, 4704, 4704),
    ("P", True, ("geometric",), "all", 3, 371, 490),
    ("P", False, ("geometric", "join"), "all", 3, 1012, 1012),
    ("P", False, ("geometric", "join"), "paper", 3, 1007, 1012),
    ("E", True, ("geometric",), "all", 4, 672, 672),
    ("E", False, ("geometric",), "all", 4, 1344, 1344),
    ("C", True, ("geometric",), "all", 4, 88704, 88704),
    ("C", False, ("geometric",), "all", 4, 177408, 177408),
    ("P", True, ("geometric",), "all", 4, 2718, 4829),
    ("P", False, ("geometric", "join"), "all", 4, 9745, 9745),
]


def check(name, mirrors, products, linear, order, rank, total):
    found = expressivity(group(name, mirrors), order, products, linear)
    assert (found.rank, found.total, found.complete) == (rank, total, rank == total)
    assert sum(found.missing.values()) == total - rank


@pytest.mark.parametrize(("name", "mirrors", "products", "linear", "order", "rank", "total"), VERDICTS)
def test_conjecture_at_order_two(name, mirrors, products, linear, order, rank, total):
    check(name, mirrors, products, linear, order, rank, total)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mirrors", "products", "linear", "order", "rank", "total"), DEEP)
def test_conjecture_at_orders_three_and_four(name, mirrors, products, linear, order, rank, total):
    check(name, mirrors, products, linear, order, rank, total)


def test_missing_blocks_of_projective_space_are_those_known():
    assert expressivity(group("P", True)).missing == {(3, 4, 0): 1, (4, 3, 0): 1, (4, 4, 0): 1, (4, 4, 1): 1}


@pytest.mark.parametrize(("mirrors", "products", "linear"), [(True, ("geometric",), "all"), (False, ("geometric",), "all")])
def test_witness_is_equivariant_and_orthogonal_to_everything_constructible(mirrors, products, linear):
    symmetry = group("P", mirrors)
    found = expressivity(symmetry, 2, products, linear)
    alg = symmetry.algebra
    versors = alg.action(symmetry.sample(3, torch.Generator().manual_seed(0)))
    maps = linear_maps(symmetry).tensor
    generator = torch.Generator().manual_seed(1)
    for grades, count in found.missing.items():
        witness = found.witness(grades)
        assert len(witness) == count
        i, j, o = (alg.slices[g] for g in grades)
        for g in versors:
            moved = torch.einsum("noab,ax,by->noxy", witness, g[i, i], g[j, j])
            assert torch.allclose(torch.einsum("po,noxy->npxy", g[o, o], witness), moved, atol=1e-10)
        # an independent way to build maps: random linear maps around the product, in both orders of the inputs
        eye = torch.eye(alg.dim, dtype=torch.float64)
        product = alg.geometric(eye[:, None], eye[None]).permute(2, 0, 1)
        for _ in range(20):
            outer, left, right = (
                torch.einsum("m,mij->ij", torch.randn(len(maps), generator=generator, dtype=torch.float64), maps)
                for _ in range(3)
            )
            built = torch.einsum("pk,kij,ia,jb->pab", outer, product, left, right)
            for tensor in (built, built.transpose(1, 2)):
                overlap = torch.einsum("noab,oab->n", witness, tensor[o, i, j])
                assert float(overlap.abs().max()) < 1e-9 * float(tensor.norm())
        # and a functional that vanished on everything would prove nothing
        assert float(torch.einsum("noab,noab->n", witness, witness).min()) > 0.5


def test_floating_point_and_modular_ranks_agree():
    symmetry = group("P", True)
    maps = multilinear_maps(symmetry, 2)

    def totals(grades):
        found = maps if len(grades) == 2 else multilinear_maps(symmetry, len(grades))
        return {o: found.counts[(*grades, o)] for o in range(5)}

    for inputs in [(2, 3), (3, 4), (4, 4)]:
        modular = Constructible(Primitives(linear_maps(symmetry), ("geometric",), PRIMES[0]), inputs, totals).ranks()
        for o, rank in modular.items():
            real = Constructible(Primitives(linear_maps(symmetry), ("geometric",), None), inputs, totals)
            assert len(real.tensors(o)) == rank


def test_fewer_linear_maps_build_less():
    """Negative control: without multiplication by infinity the conformal algebra is no longer complete."""
    every = linear_maps(group("C", True))
    kept = [m for m, name in enumerate(every.names) if "inf" not in name]
    names, grades = tuple(every.names[m] for m in kept), tuple(every.grades[m] for m in kept)
    found = expressivity(group("C", True), 2, linear=LinearBasis(every.symmetry, every.tensor[kept], names, grades, 0.0))
    assert found.rank < found.total == 280


def test_products_that_break_the_symmetry_raise():
    with pytest.raises(ValueError, match=r"products contains 'join'.*mirrors"):
        expressivity(group("P", True), 2, ("geometric", "join"))
    with pytest.raises(ValueError, match="product='cross' is unknown"):
        expressivity(group("P", True), 2, ("cross",))
    with pytest.raises(ValueError, match="products is empty"):
        expressivity(group("P", True), 2, ())


def test_bad_linear_maps_raise():
    symmetry = group("P", True)
    every = linear_maps(symmetry)
    with pytest.raises(ValueError, match="linear='most' is unknown"):
        expressivity(symmetry, linear="most")
    with pytest.raises(ValueError, match="use one algebra"):
        expressivity(group("C", True), linear=every)
    with pytest.raises(ValueError, match=r"grade projection <x>_0"):
        expressivity(symmetry, linear=LinearBasis(symmetry, every.tensor[1:], every.names[1:], every.grades[1:], 0.0))
    with pytest.raises(ValueError, match="order=0"):
        expressivity(symmetry, 0)


def test_maps_that_are_not_equivariant_are_noticed():
    symmetry = group("P", True)
    every = linear_maps(symmetry)
    wrong = torch.zeros(1, 16, 16, dtype=torch.float64)
    wrong[0, PGA.index("e1"), PGA.index("e2")] = 1
    more = LinearBasis(symmetry, torch.cat([every.tensor, wrong]), (*every.names, "wrong"), (*every.grades, (1, 1)), 0.0)
    with pytest.raises(ValueError, match="not equivariant"):
        expressivity(symmetry, 2, linear=more)
