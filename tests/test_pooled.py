"""Pooled tokens: what they compute follows motions, near and far, does not depend on layout, and costs linear time."""

from itertools import pairwise

import pytest
import torch

import anygatr
from anygatr import PooledGATr, Width, geometry, model
from anygatr.checkpoint import load, save
from anygatr.networks.network_program import network_flops, network_program
from anygatr.ops import chosen
from anygatr.testing import certify

GEOMETRIES = [(name, mirrors) for name in ("E", "P", "iP", "C") for mirrors in (True, False)]


def built(geo="iP", mirrors=True, **options):
    torch.manual_seed(0)
    geo = geometry(geo, mirrors=mirrors)
    fields = {"position": "point", "normal": "plane" if geo.name == "P" else "vector", "mass": "scalar"}
    options = {"large": "pooled", "pooled": 4, "unit": None} | options
    return model(geo, fields, {"out": "scalar"}, Width(4, 8), blocks=2, heads=2, **options).double()


def data(net, *shape):
    generator = torch.Generator().manual_seed(1)
    return {field.name: field.draw(net.geo, *shape, generator=generator) for field in net.inputs.fields}


@pytest.mark.parametrize(("geo", "mirrors"), GEOMETRIES)
def test_certified(geo, mirrors):
    certificate = certify(built(geo, mirrors))
    assert certificate.ok, str(certificate)


def moved(net, fields, shift):
    """The fields of E, iP and C after a rotation and a translation; after a mirror, too, where the group has them."""
    turn = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(3)))[0]
    reflects = net.geo.name in ("E", "C") and len(net.geo.symmetry.mirrors)
    turn = turn * (turn.det().sign() * (-1 if reflects else 1))
    return fields | {"position": fields["position"] @ turn.T + shift, "normal": fields["normal"] @ turn.T}


@pytest.mark.parametrize("shift", [1.0, 1e4])
@pytest.mark.parametrize("geo", ["E", "iP", "C"])
def test_many_tokens_follow_motions(geo, shift):
    net = built(geo, pooled=7)
    fields = data(net, 2, 40)
    torch.testing.assert_close(
        net(**moved(net, fields, shift)), net(**fields), rtol=1e-12 * shift + 1e-10, atol=1e-12 * shift + 1e-10
    )


def test_a_choice_by_absolute_coordinates_is_caught(monkeypatch):
    def leftmost(points, offsets, count):
        parts = [a + points[a:b, 0].argsort()[:count] for a, b in pairwise(offsets.tolist())]
        return torch.cat(parts), tuple(torch.tensor([0, *map(len, parts)]).cumsum(0).tolist())

    monkeypatch.setattr(chosen, "farthest_points", leftmost)
    net = built("E", pooled=7)
    fields = data(net, 2, 40)
    assert not torch.allclose(net(**moved(net, fields, 1.0))["out"], net(**fields)["out"], atol=1e-6)
    assert not certify(net).ok


@pytest.mark.parametrize("geo", ["E", "P", "iP", "C"])
def test_ragged_and_masked_equal_single_samples(geo):
    net, lengths = built(geo), (13, 1, 31, 12)
    parts = [data(net, n) for n in lengths]
    single = torch.cat([net(**part)["out"] for part in parts])
    packed = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    torch.testing.assert_close(net(offsets=offsets, **packed)["out"], single, rtol=1e-10, atol=1e-11)
    pad = torch.nn.utils.rnn.pad_sequence
    mask = torch.arange(31) < torch.tensor(lengths)[:, None]
    padded = {name: pad([part[name] for part in parts], batch_first=True) for name in parts[0]}
    masked = net(mask=mask, **padded)["out"]
    torch.testing.assert_close(masked[mask], single, rtol=1e-10, atol=1e-11)
    assert not masked[~mask].any()
    stacked = net(**{name: x.expand(3, 2, *x.shape) for name, x in parts[0].items()})["out"]
    torch.testing.assert_close(stacked[2, 1], single[:13], rtol=1e-10, atol=1e-11)


