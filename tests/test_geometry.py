"""Presets and what follows from a declaration: groups, references, stabilisers, impossibilities, maps between them."""

import pickle
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
import torch

from anygatr.algebra import Algebra
from anygatr.equivariance.linalg import null_space, rank
from anygatr.equivariance.symmetry import euclidean, spin
from anygatr.spaces.features import Inner
from anygatr.spaces.geometry import Geometry
from anygatr.spaces.presets import geometry

NAMES = ("E", "P", "iP", "C", "L")
ALL = [geometry(name, dim, mirrors) for name in NAMES for dim in (1, 2, 3) for mirrors in (True, False)]


def label(geo):
    return f"{geo.name}{geo.dim}{'' if len(geo.symmetry.mirrors) else '-spin'}"


@pytest.mark.parametrize(
    ("name", "mirrors", "maps", "group"),
    [
        ("E", True, 4, "E(3)"),
        ("E", False, 8, "SE(3)"),
        ("P", True, 9, "E(3)"),
        ("P", False, 16, "SE(3)"),
        ("iP", True, 9, "E(3)"),
        ("iP", False, 16, "SE(3)"),
        ("C", True, 20, "E(3)"),
        ("C", False, 40, "SE(3)"),
        ("L", True, 5, "Pin(1,3,0)"),
        ("L", False, 10, "Spin(1,3,0)"),
    ],
)
def test_linear_maps_and_groups_of_the_presets(name, mirrors, maps, group):
    geo = geometry(name, mirrors=mirrors)
    assert (len(geo.linear_basis), geo.group, geo.dim) == (maps, group, 3)


@pytest.mark.parametrize("geo", ALL, ids=label)
def test_a_geometry_is_a_value(geo):
    copy = pickle.loads(pickle.dumps(geo))
    assert copy == geo
    assert hash(copy) == hash(geo)
    assert copy != replace(geo, norm_eps=0.5)
    assert geometry(geo.name, geo.dim, len(geo.symmetry.mirrors) > 0) == geo
    with pytest.raises(FrozenInstanceError):
        geo.norm = "abs"


def test_long_names():
    pairs = {"euclidean": "E", "projective": "P", "conformal": "C", "lorentz": "L"}
    assert all(geometry(long) == geometry(short) for long, short in pairs.items())


@pytest.mark.parametrize("geo", ALL, ids=label)
def test_printing_shows_group_maps_kinds_and_features(geo):
    text = str(geo)
    assert geo.group in text
    assert f"{len(geo.linear_basis)} equivariant linear maps" in text
    assert all(kind in text for kind in geo.kinds)
    assert "Inner" in text


@pytest.mark.parametrize("geo", ALL, ids=label)
def test_infinity_and_o(geo):
    """infinity is -e0 in P, e- - e+ in C with o = (e- + e+) / 2 and <infinity, o> = -1, and zero in E and L."""
    alg = geo.algebra
    expected = {"P": lambda: -alg["e0"], "iP": lambda: -alg["e0"], "C": lambda: alg["e-"] - alg["e+"]}
    infinity = expected.get(geo.name, lambda: 0 * alg["1"])()
    o = (alg["e-"] + alg["e+"]) / 2 if geo.name == "C" else 0 * alg["1"]
    torch.testing.assert_close(geo.infinity, infinity)
    torch.testing.assert_close(geo.o, o)
    assert float(alg.inner(geo.infinity, geo.o)) == (-1.0 if geo.name == "C" else 0.0)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_the_join_needs_a_reference_only_with_mirrors(dim):
    geo = geometry("iP", dim)
    assert geo.needs_reference
    assert geo.algebra.blades[geo.reference_blade] == "e" + "123"[:dim]
    assert not geometry("iP", dim, mirrors=False).needs_reference
    assert not geometry("P", dim).needs_reference


def test_the_reference_repairs_the_join():
    geo = geometry("iP")
    generator = torch.Generator().manual_seed(0)
    x, y, reference = torch.randn(3, 8, 16, generator=generator, dtype=torch.float64)
    mirror = geo.transform(torch.diag(torch.tensor([1.0, 1.0, -1.0])), torch.tensor([1.0, 2.0, 3.0]))

    def joined(x, y, reference):
        return geo.algebra.join(x, y) * reference[..., geo.reference_blade, None]

    moved = joined(*(geo.symmetry.act(mirror, z) for z in (x, y, reference)))
    torch.testing.assert_close(moved, geo.symmetry.act(mirror, joined(x, y, reference)))
    bare = geo.algebra.join(geo.symmetry.act(mirror, x), geo.symmetry.act(mirror, y))
    torch.testing.assert_close(bare, -geo.symmetry.act(mirror, geo.algebra.join(x, y)))


