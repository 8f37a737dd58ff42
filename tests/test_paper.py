"""Where the paper needs a correction: one test per statement of docs/paper.md, each with what the paper says failing."""

import pytest
import torch

from anygatr import Algebra, euclidean, expressivity, linear_maps
from anygatr.equivariance.solver import equivariance_defect

PGA = Algebra(3, 0, 1)
CGA = Algebra(4, 1, 0, ("e1", "e2", "e3", "e+", "e-"))
INF, ORIGIN = CGA["e-"] - CGA["e+"], (CGA["e-"] + CGA["e+"]) / 2
AXES = ("e1", "e2", "e3")
X = torch.tensor([0.3, -1.2, 2.0], dtype=torch.float64)
Y = torch.tensor([1.1, 0.4, -0.7], dtype=torch.float64)
T = torch.tensor([2.0, -0.5, 0.25], dtype=torch.float64)
N = torch.tensor([2.0, -1.0, 2.0], dtype=torch.float64) / 3


def vector(alg, v):
    return sum(c * alg[axis] for c, axis in zip(v, AXES, strict=True))


def pga_point(x):
    return x[0] * PGA["e032"] + x[1] * PGA["e013"] + x[2] * PGA["e021"] + PGA["e123"]


def cga_point(x):
    return ORIGIN + vector(CGA, x) + x.dot(x) / 2 * INF


def test_projective_space_has_16_proper_maps_of_which_products_make_13():
    every = linear_maps(euclidean(PGA, -PGA["e0"], mirrors=False))
    assert (len(every), len(every.paper)) == (16, 13)
    joins = {name: grades for name, grades in zip(every.names, every.grades, strict=True) if name not in every.paper.names}
    assert joins == {"1 v <x>_4": (4, 0), "e0 v <x>_3": (3, 0), "e0 v <x>_4": (4, 1)}
    symmetry = every.symmetry
    assert expressivity(symmetry, 2, ("geometric", "join"), "all").complete
    assert not expressivity(symmetry, 2, ("geometric", "join"), "paper").complete


def test_conformal_planes_are_n_plus_delta_infinity():
    delta = N.dot(X)
    right, paper = vector(CGA, N) + delta * INF, vector(CGA, N) - delta * INF
    on_plane = cga_point(X)
    assert abs(CGA.inner(right, on_plane)) < 1e-14
    assert abs(CGA.inner(paper, on_plane)) > 0.1
    translate = CGA["1"] + CGA.geometric(INF, vector(CGA, T)) / 2
    assert torch.allclose(CGA.sandwich(translate, right), vector(CGA, N) + N.dot(X + T) * INF, atol=1e-14)
    assert not torch.allclose(CGA.sandwich(translate, paper), vector(CGA, N) - N.dot(X + T) * INF, atol=0.1)


def test_projective_planes_are_n_minus_delta_e0():
    plane = vector(PGA, N) - N.dot(X) * PGA["e0"]
    assert PGA.outer(plane, pga_point(X)).abs().max() < 1e-14  # the plane contains the point
    translate = PGA["1"] - PGA.geometric(PGA["e0"], vector(PGA, T)) / 2
    assert torch.allclose(PGA.sandwich(translate, plane), vector(PGA, N) - N.dot(X + T) * PGA["e0"], atol=1e-14)


@pytest.mark.parametrize(("sign", "preserves"), [(-1.0, True), (1.0, False)])
def test_projective_space_embeds_in_conformal_space_by_e0_to_minus_infinity(sign, preserves):
    images = [sign * INF, CGA["e1"], CGA["e2"], CGA["e3"]]
    rows = []
    for subset in PGA.subsets:
        blade = CGA["1"]
        for i in subset:
            blade = CGA.geometric(blade, images[i])
        rows.append(blade)
    embed = torch.stack(rows)
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, 16, generator=generator, dtype=torch.float64)
    assert torch.allclose(PGA.geometric(a, b) @ embed, CGA.geometric(a @ embed, b @ embed), atol=1e-12)
    # both signs preserve the product; only one sends the translation by t to the translation by t
    translate = PGA["1"] - PGA.geometric(PGA["e0"], vector(PGA, T)) / 2
    moved = CGA.sandwich(translate @ embed, cga_point(X))
    assert torch.allclose(moved, cga_point(X + T), atol=1e-13) == preserves