def test_order_of_tokens_does_not_matter():
    net = built()
    fields, order = data(net, 30), torch.randperm(30, generator=torch.Generator().manual_seed(2))
    moved = net(**{name: x[order] for name, x in fields.items()})["out"]
    torch.testing.assert_close(moved, net(**fields)["out"][order], rtol=1e-10, atol=1e-11)


def test_every_token_reaches_every_other():
    net = built()
    fields = data(net, 30)
    mass = fields["mass"].requires_grad_()
    (slope,) = torch.autograd.grad(net(**fields)["out"][7], mass)
    assert (slope != 0).all()


@pytest.mark.parametrize("checkpoint", [False, True])
def test_gradients(checkpoint):
    net, layout = built(checkpoint=checkpoint), {"offsets": torch.tensor([0, 3, 9])}
    fields = data(net, 9)
    mass = fields.pop("mass")

    def loss(mass):
        return net(mass=mass, **fields, **layout)["out"].square().sum()

    assert torch.autograd.gradcheck(loss, mass.requires_grad_())
    loss(mass).backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in net.parameters())
    assert all(p.grad is not None and p.grad.any() for p in net.net.down.cross.kv.parameters())


def test_second_derivatives():
    net = built()
    fields = data(net, 12)
    mass = fields.pop("mass").requires_grad_()
    assert torch.autograd.gradgradcheck(lambda mass: net(mass=mass, **fields)["out"].sum(), mass)


def test_backends_agree():
    net = built()
    fields = data(net, 2, 30)
    with anygatr.backend("torch"):
        expected = net(**fields)["out"]
    torch.testing.assert_close(net(**fields)["out"], expected, rtol=1e-10, atol=1e-11)


def test_narrowing_and_reinserting_change_nothing_else():
    net = built("C", reinsert=["position"])
    fields = data(net, 20)
    before = net(**fields)["out"]
    assert net.narrow(1000).saved > 0
    torch.testing.assert_close(net(**fields)["out"], before, rtol=1e-10, atol=1e-11)


def test_checkpoints_keep_it(tmp_path):
    net = built(pooled=5000)
    save(net, tmp_path / "net.safetensors")
    again, fields = load(tmp_path / "net.safetensors"), data(net, 9)
    torch.testing.assert_close(again(**fields), net(**fields))
    assert (again.config["large"], again.net.pooled) == ("pooled", 5000)
    save(net.net, tmp_path / "alone.safetensors")
    assert isinstance(load(tmp_path / "alone.safetensors"), PooledGATr)


def test_cost_is_linear_outside_of_the_blocks():
    net = built(pooled=64).net
    program = network_program(net)

    def cost(tokens, outside):
        steps = zip(program.steps, network_flops(net, program, tokens), strict=True)
        return sum(done for step, done in steps if (not step.layer.startswith("blocks")) is outside)

    one, two, three = (cost(n, True) for n in (1000, 2000, 3000))
    assert two - one == three - two > 0
    assert cost(1000, False) == cost(3000, False) > 0
    assert anygatr.summary(built(pooled=64), tokens=512).flops < anygatr.summary(built_without(), tokens=512).flops / 2


def built_without(**options):
    return model("iP", {"position": "point"}, {"out": "scalar"}, Width(4, 8), blocks=1, heads=2, **options)


def test_what_is_refused():
    with pytest.raises(ValueError, match="pooled=0 must be a positive integer, such as 512"):
        built(pooled=0)
    with pytest.raises(ValueError, match="anchors=4 is an option of large='anchors', but large='pooled'"):
        built(anchors=4)
    with pytest.raises(ValueError, match="pooled=4 is an option of large='pooled', but large=None"):
        built_without(pooled=4)
    with pytest.raises(ValueError, match="no input is one 'point'"):
        model("E", {"v": "vector"}, {"out": "vector"}, large="pooled")
    with pytest.raises(ValueError, match="takes their coordinates"):
        built().net(*built().net.example(4)[:2])