@pytest.mark.parametrize("name", ["P", "iP", "C"])
@pytest.mark.parametrize("dim", [2, 3])
def test_the_stabiliser_of_a_point_is_the_rotations_about_it(name, dim):
    """Of all bivectors of se(d) exactly so(d), carried to the point, leaves an embedded point alone (section 4.2)."""
    geo = geometry(name, dim, mirrors=False)
    alg, x = geo.algebra, torch.arange(1.0, dim + 1, dtype=torch.float64)
    point = geo.embed_point(x)
    motion = torch.stack([alg.commutator(b) @ point for b in geo.symmetry.generators]).numpy()
    stabiliser = null_space(motion @ motion.T).T @ geo.symmetry.generators.numpy()
    carry = geo.transform(torch.eye(dim), x)
    turns = [alg.outer(alg[f"e{i}"], alg[f"e{j}"]) for i in range(1, dim + 1) for j in range(i + 1, dim + 1)]
    about = torch.stack([geo.symmetry.act(carry, turn) for turn in turns]).numpy()
    assert len(stabiliser) == len(turns) == rank(about) == rank(np.concatenate([stabiliser, about]))


def test_no_multivector_of_the_euclidean_algebra_has_the_stabiliser_of_a_point():
    """Translations act trivially, so every stabiliser contains all of them; the rotations about a point contain none."""
    geo = geometry("E")
    x = torch.randn(20, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    shift = geo.transform(torch.eye(3), torch.tensor([1.0, 2.0, 3.0]))
    torch.testing.assert_close(geo.symmetry.act(shift, x), x)
    point = geometry("C").embed_point(x[:, :3])
    shift = geometry("C").transform(torch.eye(3), torch.tensor([1.0, 2.0, 3.0]))
    assert (geometry("C").symmetry.act(shift, point) - point).abs().amax(-1).min() > 1e-3


def invariant_functionals(geo):
    """A basis of the linear functionals of a multivector that no translation changes."""
    alg, axes = geo.algebra, [geo.algebra[axis] for axis in geo.axes]
    changes = torch.cat([alg.commutator(alg.outer(geo.infinity, axis)).T for axis in axes]).numpy()
    return torch.from_numpy(null_space(changes.T @ changes))


@pytest.mark.parametrize("name", ["P", "iP", "C"])
@pytest.mark.parametrize("dim", [2, 3])
def test_free_vectors_have_no_translation_invariant_inverse(name, dim):
    """Every translation-invariant linear read-out vanishes on embed_vector; so none can return the vector."""
    geo = geometry(name, dim)
    readouts = invariant_functionals(geo)
    vectors = geo.embed_vector(torch.eye(dim, dtype=torch.float64))
    assert readouts.shape[1] > 0
    assert (vectors @ readouts).abs().max() < 1e-12
    # the read-out that extract_vector offers is among the invariant ones, and it is not zero
    offered = geo.extract_vector(torch.eye(geo.algebra.dim, dtype=torch.float64))
    torch.testing.assert_close(readouts @ (readouts.T @ offered), offered)
    assert rank(offered.numpy()) == dim
    # not even the point's own coordinates are invariant, so they are no such read-out either
    assert (geo.embed_point(vectors.new_ones(1, dim)) @ readouts).abs().max() > 0.1


def test_free_vectors_of_the_euclidean_geometry_do_have_an_inverse():
    geo = geometry("E")
    v = torch.randn(5, 3, dtype=torch.float64)
    torch.testing.assert_close(geo.extract_vector(geo.embed_vector(v)), v)
    assert (geo.embed_vector(v) @ invariant_functionals(geo)).abs().max() > 0.1


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_the_projective_algebra_maps_into_the_conformal_one(dim):
    """e0 -> -infinity preserves the product and the action; e0 -> +infinity reverses translations of points' planes."""
    p, c = geometry("P", dim), geometry("C", dim)
    x, y = torch.randn(2, 6, p.algebra.dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def image(x, sign=-1.0):
        # a projective multivector is S - infinity ^ S', with infinity = -e0
        return c.lift(p.read(x)) + c.lift_ideal(p.read_ideal(x)) * -sign

    torch.testing.assert_close(image(p.algebra.geometric(x, y)), c.algebra.geometric(image(x), image(y)))
    matrix = torch.linalg.qr(torch.randn(dim, dim, dtype=torch.float64)).Q
    shift = torch.randn(dim, dtype=torch.float64)
    u, v = p.transform(matrix, shift), c.transform(matrix, shift)
    torch.testing.assert_close(image(p.symmetry.act(u, x)), c.symmetry.act(v, image(x)))
    torch.testing.assert_close(image(p.embed_plane(shift, shift)), c.embed_plane(shift, shift))
    assert (image(p.symmetry.act(u, x), 1.0) - c.symmetry.act(v, image(x, 1.0))).abs().max() > 1e-3


def test_distance_features_are_twice_the_conformal_inner_product():
    """iP's logit of two points tends to 2 <P, Q> = -|p - q|^2 as eps -> 0; P's inner product never sees the distance."""
    ip, c = geometry("iP"), geometry("C")
    p, q = torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    distance = replace(ip.features[1], eps=1e-14)
    query, key = (ip.embed_point(x).T.unsqueeze(-1) for x in (p, q))  # (k, tokens, 1 channel)
    logit = (distance.query(query) * distance.key(key)).sum((0, -1))
    torch.testing.assert_close(logit, 2 * c.algebra.inner(c.embed_point(p), c.embed_point(q)), rtol=1e-9, atol=1e-9)
    constant = ip.algebra.inner(ip.embed_point(p), ip.embed_point(q))
    torch.testing.assert_close(constant, torch.ones_like(constant))


def test_three_euclidean_multivectors_give_the_distance():
    """The inner product of (|q|^2, 2q, 1) and (-1, k, -|k|^2) is -|q - k|^2."""
    geo = geometry("E")
    q, k = torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    one = geo.embed_scalar(torch.ones(6, dtype=torch.float64))
    query = [geo.embed_scalar(q.square().sum(-1)), geo.embed_vector(2 * q), one]
    key = [-one, geo.embed_vector(k), geo.embed_scalar(-k.square().sum(-1))]
    logit = sum(geo.algebra.inner(a, b) for a, b in zip(query, key, strict=True))
    torch.testing.assert_close(logit, -(q - k).square().sum(-1))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: geometry("conformall"), "did you mean 'conformal'"),
        (lambda: geometry("G"), "not a geometry.*Choose from E, P, iP, C, L"),
        (lambda: geometry("C", dim=0), "dim=0 must be a positive integer"),
        (lambda: geometry("C", dim=2.0), "dim=2.0 must be"),
        (lambda: geometry("C", mirrors="no"), "mirrors='no'"),
        (lambda: geometry("C", norms="abs"), "did you mean 'norm'"),
        (lambda: geometry("C", norm="grade-abs"), "did you mean 'grade_abs'"),
        (lambda: geometry("C", norm_form="sum"), "norm_form='sum' is not one of 'add', 'clamp'"),
        (lambda: geometry("C", norm_eps=0), "norm_eps=0 must be a positive number"),
        (lambda: geometry("C", init="identiti"), "did you mean 'identity'"),
        (lambda: geometry("C", products=("geometrical",)), "did you mean 'geometric'"),
        (lambda: geometry("C", products=()), "products"),
        (lambda: geometry("C", features=("inner",)), "features contains 'inner'"),
        (lambda: geometry("iP", join_reference="mean"), "join_reference='mean'"),
    ],
)
def test_bad_presets_and_overrides(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_overrides_replace_the_declaration():
    geo = geometry("P", norm="abs", norm_eps=0.1, norm_form="clamp", init="identity", products=("geometric", "join"))
    assert (geo.norm, geo.norm_eps, geo.norm_form, geo.init) == ("abs", 0.1, "clamp", "identity")
    assert geo.products == ("geometric", "join")
    inner = Inner.of(geo.algebra)
    assert geometry("iP", features=(inner,)).features == (inner,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"axes": ("e2", "e1")}, "axes="),
        ({"axes": ("e0", "e1")}, "invertible generators"),
        ({"infinity": "e1"}, "infinity=e1 must be null"),
        ({"infinity": "e12"}, "infinity must be a vector"),
        ({"ideal": "e1"}, "ideal=e1 must be a multiple"),
        ({"point": "null"}, "point='null' does not exist.*meet"),
        ({"point": "relative"}, "point='relative' does not exist"),
        ({"time": "e4"}, "time='e4'"),
        ({"symmetry": spin(Algebra(2, 0, 0))}, "symmetry acts on"),
    ],
)
def test_bad_declarations(change, message):
    with pytest.raises(ValueError, match=message):
        replace(geometry("P", 2), **change)


