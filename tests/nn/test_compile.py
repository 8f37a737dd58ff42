"""Compiled networks compute what eager ones do, for dense, masked and ragged batches, and compile once for all sizes."""

import copy

import pytest
import torch
from torch._dynamo.utils import counters

from anygatr import GATr
from anygatr.checkpoint import load, save
from anygatr.execution.c import build
from anygatr.export import program
from anygatr.nn import Width
from anygatr.spaces.presets import geometry

SLOW = pytest.mark.slow  # each compilation takes tens of seconds


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def network(preset: str, blocks: int = 2) -> tuple[GATr, GATr]:
    """The same network twice: one to compile, one to compare with."""
    torch.manual_seed(0)
    net = GATr(geometry(preset), Width(2, 3), Width(4, 8), Width(1, 2), blocks=blocks, heads=2, reinsert=(0,))
    return net, copy.deepcopy(net)


def inputs(net: GATr, layout: str, samples: int, tokens: int) -> dict[str, torch.Tensor]:
    """A batch; in the ragged layout its samples have different lengths."""
    generator = torch.Generator().manual_seed(samples * 100 + tokens)
    k = net.geometry.algebra.dim
    if layout == "ragged":
        lengths = torch.randint(1, tokens + 1, (samples,), generator=generator)
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
        shape = (int(lengths.sum()),)
        given = {"offsets": offsets}
    else:
        shape = (samples, tokens)
        given = {"mask": torch.rand(shape, generator=generator) < 0.7} if layout == "masked" else {}
    return {"x": torch.randn(*shape, 2, k, generator=generator), "s": torch.randn(*shape, 3, generator=generator), **given}


def results(net: GATr, batch: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """Outputs and the gradients of all parameters."""
    net.zero_grad()
    y, t = net(**batch)
    (y.square().mean() + t.square().mean()).backward()
    return [y, t, *(p.grad for p in net.parameters() if p.grad is not None)]


def assert_same(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert (a - b).abs().max() <= 1e-5 * max(float(b.abs().max()), 1.0)


@pytest.mark.parametrize(
    ("preset", "layouts", "backend"),
    [
        ("iP", ["dense"], "aot_eager"),
        *(pytest.param(p, ["dense", "masked", "ragged"], "inductor", marks=SLOW) for p in ("E", "P", "iP", "C")),
    ],
)
def test_regions_compile_once_for_all_sizes_layouts_and_blocks(preset, layouts, backend):
    net, eager = network(preset)
    net.compile(backend=backend)
    counters.clear()
    for layout in layouts:
        batch = inputs(
            net, layout, 6, 9
        )  # sizes that are equal in the first batch are taken to be equal in all: here none are
        assert_same(results(net, batch), results(eager, batch))
    assert counters["aot_autograd"]["total"] == len(layouts)  # tracing never began anew, as it does for a number it finds
    with torch.compiler.set_stance("fail_on_recompile"):
        for size in range(20):
            for layout in layouts:
                batch = inputs(net, layout, 2 + size, 3 + size % 7)
                assert_same(results(net, batch), results(eager, batch))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("layout", ["dense", "masked"])
@pytest.mark.parametrize("preset", ["E", "iP", "C"])
def test_the_whole_graph_compiles(preset, layout, backend):
    net, eager = network(preset, blocks=1)
    compiled = torch.compile(net, fullgraph=True, backend=backend)
    batch = inputs(net, layout, 3, 5)
    assert_same(results(compiled, batch), results(eager, batch))


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["E", "iP"])
def test_a_compiled_network_refuses_to_be_differentiated_twice(preset):
    net, _ = network(preset, blocks=1)
    net.compile(backend="aot_eager")
    batch = inputs(net, "dense", 2, 4)
    batch["x"].requires_grad_()
    with pytest.raises(RuntimeError, match="a compiled network cannot be differentiated twice"):
        twice(net, batch)


def test_copies_of_a_compiled_network_are_eager(tmp_path):
    net, eager = network("E", blocks=1)
    net.compile(backend="aot_eager")
    save(net, tmp_path / "net.safetensors")
    batch = inputs(net, "dense", 2, 4)
    batch["x"].requires_grad_()
    for other in (copy.deepcopy(net), load(tmp_path / "net.safetensors")):
        assert torch.equal(twice(other, batch), twice(eager, batch))


def test_compiling_twice_adds_one_check():
    net, _ = network("E", blocks=1)
    for _ in range(2):
        net.compile(backend="aot_eager")
    assert len(net._forward_hooks) == 1


@pytest.mark.parametrize("layout", ["dense", "masked", "ragged"])
def test_a_network_compiles_without_a_c_compiler(layout, monkeypatch):
    _, eager = network("E", blocks=1)
    batch = inputs(eager, layout, 2, 4)
    expected = results(eager, batch)
    monkeypatch.setattr(build, "available", lambda: False)
    net, _ = network("E", blocks=1)
    net.compile(backend="aot_eager")
    assert_same(results(net, batch), expected)


@pytest.mark.slow
def test_a_compiled_network_is_exported():
    net, eager = network("E", blocks=1)
    net.compile(backend="aot_eager")
    graph, batch = program(net).module(), inputs(net, "dense", 2, 4)
    with torch.no_grad():
        assert_same(list(graph(**batch)), list(eager(**batch)))


def twice(net: GATr, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """The gradient of the size of a gradient."""
    x = batch["x"]
    (first,) = torch.autograd.grad(net(**batch)[0].square().sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), x)
    return second
