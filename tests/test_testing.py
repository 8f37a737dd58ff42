"""The public test kit certifies what is equivariant, and names the layer and the generator where it is not."""

import json
from dataclasses import replace

import pytest
import torch
from torch import nn

import anygatr
from anygatr.equivariance.solver import linear_maps
from anygatr.equivariance.symmetry import euclidean
from anygatr.execution import watching
from anygatr.execution.c import linear, product, prologue
from anygatr.interface.model import model
from anygatr.networks.gatr import GATr
from anygatr.nn.linear import EquiLinear
from anygatr.nn.width import Width
from anygatr.spaces.features import Inner
from anygatr.spaces.presets import geometry
from anygatr.testing import assert_equivariant, certify, equivariance_error

FIELDS = {"position": "point", "velocity": "vector", "mass": "scalar"}


def network(geo, **options):
    torch.manual_seed(0)
    return GATr(geo, Width(2, 3), Width(4, 8), Width(1, 2), blocks=2, heads=2, **options)


class VectorBias(nn.Module):
    """A layer that looks harmless and is not: it adds a constant vector."""

    layout = "blades"

    def __init__(self, layer: nn.Module, blade: int):
        super().__init__()
        self.layer, self.blade = layer, blade

    def forward(self, x, s, *rest):
        x, s = self.layer(x, s, *rest)
        x = x.clone()
        x[self.blade] += 0.1
        return x, s


@pytest.mark.parametrize("name", ["E", "P", "iP", "C", "L"])
def test_networks_are_certified_in_both_dtypes(name):
    certificate = certify(network(geometry(name)))
    assert certificate.ok, str(certificate)
    assert {row.dtype for row in certificate.rows} == {"float64", "float32"}
    motions = {row.motion for row in certificate.rows}
    assert set(geometry(name).symmetry.names) < motions
    assert max(row.error for row in certificate.rows if row.dtype == "float64") < 1e-11
    assert max(row.error for row in certificate.rows if row.dtype == "float32") < 1e-4


@pytest.mark.parametrize(("name", "mirrors"), [("E", True), ("P", False), ("iP", False), ("C", True)])
def test_models_are_certified_on_coordinates(name, mirrors):
    torch.manual_seed(0)
    certificate = certify(model(name, {**FIELDS, "wall": "plane"}, {"final": "point", "force": "vector"}, Width(4, 8), 1, 2))
    assert certificate.ok, str(certificate)
    assert any("mirror" in row.motion for row in certificate.rows) == mirrors
    assert any("not claimed" in note for note in certificate.notes) != mirrors


def test_a_vector_bias_is_found_in_its_layer():
    geo = geometry("C")
    net = network(geo)
    net.blocks[1].mlp.out = VectorBias(net.blocks[1].mlp.out, geo.algebra.index("e1"))
    certificate = certify(net)
    assert not certificate.ok
    assert certificate.culprit.layer == "blocks.1.mlp.out"
    assert "rotation" in certificate.culprit.motion
    assert "first lost at blocks.1.mlp.out" in str(certificate)
    assert all(row.ok for row in certificate.rows if row.layer.startswith("blocks.0"))
    with pytest.raises(AssertionError, match="equivariance error"):
        assert_equivariant(net.double())


def test_o_for_infinity_is_rejected():
    """The maps solved with o in place of infinity: the right number of them, the wrong symmetry."""
    geo = geometry("C", init="kaiming")  # with "identity" the maps through infinity start at zero
    wrong = euclidean(geo.algebra, geo.o)
    with pytest.raises(ValueError, match="points would not follow"):
        replace(geo, symmetry=wrong)
    swapped = replace(geo, name="swapped")
    swapped.__dict__["linear_basis"] = linear_maps(wrong)  # past the check, as a wrong solver would
    net = network(swapped).double()
    certificate = certify(net, geo)
    assert not certificate.ok
    failing = {row.motion for row in certificate.rows if not row.ok}
    assert any("translation" in motion for motion in failing)
    assert not any("rotation" in motion for motion in failing)


def test_an_unsigned_inner_product_is_rejected():
    geo = geometry("C")
    inner = geo.features[0]
    unsigned = replace(geo, features=(Inner(inner.blades, tuple(abs(sign) for sign in inner.signs)),), name="unsigned")
    certificate = certify(network(unsigned).double(), geo)
    assert not certificate.ok
    assert "attention" in certificate.culprit.layer