def test_even_versors_act_without_the_involution():
    rotor = PGA.exp(PGA["e12"] * 0.3)
    rotated = PGA.sandwich(rotor, PGA["e1"])
    untwisted = PGA.geometric(PGA.geometric(rotor, PGA["e1"]), PGA.inverse(rotor))
    twisted = PGA.geometric(PGA.geometric(rotor, PGA.involute(PGA["e1"])), PGA.inverse(rotor))
    assert torch.allclose(rotated, untwisted)
    assert torch.allclose(twisted, -rotated)  # the appendix's formula reverses every vector under every rotation


def test_the_short_inverse_holds_for_versors_only():
    x = PGA["1"] + PGA["e1"] / 2
    short = PGA.reverse(x) / PGA.inner(x, x)
    assert not torch.allclose(PGA.geometric(x, short), PGA["1"], atol=0.1)
    assert torch.allclose(PGA.geometric(x, PGA.inverse(x)), PGA["1"], atol=1e-14)
    versor = PGA.geometric(PGA["e1"] + 2 * PGA["e2"], PGA["e3"] - PGA["e1"])
    assert torch.allclose(PGA.inverse(versor), PGA.reverse(versor) / PGA.inner(versor, versor), atol=1e-14)


@pytest.mark.parametrize(
    ("signature", "signs"),
    [((3, 0, 0), (8, 0, 0)), ((3, 0, 1), (8, 0, 8)), ((4, 1, 0), (16, 16, 0)), ((4, 0, 1), (16, 0, 16))],
)
def test_signatures_of_the_inner_product(signature, signs):
    """Conformal points need G(4,1,0): in G(4,0,1), as printed, the only null vector is e0 and nothing pairs with it."""
    metric = Algebra(*signature).metric
    assert (int((metric > 0).sum()), int((metric < 0).sum()), int((metric == 0).sum())) == signs


def test_distance_is_a_mirror_invariant_of_projective_points():
    def squared_length_of_join(x, y):
        line = PGA.join(pga_point(x), pga_point(y))
        return PGA.inner(line, line)

    mirror = torch.diag(torch.tensor([-1.0, 1, 1], dtype=torch.float64))
    assert torch.allclose(squared_length_of_join(X, Y), (X - Y).dot(X - Y), atol=1e-13)
    assert torch.allclose(squared_length_of_join(mirror @ X, mirror @ Y), squared_length_of_join(X, Y), atol=1e-13)


def test_join_is_odd_under_mirrors_and_a_reference_repairs_it():
    generator = torch.Generator().manual_seed(0)
    a, b, reference = torch.randn(3, 16, generator=generator, dtype=torch.float64)
    mirror = vector(PGA, N) - 0.7 * PGA["e0"]

    def act(x):
        return PGA.sandwich(mirror, x)

    assert torch.allclose(PGA.join(act(a), act(b)), -act(PGA.join(a, b)), atol=1e-12)
    weight = PGA.index("e123")
    repaired = act(reference)[weight] * PGA.join(act(a), act(b))
    assert torch.allclose(repaired, act(reference[weight] * PGA.join(a, b)), atol=1e-12)


def test_counting_does_not_tell_infinity_from_o():
    right, swapped = linear_maps(euclidean(CGA, INF)), linear_maps(euclidean(CGA, ORIGIN))
    assert len(right) == len(swapped) == 20
    both = torch.cat([right.tensor, swapped.tensor]).flatten(1)
    assert 40 - int(torch.linalg.matrix_rank(both)) == 6
    translate = CGA["1"] + CGA.geometric(INF, vector(CGA, T)) / 2

    def worst(maps):
        moved = torch.einsum("mkj,j->mk", maps.tensor, cga_point(X + T))
        return float((moved - CGA.sandwich(translate, torch.einsum("mkj,j->mk", maps.tensor, cga_point(X)))).abs().max())

    assert worst(right) < 1e-12
    assert worst(swapped) > 0.1
    assert equivariance_defect(euclidean(CGA, INF), swapped.tensor) > 0.1
