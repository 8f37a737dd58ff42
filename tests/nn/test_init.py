"""How layers start: variances per grade, the identity scheme, the variants."""

from dataclasses import replace

import pytest
import torch
from family import name

from anygatr import GATr
from anygatr.nn import EquiLinear, GeometricBilinear, SelfAttention, Width
from anygatr.nn.init import identity_coefficients, map_factors
from anygatr.spaces.presets import geometry

FAMILY = [
    geometry(n, d, m) for n, d, m in [("E", 3, True), ("P", 3, True), ("P", 3, False), ("C", 3, True), ("L", 3, False)]
]


def grade_variances(geo, layer, inputs):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(geo.algebra.dim, 400, inputs.mv, generator=generator)
    enter, leave = geo.basis.enter.float(), geo.basis.leave.float()
    with torch.no_grad():
        y, t = layer(torch.tensordot(enter, x, 1), torch.randn(400, inputs.s, generator=generator))
    y = torch.tensordot(leave, y, 1)
    return [float(y[s].var()) for s in geo.algebra.slices], float(t.var())


@pytest.mark.parametrize("scheme", ["kaiming", "identity"])
@pytest.mark.parametrize("scalars", [0, 64])
@pytest.mark.parametrize("geo", FAMILY, ids=name)
def test_output_variance_is_a_third_in_every_grade(geo, scalars, scheme):
    """Unit inputs give each grade, and the scalars, the variance 1/3 of `nn.Linear`, on the algebra's blades."""
    torch.manual_seed(0)
    geo = geometry(geo.name, geo.dim, bool(len(geo.symmetry.mirrors)), init=scheme)
    inputs = Width(64, scalars)
    variances, scalar = grade_variances(geo, EquiLinear(geo, inputs, Width(64, 64), bias=False), inputs)
    # identity keeps its weights equal over grades, so what scalars add to the invariant grades comes on top
    extra = [
        1 / 6 if scheme == "identity" and scalars and geo.algebra.slices[g].start in _invariant(geo) else 0
        for g in range(len(variances))
    ]
    for variance, more in zip(variances, extra, strict=True):
        assert variance == pytest.approx(1 / 3 + more, rel=0.15)
    assert scalar == pytest.approx(1 / 3, rel=0.15)


def _invariant(geo):
    return EquiLinear(geo, Width(1, 0), Width(1, 0)).invariant


def test_factors_follow_from_the_basis():
    """PGA: one map alone has the root of its grade's dimension; maps into one grade share it by rank."""
    factors = map_factors(geometry("P").linear_basis).square()
    expected = [1, 4 * 4 / 5, 6 * 6 / 9, 4 * 4 / 7, 1 / 2, 4 * 1 / 5, 6 * 3 / 9, 4 * 3 / 7, 1 / 2]
    assert factors.tolist() == pytest.approx(expected)
    assert map_factors(geometry("E").linear_basis).square().tolist() == pytest.approx([1, 3, 3, 1])


@pytest.mark.parametrize("geo", FAMILY, ids=name)
def test_identity_scheme_is_the_identity_of_the_algebra(geo, rng):
    geo = geometry(geo.name, geo.dim, bool(len(geo.symmetry.mirrors)), init="identity")
    basis = geo.linear_basis
    unit = basis.tensor / basis.tensor.flatten(1).norm(dim=1)[:, None, None]
    identity = torch.einsum("m,mij->ij", identity_coefficients(basis), unit)
    assert torch.allclose(identity, torch.eye(geo.algebra.dim, dtype=torch.float64), atol=1e-12)
    layer = EquiLinear(geo, Width(3, 0), Width(2, 0), bias=False).double()
    x = torch.randn(geo.algebra.dim, 4, 3, generator=rng, dtype=torch.float64)
    y, _ = layer(x, x[0, :, :0])
    channels = layer.weight[..., 0] / identity_coefficients(basis)[0]
    assert torch.allclose(y, x @ channels.T, atol=1e-6)


def test_paper_assigns_the_schemes():
    assert {n: geometry(n).init for n in ("E", "P", "iP", "C")} == {
        "E": "kaiming",
        "P": "kaiming",
        "iP": "kaiming",
        "C": "identity",
    }


def test_variants():
    """Attention starts small; the right factor of the geometric product starts close to one."""
    torch.manual_seed(0)
    geo = geometry("iP")
    small = SelfAttention(geo, Width(32, 32), heads=4).requires_grad_(False).out
    plain = EquiLinear(geo, small.inputs, small.outputs).requires_grad_(False)
    assert float(small.weight.std() / plain.weight.std()) == pytest.approx(0.1, rel=0.1)
    bias = GeometricBilinear(geo, Width(32, 32), Width(64, 64)).factors.bias_mv[0].unflatten(0, (4, -1)).mean(-1)
    assert bias.tolist() == pytest.approx([0, 1, 0, 0], abs=0.1)


def test_the_input_layer_does_not_copy_its_channel():
    """A point and a velocity in one channel meet in the first product only if the channels made of it differ by grade."""
    torch.manual_seed(0)
    geo = geometry("C")
    x = (geo.embed_point(torch.randn(3)) + geo.embed_vector(torch.randn(3))).reshape(-1, 1, 1)
    s = torch.zeros(1, 0)

    def antisymmetric(layer):
        y = layer(x, s)[0][:, 0].detach().T  # (channels, blades)
        products = geo.algebra.geometric(y[:, None], y[None])
        return float((products - products.transpose(0, 1)).abs().max())

    net = GATr(geo, Width(1, 0), Width(4, 0), Width(1, 0), blocks=0, heads=1)
    assert geo.init == "identity"
    assert antisymmetric(net.linear_in) > 0.01
    assert antisymmetric(EquiLinear(geo, Width(1, 0), Width(4, 0), bias=False)) < 1e-5


@pytest.mark.parametrize(("start", "least", "most"), [("near", 0.85, 1.0), ("paper", 0.2, 0.8)])
def test_heads_of_the_near_start_prefer_near_tokens(start, least, most):
    """In C the random weights that queries and keys give points decide it for the paper's start."""
    geo = geometry("C", init="kaiming")
    points = 3 * torch.randn(24, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    given = (geo.basis.enter @ geo.embed_point(points).T).unsqueeze(-1), points.new_zeros(24, 0)
    distances = torch.cdist(points, points).square()
    nearness = distances.mean(-1, keepdim=True) - distances
    found = []
    for seed in range(10):
        torch.manual_seed(seed)
        net = GATr(geo, Width(1, 0), Width(8, 8), Width(1, 0), blocks=1, heads=4, init=start).double().requires_grad_(False)
        attention = net.blocks[0].attention
        x, s = attention.qkv(*net.blocks[0].norm(*net.linear_in(*given)))
        q, k, _ = attention.attend.op.rows((x, s), (*attention.attend.log_weights, *attention.attend.tables))
        found += ((torch.einsum("nhf,mf->hnm", q, k.squeeze(1)) * nearness).sum((1, 2)) > 0).tolist()
    assert least <= sum(found) / len(found) <= most


def test_seeds_give_the_same_bits_wherever_memory_lies():
    """The identity of C is its grade projections and nothing else, to the last bit."""
    basis = geometry("C").linear_basis
    found = identity_coefficients(basis)
    assert int((found != 0).sum()) == geometry("C").algebra.n + 1
    shifted = torch.empty(basis.tensor.numel() + 3, dtype=torch.float64)[3:].view_as(basis.tensor).copy_(basis.tensor)
    assert torch.equal(identity_coefficients(replace(basis, tensor=shifted)), found)
