"""What the paper says about norms and attention, each claim with its opposite."""

import pytest
import torch
from family import name

from anygatr.nn import EquiLinear, GatedGELU, GeometricBilinear, LayerNorm, SelfAttention, Width
from anygatr.ops.batch import Batch
from anygatr.spaces.features import Distance, Inner
from anygatr.spaces.presets import geometry

EPS = 0.01
NOTHING = torch.zeros(1, 0, dtype=torch.float64)


def points(n, seed=0, d=3):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def normalised(norm, x):
    geo = geometry("C", norm=norm, norm_eps=EPS)
    y, _ = LayerNorm(geo)((geo.basis.enter @ x)[:, None, None], NOTHING)
    return geo.basis.leave @ y[:, 0, 0]


@pytest.mark.parametrize(("norm", "growth"), [("inner", EPS**-0.5), ("abs", EPS**-0.5), ("grade_abs", (2 + EPS) ** -0.5)])
def test_scalar_plus_pseudoscalar_grows_unless_grades_are_separate(norm, growth):
    """1 + I is null in C: the first two norms let it grow by 1/sqrt(eps) with every layer, the third does not."""
    alg = geometry("C").algebra
    x = alg["1"] + alg.pseudoscalar
    assert float(alg.inner(x, x)) == 0
    assert torch.allclose(normalised(norm, x), x * growth)


@pytest.mark.parametrize("norm", ["inner", "abs", "grade_abs"])
def test_null_points_escape_every_norm(norm):
    """A conformal point is null and of one grade: every norm multiplies it by 1/sqrt(eps)."""
    x = geometry("C").embed_point(points(1)[0])
    assert torch.allclose(normalised(norm, x), x * EPS**-0.5, atol=1e-9)


def test_the_balanced_norm_sees_points():
    """Wherever it is: the coefficient of o is 1."""
    for place in points(3) * torch.tensor([[0.1], [1.0], [100.0]]):
        x = geometry("C").embed_point(place)
        assert torch.allclose(normalised("balanced", x), x * (1 + EPS) ** -0.5, atol=1e-9 * float(x.abs().max()))
    with pytest.raises(ValueError, match="norm='balanced' needs frame='null'"):
        geometry("C", norm="balanced", frame="algebra")


@pytest.mark.parametrize("norm", ["grade_abs", "weight"])
def test_the_mean_of_far_points_shrinks_under_all_norms_but_the_weights(norm):
    """The mean of points at distance d has the square -d^2 / 4: divided by it, all look alike to the next attention."""
    geo = geometry("C")
    far = torch.tensor([[0.0, 0.0, 0.0], [40.0, 0.0, 0.0]], dtype=torch.float64)
    x = geo.embed_point(far).mean(0)
    size = {"grade_abs": 40.0**2 / 4, "weight": 1.0}[norm]
    assert torch.allclose(normalised(norm, x), x * (size + EPS) ** -0.5)
    with pytest.raises(ValueError, match="norm='weight' needs frame='null'"):
        geometry("C", norm="weight", frame="algebra")


def test_channels_cancel_under_the_inner_norm_only():
    """Two channels of opposite squares have no size under "inner", and one under "abs"."""
    alg = geometry("C").algebra
    x = torch.stack([alg["e1"], alg["e-"]], -1)
    norms = {norm: LayerNorm(geometry("C", norm=norm, frame="algebra")) for norm in ("inner", "abs")}
    size = {norm: layer(x[:, None], NOTHING)[0].abs().max().item() for norm, layer in norms.items()}
    assert size["inner"] == pytest.approx(EPS**-0.5)
    assert size["abs"] == pytest.approx((1 + EPS) ** -0.5)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_distance_features_are_twice_the_conformal_inner_product(dim):
    """phi(q) . psi(k) = -|q - k|^2 = 2 <p, q> in C, for points of weight one and vanishing eps."""
    projective, conformal = geometry("iP", dim), geometry("C", dim)
    (declared,) = (f for f in projective.features if isinstance(f, Distance))
    exact = Distance(declared.weight, declared.coordinates, declared.signs, eps=0)
    p, q = points(6, 1, dim), points(6, 2, dim)
    x, y = (projective.embed_point(t).T.unsqueeze(-1) for t in (p, q))
    logits = torch.einsum("fqc,fkc->qk", exact.query(x), exact.key(y))
    inner = conformal.algebra.inner(conformal.embed_point(p)[:, None], conformal.embed_point(q)[None])
    assert torch.allclose(logits, -(torch.cdist(p, q) ** 2), atol=1e-10)
    assert torch.allclose(logits, 2 * inner, atol=1e-10)


