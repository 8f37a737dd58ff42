"""The blades on which networks store multivectors: o and infinity instead of e+ and e-, for more digits."""

from dataclasses import replace

import pytest
import torch

from anygatr import GATr, Width, geometry
from anygatr.spaces import kinds
from anygatr.spaces.features import Distance, Inner
from anygatr.spaces.stream_basis import StreamBasis

GEOMETRIES = [geometry("C", dim) for dim in (1, 2, 3)]


@pytest.mark.parametrize("geo", GEOMETRIES, ids=str)
@pytest.mark.parametrize("product", ["geometric", "outer", "join"])
def test_products_are_those_of_the_algebra(geo, product, rng):
    basis, alg = geo.basis, geo.algebra
    x, y = torch.randn(2, alg.dim, generator=rng, dtype=torch.float64)
    z = torch.zeros_like(x)
    for target, left, right, sign in basis.terms(product):
        z[target] += sign * x[left] * y[right]
    expected = alg.product(product, basis.leave @ x, basis.leave @ y)
    torch.testing.assert_close(basis.leave @ z, expected)
    # the table of other blades does not do: o and infinity are not orthogonal
    wrong = torch.zeros_like(x)
    for target, left, right, sign in StreamBasis(alg).terms(product):
        wrong[target] += sign * x[left] * y[right]
    assert torch.allclose(basis.leave @ wrong, expected) == (product != "geometric")  # the others know no metric


def test_the_geometric_product_has_as_many_terms_as_on_orthogonal_blades():
    geo = geometry("C")
    assert len(geo.basis.terms("geometric")) == geo.algebra.dim**2


@pytest.mark.parametrize("geo", GEOMETRIES, ids=str)
def test_the_inner_product_is_that_of_the_algebra(geo, rng):
    x, y = torch.randn(2, 5, geo.algebra.dim, generator=rng, dtype=torch.float64)
    expected = geo.algebra.inner(x @ geo.basis.leave.T, y @ geo.basis.leave.T)
    torch.testing.assert_close(geo.basis.inner(x, y), expected)
    assert not torch.allclose(geo.algebra.inner(x, y), expected)


@pytest.mark.parametrize("kind", [name for name in geometry("C").kinds if name in kinds.KINDS])
def test_objects_are_embedded_and_read_on_the_blades_of_the_stream(kind, rng):
    geo = geometry("C")
    values = kinds.draw(geo, kind, 7, generator=rng)
    (seen,), (stored,) = kinds.embed(geo, kind, values), kinds.embed(geo.stored, kind, values)
    torch.testing.assert_close(stored @ geo.basis.leave.T, seen)
    torch.testing.assert_close(kinds.read(geo.stored, kind, [stored]), kinds.read(geo, kind, [seen]))
    assert kind in ("scalar", "pseudoscalar", "rotation") or not torch.allclose(stored, seen)


def _relative_error(size, frame):
    """Of <p, q> = -|p - q|^2 / 2 in float32, median over neighbours at distance 1 in a cloud of that size."""
    rng, geo = torch.Generator().manual_seed(0), geometry("C")
    p = (size * torch.randn(2000, 3, generator=rng, dtype=torch.float64)).float()
    step = torch.nn.functional.normalize(torch.randn(2000, 3, generator=rng, dtype=torch.float64), dim=-1)
    q = (p.double() + step).float()
    view = geo.stored if frame == "null" else geo
    (a,), (b,) = (kinds.embed(view, "point", x) for x in (p, q))
    found = view.space.basis.inner(a, b).double()
    exact = -(p.double() - q.double()).square().sum(-1) / 2
    return float(((found - exact) / exact).abs().median())


@pytest.mark.parametrize(("size", "bound"), [(1, 2e-7), (10, 1e-5), (100, 1e-3), (1000, 0.1)])
def test_neighbours_far_from_the_origin_keep_their_distance(size, bound):
    """The error grows as eps * size^2, what float32 coordinates and squares allow; on e+ and e- as eps * size^4."""
    assert _relative_error(size, "null") < bound
    assert size < 100 or _relative_error(size, "algebra") > 0.3


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("mirrors", [True, False])
def test_a_network_computes_the_same_in_both_frames(dim, mirrors, rng):
    """What users pass and get does not change, so weights of either frame serve the other."""
    widths = Width(2, 3), Width(4, 6), Width(2, 1)
    geo = geometry("C", dim, mirrors, products=("geometric", "join"))
    net = GATr(geo, *widths, blocks=2, heads=2).double()
    other = GATr(replace(geo, frame="algebra"), *widths, blocks=2, heads=2).double()
    other.load_state_dict(net.state_dict())
    x, s = torch.randn(2, 5, 2, geo.algebra.dim, generator=rng).double(), torch.randn(2, 5, 3, generator=rng).double()
    for found, expected in zip(net(x, s), other(x, s), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-11)


def test_features_are_declared_on_the_blades_of_the_algebra():
    geo = geometry("C")
    (inner,) = geo.features
    assert inner == Inner.of(geo.algebra)
    stored = inner.stored_in(geo.basis)
    o, infinity = geo.algebra.index("e+"), geo.algebra.index("e-")
    assert dict(zip(stored.blades, stored.key_blades, strict=True))[o] == infinity
    with pytest.raises(ValueError, match="name all of them, or use frame='algebra'"):
        Inner((o,), (1.0,)).stored_in(geo.basis)
    with pytest.raises(ValueError, match="use frame='algebra'"):
        Distance(0, (o,), (1.0,)).stored_in(geo.basis)


def test_a_null_frame_needs_o():
    with pytest.raises(ValueError, match="frame='null' needs an o"):
        geometry("iP", frame="null")
    with pytest.raises(ValueError, match="did you mean 'null'"):
        geometry("C", frame="nul")