def test_a_group_built_with_o_instead_of_infinity_is_rejected():
    """It has as many maps, 20, and passes its own commutator check, but is another group."""
    geo = geometry("C")
    swapped = euclidean(geo.algebra, geo.o)
    assert len(replace(geo, symmetry=swapped, infinity=geo.o, ideal=None).linear_basis) == len(geo.linear_basis)
    with pytest.raises(ValueError, match="moves infinity"):
        replace(geo, symmetry=swapped)


def test_a_declaration_of_ones_own():
    """The Poincare group of 2 + 1 dimensional spacetime: points are events, and nothing else has to be written."""
    alg = Algebra(1, 2, 1, names=("e9", "e0", "e1", "e2"))
    geo = Geometry(alg, euclidean(alg, alg["e9"]), ("e0", "e1", "e2"), alg["e9"], point="meet", time="e0", name="Poincare")
    boost = torch.eye(3, dtype=torch.float64)
    boost[:2, :2] = torch.tensor([[2.0, 3.0**0.5], [3.0**0.5, 2.0]], dtype=torch.float64)
    shift, event = torch.randn(3, dtype=torch.float64), torch.randn(4, 3, dtype=torch.float64)
    moved = geo.symmetry.act(geo.transform(boost, shift), geo.embed_point(event))
    torch.testing.assert_close(geo.extract_point(moved), event @ boost.T + shift)
    assert {"point", "momentum", "motor", "plane"} <= set(geo.kinds)
    assert "custom" in str(geo)
    torch.testing.assert_close(geo.embed_momentum(event), alg.outer(geo.infinity, geo.lift(geo.split.space.vector(event))))
