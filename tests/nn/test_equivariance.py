"""Every layer commutes with every group, in both precisions; layers made wrong on purpose do not."""

from dataclasses import replace

import pytest
import torch
from family import GEOMETRIES, LAYERS, WIDTH, caller, defect, name, stream
from torch import nn

from anygatr import AxialGATr, ConditionalGATr, GATr
from anygatr.nn import EquiLinear, GeometricBilinear, SelfAttention, Width
from anygatr.ops.batch import Batch, join_reference
from anygatr.spaces.features import Inner
from anygatr.spaces.presets import geometry


@pytest.mark.parametrize("geo", GEOMETRIES, ids=name)
@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-11), (torch.float32, 1e-4)], ids=["f64", "f32"])
def test_layer_is_equivariant(kind, geo, dtype, tolerance, rng):
    torch.manual_seed(1)
    layer = LAYERS[kind](geo).to(dtype)
    x, s = (t.to(dtype) for t in stream(geo, rng))
    for versor in geo.symmetry.sample(2, rng):
        assert defect(caller(layer, geo), geo, x, s, versor) < tolerance


def _networks(geo):
    widths = {"inputs": Width(2, 3), "hidden": WIDTH, "outputs": Width(2, 1), "blocks": 2, "heads": 2}
    return {
        "gatr": (GATr(geo, **widths, reinsert=(1,), rope=True), (2, 5)),
        "axial": (AxialGATr(geo, **widths), (2, 3, 4)),
        "conditional": (ConditionalGATr(geo, condition=Width(2, 3), **widths), (2, 5)),
    }


@pytest.mark.parametrize("geo", GEOMETRIES, ids=name)
@pytest.mark.parametrize("kind", ["gatr", "axial", "conditional"])
def test_network_is_equivariant(kind, geo, rng):
    torch.manual_seed(1)
    net, tokens = _networks(geo)[kind]
    net.double()
    x, s = stream(geo, rng, tokens, net.inputs)

    def call(x, s):
        x = x.movedim(0, -1)
        y, t = net(x, s, x, s) if kind == "conditional" else net(x, s)
        return y.movedim(-1, 0), t

    for versor in geo.symmetry.sample(2, rng):
        assert defect(call, geo, x, s, versor, stored=False) < 1e-11


@pytest.mark.parametrize("geo", GEOMETRIES, ids=name)
def test_token_order_does_not_matter(geo, rng):
    net = GATr(geo, Width(2, 3), WIDTH, Width(1, 1), blocks=1, heads=2).double()
    x, s = stream(geo, rng, (2, 7), Width(2, 3))
    x, order = x.movedim(0, -1), torch.randperm(7, generator=rng)
    (y, t), (y_permuted, t_permuted) = net(x, s), net(x[:, order], s[:, order])
    assert torch.allclose(y[:, order], y_permuted, atol=1e-12)
    assert torch.allclose(t[:, order], t_permuted, atol=1e-12)
    assert not torch.allclose(y, y_permuted, atol=1e-3)


@pytest.mark.parametrize("geo", [geometry("E"), geometry("iP"), geometry("C"), geometry("L")], ids=name)
def test_a_bias_on_a_vector_is_caught(geo, rng):
    class Biased(EquiLinear):
        def forward(self, x, s):
            y, t = super().forward(x, s)
            one = torch.zeros_like(y)
            one[geo.algebra.index(geo.axes[-1])] = 1
            return y + one, t

    layer = Biased(geo, WIDTH, WIDTH).double()
    errors = [defect(layer, geo, *stream(geo, rng), versor) for versor in geo.symmetry.sample(4, rng)]
    assert max(errors) > 1e-2


@pytest.mark.parametrize("geo", [geometry("C"), geometry("L")], ids=name)
def test_an_unsigned_inner_product_is_caught(geo, rng):
    inner = Inner.of(geo.algebra)
    wrong = replace(geo, features=(Inner(inner.blades, (1.0,) * inner.size),))
    layer = SelfAttention(wrong, WIDTH, heads=2).double()
    nn.init.normal_(layer.out.weight)
    errors = [defect(caller(layer, geo), geo, *stream(geo, rng), versor) for versor in geo.symmetry.sample(4, rng)]
    assert max(errors) > 1e-4


def test_join_without_reference_is_odd_under_mirrors(rng):
    """With mirrors the canonical reference fails and the data's does not; without mirrors both are exact."""
    for mirrors, choice, exact in [(True, "data", True), (True, "canonical", False), (False, "canonical", True)]:
        geo = geometry("iP", mirrors=mirrors, join_reference=choice)
        layer = GeometricBilinear(geo, WIDTH, WIDTH).double()
        errors = [defect(caller(layer, geo), geo, *stream(geo, rng), versor) for versor in geo.symmetry.sample(8, rng)]
        assert (max(errors) < 1e-11) == exact


def test_a_reference_over_the_batch_is_caught(rng):
    """Mirroring one sample of a batch must move that sample's output alone."""
    geo = geometry("iP")
    layer = GeometricBilinear(geo, WIDTH, WIDTH).double()
    x, s = stream(geo, rng)
    mirror = geo.algebra.action(geo.symmetry.mirrors[0])
    half = x.clone()
    half[:, 0] = torch.einsum("ij,j...->i...", mirror, x[:, 0])

    def outputs(whole_batch):
        mean = lambda x: join_reference(x, geo).mean().view(1) if whole_batch else join_reference(x, geo)  # noqa: E731
        y, y_half = layer(x, s, mean(x))[0], layer(half, s, mean(half))[0]
        expected = y.clone()
        expected[:, 0] = torch.einsum("ij,j...->i...", mirror, y[:, 0])
        return float((y_half - expected).detach().abs().max())

    assert outputs(whole_batch=False) < 1e-12
    assert outputs(whole_batch=True) > 1e-3


def test_batch_tells_tokens_apart(rng):
    """Samples do not see each other: changing one leaves the others' outputs bitwise alone."""
    geo = geometry("C", 2)
    layer = SelfAttention(geo, WIDTH, heads=2).double()
    x, s = stream(geo, rng, (3, 6))
    other = x.clone()
    other[:, 2] += 1
    batch = Batch(x.new_ones(1), x[..., :0])
    assert layer(x, s, batch)[0][:, :2].equal(layer(other, s, batch)[0][:, :2])
