"""Exported graphs, of torch.export and of ONNX, give the network's own numbers for any number of samples and tokens."""

import pytest
import torch

from anygatr import AxialGATr, GATr, export
from anygatr.export import program, to_onnx
from anygatr.interface.model import model
from anygatr.nn import Width
from anygatr.spaces.presets import geometry

SIZES = ((1, 1), (2, 5), (5, 70), (1, 130))  # none of them the size that is traced
TOLERANCE = 1e-5
CASES = [
    (kind, name, mask)
    for kind in ("GATr", "model")
    for name in ("E", "P", "iP", "C", "L")
    for mask in (False, True)
    if (kind, name) != ("model", "L")
]
ONE_FAST = [pytest.param(*case, marks=() if case == ("model", "E", True) else pytest.mark.slow) for case in CASES]


def build(kind, name, **options):
    torch.manual_seed(4)  # untrained weights of which no point of C comes out near infinity, where rounding is amplified
    size = {"hidden": Width(2, 4), "blocks": 1, "heads": 2, **options}
    if kind == "GATr":
        net = GATr(geometry(name), Width(2, 3), outputs=Width(1, 2), **size)
    else:
        fields = {"position": "point", "velocity": "vector", "mass": "scalar"}
        targets = {"final": "point", "energy": "scalar"}
        net = model(name, fields, targets, per={"final": "token", "energy": "sample"}, **size)
        net.fit_unit(**inputs(net, kind, 2, 5, mask=False))
    return net.eval()


def inputs(net, kind, samples, tokens, mask):
    generator = torch.Generator().manual_seed(samples)
    if kind == "GATr":
        shapes = {"x": (net.inputs.mv, net.geometry.algebra.dim), "s": (net.inputs.s,)}
    else:
        shapes = {"position": (3,), "velocity": (3,), "mass": ()}
    dtype = next(net.parameters()).dtype
    out = {name: torch.randn(samples, tokens, *shape, generator=generator).to(dtype) for name, shape in shapes.items()}
    if mask:
        out["mask"] = torch.rand(samples, tokens, generator=generator) < 0.7
        out["mask"][:, 0] = True
    return out


def worst(run, net, kind, mask):
    """The largest relative difference between a graph and the network, over all sizes."""
    found = 0.0
    for samples, tokens in SIZES:
        given = inputs(net, kind, samples, tokens, mask)
        with torch.no_grad():
            expected, actual = net(**given), run(given)
        expected, actual = (list(y.values()) if isinstance(y, dict) else list(y) for y in (expected, actual))
        for a, b in zip(actual, expected, strict=True):
            assert a.shape == b.shape
            assert a.dtype == b.dtype
            found = max(found, float((a - b).abs().max() / b.abs().max()))
    return found


@pytest.mark.parametrize(("kind", "name", "mask"), CASES)
@pytest.mark.parametrize("options", [{}, {"multi_query": False, "rope": True, "reinsert": 1}], ids=["", "multi-head"])
def test_form_that_is_traced_is_the_network(kind, name, mask, options, monkeypatch):
    """Without tracing it: what layers compute while a graph is exported."""
    options = dict(options)
    if options.pop("reinsert", 0):
        options["reinsert"] = (1,) if kind == "GATr" else ("position",)
    net = build(kind, name, **options).double()

    def run(given):
        with monkeypatch.context() as patch:
            patch.setattr(torch.compiler, "is_exporting", lambda: True)
            return net(**given)

    assert worst(run, net, kind, mask) < 1e-10


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name", "mask"), CASES)
def test_program_is_the_network(kind, name, mask, tmp_path):
    net = build(kind, name)
    torch.export.save(program(net, mask), tmp_path / "net.pt2")
    graph = torch.export.load(tmp_path / "net.pt2").module()
    assert worst(lambda given: graph(**given), net, kind, mask) < TOLERANCE


@pytest.mark.parametrize(("kind", "name", "mask"), ONE_FAST)
def test_onnx_is_the_network(kind, name, mask, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    net = build(kind, name)
    to_onnx(net, tmp_path / "net.onnx", mask)
    assert [path.name for path in tmp_path.iterdir()] == ["net.onnx"]
    session = runtime.InferenceSession(tmp_path / "net.onnx")
    assert all(one.shape[:2] == ["samples", "tokens"] for one in session.get_inputs())
    assert [one.name for one in session.get_outputs()] == (["y", "t"] if kind == "GATr" else ["final", "energy"])

    def run(given):
        return [torch.from_numpy(y) for y in session.run(None, {key: x.numpy() for key, x in given.items()})]

    assert worst(run, net, kind, mask) < TOLERANCE


def test_parity_can_fail():
    """A graph of other weights, or one that ignores the mask, is not the network."""
    net, other = build("model", "E"), build("model", "E")
    with torch.no_grad():
        other.net.linear_in.weight.mul_(1.01)
    assert worst(lambda given: other(**given), net, "model", True) > 100 * TOLERANCE
    assert worst(lambda given: net(**{k: x for k, x in given.items() if k != "mask"}), net, "model", True) > 100 * TOLERANCE


def test_exporting_leaves_the_network_as_it_was(monkeypatch):
    """Traced in evaluation mode, without dropout and without recomputation, then put back."""
    seen = []
    monkeypatch.setattr(torch.export, "export", lambda module, *_, **__: seen.append(module.net.blocks[0].training))
    net = build("GATr", "E", dropout=0.5, checkpoint=True).train()
    net.linear_in.eval()
    program(net)
    assert seen == [False]
    assert net.training
    assert not net.linear_in.training


def test_what_to_onnx_needs_is_said_before_tracing(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.export, "export", lambda *_, **__: pytest.fail("traced"))
    net = build("model", "E")
    with pytest.raises(FileNotFoundError, match="directory that does not exist; create"):
        to_onnx(net, tmp_path / "none" / "net.onnx")
    monkeypatch.setattr(export, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install anygatr\[onnx\]"):
        to_onnx(net, tmp_path / "net.onnx")


def test_what_cannot_be_exported_is_said():
    with pytest.raises(ValueError, match="net is a AxialGATr; pass a GATr or what model"):
        program(AxialGATr(geometry("E", 2), Width(1), Width(2), Width(1), blocks=1, heads=2))
    net = build("model", "E")
    given = {key: x[0] for key, x in inputs(net, "model", 1, 6, False).items()}
    with pytest.raises(ValueError, match="offsets cannot be exported"):
        torch.export.export(net, (), {**given, "offsets": torch.tensor([0, 2, 6])})