def test_distance_of_weighted_points():
    """-|k_0 q - q_0 k|^2, smooth where a weight vanishes."""
    geo = geometry("iP")
    (feature,) = (f for f in geo.features if isinstance(f, Distance))
    p, weights = points(2), torch.tensor([0.0, -2.0], dtype=torch.float64)
    x = (geo.embed_point(p) * weights[:, None]).T.unsqueeze(-1)
    factor = weights.square() / (weights.square() + feature.eps)
    expected = -(((factor[:, None] * factor[None])[..., None] * (p[:, None] - p[None])) ** 2).sum(-1)
    assert torch.allclose(torch.einsum("fqc,fkc->qk", feature.query(x), feature.key(x)), expected, atol=1e-12)


def test_three_euclidean_multivectors_give_the_distance():
    """E: query (|q|^2, 2q, 1) and key (-1, k, -|k|^2) have the inner product -|q - k|^2."""
    geo = geometry("E")
    p, q = points(4, 1), points(5, 2)
    one = lambda t: geo.embed_scalar(torch.ones(len(t), dtype=t.dtype))  # noqa: E731
    square = lambda t: geo.embed_scalar(t.square().sum(-1))  # noqa: E731
    query = torch.stack([square(p), 2 * geo.embed_vector(p), one(p)], -1).movedim(1, 0)
    key = torch.stack([-one(q), geo.embed_vector(q), -square(q)], -1).movedim(1, 0)
    inner = Inner.of(geo.algebra)
    assert torch.allclose(
        torch.einsum("fqc,fkc->qk", inner.query(query), inner.key(key)), -(torch.cdist(p, q) ** 2), atol=1e-12
    )


def test_linear_maps_of_projective_points_have_constant_inner_products():
    """Proposition 2 for all pairs of the 16 Spin-equivariant maps."""
    geo = geometry("P", mirrors=False)
    maps = geo.linear_basis.tensor
    assert len(maps) == 16
    images = torch.einsum("mij,nj->mni", maps, geo.embed_point(10 * points(7)))
    table = geo.algebra.inner(images[:, None, :, None], images[None, :, None, :])  # (map, map, point, point)
    assert torch.allclose(table, table[..., :1, :1].expand_as(table), atol=1e-10)
    assert float(table.abs().max()) > 0.1
    conformal = geometry("C", mirrors=False)  # the same construction sees distances in C
    images = torch.einsum("mij,nj->mni", conformal.linear_basis.tensor, conformal.embed_point(points(7)))
    table = conformal.algebra.inner(images[:, None, :, None], images[None, :, None, :])
    assert float((table - table[..., :1, :1]).abs().max()) > 0.1


def nonlinear(geo):
    """A random equivariant map of one point: linear, bilinear, gated, normalised, linear."""
    width = Width(4, 3)
    layers = [EquiLinear(geo, Width(1, 0), width), GeometricBilinear(geo, width, width * 2), GatedGELU(), LayerNorm(geo)]
    last = EquiLinear(geo, width * 2, Width(2, 0))
    for layer in (*layers, last):
        layer.double()

    def call(x):
        x, s = layers[0](x.T.unsqueeze(-1), x.new_zeros(len(x), 0))
        x, s = layers[1](x, s, x.new_ones(1))
        x, s = layers[3](*layers[2](x, s))
        return last(x, s)[0]

    return call


@pytest.mark.parametrize(("preset", "blind"), [("P", True), ("C", False)])
def test_nonlinear_maps_of_projective_points_have_constant_inner_products(preset, blind):
    """Proposition 2 beyond linear maps: random equivariant phi and psi made of our layers."""
    torch.manual_seed(2)
    geo = geometry(preset, mirrors=False)
    phi, psi, x = nonlinear(geo), nonlinear(geo), geo.embed_point(3 * points(6))
    inner = Inner.of(geo.algebra)
    with torch.no_grad():
        logits = torch.einsum("fqc,fkc->qk", inner.query(phi(x)), inner.key(psi(x)))
    spread = float((logits - logits[0, 0]).abs().max() / logits.abs().max())
    assert (spread < 1e-10) == blind


@pytest.mark.parametrize("geo", [geometry(n, d) for n in ("E", "P", "iP", "C") for d in (2, 3)], ids=name)
def test_only_projective_attention_is_blind_to_distance(geo):
    """Move one point: the attention weights of the others follow it, except in P."""
    torch.manual_seed(0)
    layer = SelfAttention(geo, Width(1, 2), heads=2).double()
    torch.nn.init.normal_(layer.out.s_to_s)
    near = 3 * points(5, d=geo.dim)
    far = near.clone()
    far[4] += 2
    s = torch.randn(5, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def scalars(p):
        """What the scalars see of the others is the attention weights alone."""
        x = geo.embed_point(p).T.unsqueeze(-1)
        return layer(x, s, Batch(x.new_ones(1), x[..., :0]))[1][:4]

    with torch.no_grad():
        change = float((scalars(near) - scalars(far)).abs().max())
    assert (change < 1e-12) == (geo.name == "P")
