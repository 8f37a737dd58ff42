"""Groups: their action on embedded points is the matrix acting on R^d, and maps tell which group they belong to."""

import math
import pickle

import pytest
import torch
from groups import DIMENSIONS, SPACES, algebra, group, infinity, motion, origin, point, vector

from anygatr import Algebra, Symmetry, euclidean, linear_maps, multilinear_maps, pin, spin, symmetry_of

E, P, C = (algebra(space, 3) for space in SPACES)
everywhere = pytest.mark.parametrize(("space", "d"), [(s, d) for s in SPACES for d in DIMENSIONS])


def same_lie_algebra(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two sets of bivectors span the same space."""
    rank = torch.linalg.matrix_rank
    return len(a) == len(b) and int(rank(a)) == int(rank(b)) == int(rank(torch.cat([a, b])))


@everywhere
@pytest.mark.parametrize("reflections", [0, 1, 2, 3])
def test_versor_acts_on_embedded_points_as_the_matrix_on_coordinates(space, d, reflections, rng):
    g, x = motion(d, reflections, rng), torch.randn(7, d, generator=rng, dtype=torch.float64)
    moved = x @ g.matrix.T + (0 if space == "E" else g.translation)
    sign = -1 if space == "P" and g.odd else 1  # points of P turn round under mirrors
    acted = group(space, d).act(g.versor(space), point(space, x))
    assert torch.allclose(acted, sign * point(space, moved), atol=1e-10)
    if g.odd or (d > 1 and reflections):
        assert not torch.allclose(acted, point(space, x), atol=1e-2)


@pytest.mark.parametrize("space", ["P", "C"])
@pytest.mark.parametrize("d", DIMENSIONS)
def test_generators_translate_by_exactly_their_vector(space, d):
    """The generator infinity ^ e_i moves by +e_i: exp(infinity t / 2) = 1 + infinity t / 2."""
    sym, x = group(space, d, mirrors=False), torch.full((d,), 0.3, dtype=torch.float64)
    for i, t in enumerate(torch.eye(d, dtype=torch.float64)):
        generator = sym.generators[len(sym.generators) - d + i]
        u = sym.algebra.exp(2.5 * generator / 2)
        by_hand = sym.algebra["1"] + sym.algebra.geometric(infinity(space, d), vector(space, 2.5 * t)) / 2
        assert torch.allclose(u, by_hand, atol=1e-12)
        assert torch.allclose(sym.act(u, point(space, x)), point(space, x + 2.5 * t), atol=1e-12)


def test_projective_translator_is_one_minus_e0_t():
    u = P["1"] - P["e01"] / 2
    x = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    assert torch.allclose(P.sandwich(u, point("P", x)), point("P", x + torch.tensor([1.0, 0, 0])), atol=1e-12)
    assert torch.allclose(P.sandwich(P["1"] + P["e01"] / 2, point("P", x)), point("P", x - torch.tensor([1.0, 0, 0])))


def test_distance_of_conformal_points(rng):
    x, y = torch.randn(2, 5, 3, generator=rng, dtype=torch.float64)
    assert torch.allclose(C.inner(point("C", x), point("C", y)), -(x - y).square().sum(-1) / 2, atol=1e-12)


@everywhere
@pytest.mark.parametrize("mirrors", [True, False])
def test_samples_move_points_rigidly(space, d, mirrors, rng):
    """Every sampled element maps points to points (up to the sign of P) and keeps their distances."""
    sym, x = group(space, d, mirrors), torch.randn(4, d, generator=rng, dtype=torch.float64)
    u = sym.sample(20, rng)
    moved = sym.act(u[:, None], point(space, x))
    if space == "P":  # the weight of a point is the coefficient of its Euclidean pseudoscalar
        weight = moved[..., sym.algebra.index("e123"[: d + 1])]
        assert torch.allclose(weight.abs(), torch.ones_like(weight), atol=1e-10)
    gap = sym.algebra.inner(moved[:, :1], moved) - sym.algebra.inner(point(space, x[:1]), point(space, x))
    assert gap.abs().max() < 1e-8
    odd = (u * (sym.algebra.grades % 2)).abs().amax(-1) > 1e-9
    assert bool(odd.any()) == mirrors
    assert not bool(odd.all())


@everywhere
def test_samples_span_the_whole_group(space, d, rng):
    """No element outside the solved commutant: samples fix exactly infinity among the vectors, up to scale."""
    sym = group(space, d)
    actions = sym.algebra.action(sym.sample(12, rng))[:, 1 : 1 + sym.algebra.n, 1 : 1 + sym.algebra.n]
    defects = (actions - torch.eye(sym.algebra.n)).flatten(0, 1)
    assert sym.algebra.n - int(torch.linalg.matrix_rank(defects, atol=1e-8)) == (0 if space == "E" else 1)
    assert (
        actions @ infinity(space, d)[1 : 1 + sym.algebra.n] - infinity(space, d)[1 : 1 + sym.algebra.n]
    ).abs().max() < 1e-9


@everywhere
def test_generators_are_named(space, d):
    names = group(space, d).names
    far = {"E": 0, "P": d, "C": d}[space]
    assert sum(n.startswith("rotation") for n in names) == d * (d - 1) // 2
    assert sum(n.startswith("translation") for n in names) == far
    assert names[-1] == "mirror e1"


def test_sampling_is_reproducible_and_scaled():
    sym = group("C", 3, mirrors=False)
    a, b = (sym.sample(3, torch.Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(a, b)
    near = sym.sample(3, torch.Generator().manual_seed(1), scale=1e-6)
    assert (near - C["1"]).abs().max() < 1e-5
    assert sym.sample(0).shape == (0, 32)


@pytest.mark.parametrize(
    ("sym", "product", "expected"),
    [
        (group("P", 3), "geometric", True),
        (group("P", 3), "outer", True),
        (group("P", 3), "join", False),
        (group("P", 3, mirrors=False), "join", True),
        (group("C", 3), "join", False),
        (group("C", 3, mirrors=False), "join", True),
        (pin(Algebra(1, 3)), "geometric", True),
        (pin(Algebra(1, 3)), "join", False),
        (spin(Algebra(1, 3)), "join", True),
    ],
)
def test_the_join_is_odd_under_mirrors(sym, product, expected):
    assert sym.is_equivariant(product) is expected


@everywhere
@pytest.mark.parametrize("mirrors", [True, False])
def test_symmetry_of_the_solved_maps_is_the_group(space, d, mirrors):
    sym = group(space, d, mirrors)
    found = symmetry_of(linear_maps(sym) if d > 1 else multilinear_maps(sym, 2), sym.algebra)
    assert same_lie_algebra(found.generators, sym.generators)
    assert bool(len(found.mirrors)) == mirrors
    kinds = {name.split()[0] for name in found.names}
    assert kinds <= {"rotation", "translation", "mirror"}


def test_symmetry_of_tells_origin_from_infinity():
    right = symmetry_of(linear_maps(group("C", 3)), C)
    wrong = symmetry_of(linear_maps(euclidean(C, origin(3))), C)
    assert sum(n.startswith("translation inf^") for n in right.names) == 3
    assert not any(n.startswith("transversion") for n in right.names)
    assert sum(n.startswith("transversion o^") for n in wrong.names) == 3
    assert not any(n.startswith("translation") for n in wrong.names)
    assert not same_lie_algebra(right.generators, wrong.generators)


@pytest.mark.parametrize("alg", [C, Algebra(1, 3), Algebra(3, 0, 1), Algebra(0, 3), Algebra(2, 2)], ids=str)
@pytest.mark.parametrize("make", [pin, spin], ids=lambda f: f.__name__)
def test_symmetry_of_pin_and_spin(alg, make):
    sym = make(alg)
    found = symmetry_of(linear_maps(sym), alg)
    assert same_lie_algebra(found.generators, sym.generators)
    assert bool(len(found.mirrors)) == (make is pin)


def test_symmetry_of_pin_finds_dilation_and_both_kinds_of_mirror():
    names = symmetry_of(linear_maps(pin(C)), C).names
    assert "dilation o^inf" in names
    assert {"mirror e1", "mirror e-"} <= set(names)
    assert any(n.startswith("boost") for n in symmetry_of(linear_maps(pin(Algebra(1, 3))), Algebra(1, 3)).names)


def test_symmetry_of_an_isolated_map():
    """<x>_1 weighted by axis commutes with no rotation between unequal axes."""
    weights = torch.diag(torch.tensor([1.0, 1, 1, 2, 1, 2, 2, 2], dtype=torch.float64))[None]
    found = symmetry_of(weights, E)
    assert found.names == ("rotation e12", "mirror e1")
    assert symmetry_of(torch.rand(1, 8, 8, generator=torch.Generator().manual_seed(0)), E).names == ()
    assert len(symmetry_of(torch.zeros(0, 8, 8), E).generators) == 3


OBLIQUE = C.vector(torch.tensor([1.0, 2.0, 2.0, 0.0, 3.0], dtype=torch.float64) / 3)


def test_infinity_in_any_null_direction():
    sym = euclidean(C, OBLIQUE)
    assert len(sym.generators) == 6
    moved = C.commutator(sym.generators) @ OBLIQUE
    assert moved.abs().max() < 1e-12
    assert torch.allclose(sym.act(sym.mirrors[0], OBLIQUE), OBLIQUE)
    found = symmetry_of(linear_maps(sym), C)
    assert same_lie_algebra(found.generators, sym.generators)
    assert len(found.mirrors) == 1
    assert not same_lie_algebra(sym.generators, group("C", 3).generators)


def test_names_of_combinations_carry_the_right_coefficients():
    """e3^e+ is e3^o - e3^inf/2, that is -o^e3 + inf^e3/2."""
    found = symmetry_of(linear_maps(Symmetry(C, [C["e12"] + C["e3+"]])), C)
    assert found.names == ("combination 1 e12 + -1 o^e3 + 0.5 inf^e3",)
    assert torch.allclose(found.generators[0], C["e12"] + C["e3+"])


def test_custom_groups_from_generators_and_mirrors():
    four = Algebra(4)
    double = Symmetry(four, [four["e12"] + four["e34"]])
    u = double.sample(1, torch.Generator().manual_seed(0))[0]
    assert torch.allclose(double.act(u, double.generators[0]), double.generators[0])
    oblique = Symmetry(E, mirrors=[(E["e1"] + E["e2"]) / math.sqrt(2)])
    assert torch.allclose(oblique.act(oblique.mirrors[0], E["e1"]), -E["e2"])
    found = symmetry_of(linear_maps(double), four)
    assert torch.allclose(found.generators, double.generators)


def test_symmetries_are_values():
    sym = group("C", 2)
    again = pickle.loads(pickle.dumps(sym))
    assert again == sym
    assert hash(again) == hash(sym)
    assert sym != group("C", 2, mirrors=False)
    assert Symmetry(P, [-P["e01"]]) == Symmetry(P, [P["e10"]])
    assert repr(pin(E)) == "Symmetry(Algebra(3, 0, 0): rotation e12, rotation e13, rotation e23, mirror e1)"
    assert "trivial" in repr(Symmetry(E))
