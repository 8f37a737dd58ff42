"""Anchors: sparse attention equals exact attention where it has all keys, follows motions, and scales."""

from itertools import pairwise

import pytest
import torch

import anygatr
from anygatr import Width, geometry, model
from anygatr.checkpoint import load, save
from anygatr.ops import chosen
from anygatr.ops.near import near_attention
from anygatr.testing import certify

GEOMETRIES = [(name, mirrors) for name in ("E", "P", "iP", "C") for mirrors in (True, False)]


def built(geo="iP", large="anchors", **options):
    torch.manual_seed(0)
    geo = geometry(*geo[:1], mirrors=geo[1]) if isinstance(geo, tuple) else geometry(geo)
    options = {"anchors": 3, "neighbours": 2} | options if large else options
    fields = {"position": "point", "normal": "plane" if geo.name == "P" else "vector", "mass": "scalar"}
    return model(geo, fields, {"out": "scalar"}, Width(4, 8), blocks=2, heads=2, unit=None, large=large, **options).double()


def data(net, *shape):
    generator = torch.Generator().manual_seed(1)
    return {field.name: field.draw(net.geo, *shape, generator=generator) for field in net.inputs.fields}


@pytest.mark.parametrize("geo", GEOMETRIES, ids=str)
def test_certified(geo):
    certificate = certify(built(geo))
    assert certificate.ok, str(certificate)


@pytest.mark.parametrize("geo", ["E", "P", "iP", "C"])
@pytest.mark.parametrize("multi_query", [True, False])
def test_all_tokens_as_anchors_are_exact_attention(geo, multi_query):
    exact, sparse = built(geo, None, multi_query=multi_query), built(geo, anchors=11, multi_query=multi_query)
    sparse.load_state_dict(exact.state_dict())
    fields = data(exact, 2, 11)
    outs, grads = [], []
    for net in (exact, sparse):
        out = net(**fields)["out"]
        outs.append(out)
        grads.append(
            torch.autograd.grad(out.square().sum(), [p for p in net.parameters() if p.requires_grad], allow_unused=True)
        )
    torch.testing.assert_close(*outs, rtol=1e-10, atol=1e-11)
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-9)


def test_all_tokens_as_neighbours_are_exact_attention():
    exact, sparse = built(large=None), built(anchors=1, neighbours=10)
    sparse.load_state_dict(exact.state_dict())
    fields = data(exact, 2, 11)
    torch.testing.assert_close(exact(**fields), sparse(**fields), rtol=1e-10, atol=1e-11)
    assert not torch.allclose(exact(**fields)["out"], built(anchors=1, neighbours=1)(**fields)["out"], atol=1e-6)


def test_ragged_and_masked_equal_single_samples():
    net, lengths = built(), (7, 1, 12)
    parts = [data(net, n) for n in lengths]
    single = torch.cat([net(**part)["out"] for part in parts])
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    ragged = net(offsets=offsets, **{name: torch.cat([part[name] for part in parts]) for name in parts[0]})["out"]
    torch.testing.assert_close(ragged, single, rtol=1e-10, atol=1e-11)
    pad = torch.nn.utils.rnn.pad_sequence
    mask = torch.arange(12) < torch.tensor(lengths)[:, None]
    masked = net(mask=mask, **{name: pad([part[name] for part in parts], batch_first=True) for name in parts[0]})["out"]
    torch.testing.assert_close(masked[mask], single, rtol=1e-10, atol=1e-11)


def test_order_of_tokens_does_not_matter():
    net = built()
    fields, order = data(net, 30), torch.randperm(30, generator=torch.Generator().manual_seed(2))
    moved = net(**{name: x[order] for name, x in fields.items()})["out"]
    torch.testing.assert_close(moved, net(**fields)["out"][order], rtol=1e-10, atol=1e-11)


def test_a_choice_by_absolute_coordinates_is_caught(monkeypatch):
    def leftmost(points, offsets, count, share=1.0):
        parts = [a + points[a:b, 0].argsort()[:count].cpu() for a, b in pairwise(offsets)]
        return torch.cat(parts), tuple(torch.tensor([0, *map(len, parts)]).cumsum(0).tolist())

    monkeypatch.setattr(chosen, "farthest_points", leftmost)
    assert not certify(built()).ok


def test_neighbours_without_scipy(monkeypatch):
    points, offsets = torch.randn(50, 3, dtype=torch.float64), torch.tensor([0, 20, 21, 50])
    with_tree = chosen.nearest_points(points, offsets, 4)
    monkeypatch.setattr(chosen.importlib, "import_module", lambda name: (_ for _ in ()).throw(ImportError(name)))
    monkeypatch.setattr(chosen, "PAIRS", 100)
    torch.testing.assert_close(chosen.nearest_points(points, offsets, 4), with_tree)
    assert (with_tree[0][:, 0] == torch.arange(50)).all()
    assert with_tree[1][20].tolist() == [True, False, False, False, False]


def test_gradients_of_the_operation(monkeypatch):
    monkeypatch.setattr("anygatr.ops.near.TILE", 100)
    near = chosen.choose_near(torch.randn(9, 3), torch.tensor([0, 6, 9]), 2, 2)
    q, k, v = (torch.randn(9, h, 3, dtype=torch.float64, requires_grad=True) for h in (4, 2, 2))
    assert torch.autograd.gradcheck(lambda *t: near_attention(*t, near, 0.7), (q, k, v))
    assert torch.autograd.gradgradcheck(lambda *t: near_attention(*t, near, 0.7), (q, k, v))


def test_checkpoints_keep_it(tmp_path):
    net = built(anchors=5000)
    save(net, tmp_path / "net.safetensors")
    again, fields = load(tmp_path / "net.safetensors"), data(net, 9)
    torch.testing.assert_close(again(**fields), net(**fields))
    assert again.config["large"] == "anchors"
    assert again.net.anchors == 5000


def test_what_is_refused():
    with pytest.raises(ValueError, match="large='hash' is unknown"):
        built(large="hash")
    with pytest.raises(ValueError, match="anchors=0 must be"):
        built(anchors=0)
    with pytest.raises(ValueError, match="neighbours=-1 must be"):
        built(neighbours=-1)
    with pytest.raises(ValueError, match="is an option of large='anchors'"):
        built(large=None, anchors=4)
    with pytest.raises(ValueError, match="no input is one 'point'"):
        model("E", {"v": "vector"}, {"out": "vector"}, large="anchors")
    with pytest.raises(ValueError, match="not compiled"):
        built().compile()
    with pytest.raises(ValueError, match="takes their coordinates"):
        built().net(*built().net.example(4)[:2])


def test_summary_counts_keys_that_are_there():
    few, many = (anygatr.summary(built(), tokens=n).flops for n in (64, 512))
    assert few == many < anygatr.summary(built(large=None), tokens=64).flops