def test_a_join_without_its_reference_is_rejected_under_mirrors_only():
    geo = geometry("iP", join_reference="canonical")
    certificate = certify(network(geo).double(), geometry("iP"))
    assert not certificate.ok
    assert "bilinear" in certificate.culprit.layer
    failing = {row.motion for row in certificate.rows if not row.ok}
    assert "mirror e1" in failing
    assert not any("rotation" in motion or "translation" in motion for motion in failing)


@pytest.mark.parametrize("kernel", ["product", "product by table", "linear"])
def test_a_broken_kernel_is_found(kernel, monkeypatch):
    """A wrong sign in the tables of a C kernel: certificates are of the path that users run."""
    net = network(geometry("P"))
    certificate = certify(net)
    assert certificate.ok
    if kernel.startswith("product"):
        if kernel == "product by table":
            monkeypatch.setattr(product, "UNROLLED", 0)
        sums = product._sums

        def wrong(plan, *given):
            first, *others = plan.terms
            e = next(e for e in first.entries if e[1:3] == (1, 2))
            entries = tuple((*e[:3], -e[3]) if e is other else other for other in first.entries)
            return sums(replace(plan, terms=(first._replace(entries=entries), *others)), *given)

        monkeypatch.setattr(product, "_sums", wrong)
        caches = (product.kernel, prologue.tables_of)
    else:
        plan = net.linear_in.op.plan
        terms = [e._replace(factor=-e.factor) if e.target == e.source == 2 else e for e in plan.entries]
        tables = linear.tables_of
        monkeypatch.setattr(linear, "tables_of", lambda given: tables(replace(given, entries=tuple(terms))))
        caches = ()
    for cache in caches:
        cache.cache_clear()
    try:
        broken = certify(net)
        assert not broken.ok
        assert broken.culprit.layer == ("linear_in" if kernel == "linear" else "blocks.0.mlp.bilinear.out")
        assert equivariance_error(net) > 1e-3
        with pytest.raises(AssertionError, match="equivariance error"):
            assert_equivariant(net)
        with anygatr.backend("torch"):
            assert certify(net).ok
    finally:
        monkeypatch.undo()
        for cache in caches:
            cache.cache_clear()
    assert certify(net).ok


def test_what_is_certified_is_what_runs():
    """The output of a certificate's run has the very digits of a plain call."""
    net = network(geometry("iP"))
    x, s = (torch.randn(2, 5, 2, 16), torch.randn(2, 5, 3))
    with torch.no_grad():
        plain = net(x, s)
        with watching(lambda *_: None):
            watched = net(x, s)
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))


class Wrapped(nn.Module):
    """A user's own module around a GATr, on coordinates."""

    def __init__(self, honest: bool):
        super().__init__()
        self.geo, self.honest = geometry("C"), honest
        self.net = GATr(self.geo, Width(1, 0), Width(4, 8), Width(1, 0), blocks=1, heads=2)

    def forward(self, points):
        y, _ = self.net(self.geo.embed_point(points).unsqueeze(-2))
        out = self.geo.extract_point(y.squeeze(-2))
        return out if self.honest else out * torch.tensor([1.0, 1.0, 1.1], dtype=out.dtype)


@pytest.mark.parametrize("honest", [True, False])
def test_a_users_own_module(honest):
    torch.manual_seed(0)
    points = torch.randn(2, 5, 3, dtype=torch.float64)
    certificate = certify(
        Wrapped(honest).double(), geometry("C"), inputs={"points": points}, kinds={"points": "point"}, outputs=("point",)
    )
    assert certificate.ok == honest, str(certificate)
    assert honest or certificate.culprit.layer == "output"


def test_error_does_not_change_the_module():
    layer = EquiLinear(geometry("P"), Width(2, 1), Width(2, 1)).double().train()
    assert equivariance_error(layer) < 1e-13
    assert layer.training


def test_certificate_as_json():
    record = json.loads(certify(network(geometry("E"))).to_json())
    assert record["ok"] is True
    assert {"layer", "motion", "dtype", "error", "tolerance", "ok"} == set(record["rows"][0])


def test_what_cannot_be_probed_says_what_to_pass():
    with pytest.raises(ValueError, match=r"inputs=\{\.\.\.\}"):
        certify(nn.Linear(3, 3), geometry("E"))
    with pytest.raises(ValueError, match="pass geo"):
        certify(nn.Linear(3, 3))
    with pytest.raises(ValueError, match="one kind per input"):
        certify(network(geometry("E")), inputs={"x": torch.zeros(1)}, kinds={})
