"""Every backend computes what the clear formulas say: values, gradients, second derivatives, on any shape of batch."""

import copy
import os
import subprocess
import sys
import warnings

import oracle
import pytest
import torch
from family import GEOMETRIES, SMALL, WIDTH, name, stream
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.nn.modules.module import register_module_forward_hook

import anygatr
from anygatr import ConditionalGATr, GATr
from anygatr.algebra import Algebra
from anygatr.equivariance.symmetry import Symmetry
from anygatr.execution import execute, watching
from anygatr.execution.c import build, prologue
from anygatr.execution.c import product as c_product
from anygatr.execution.c.backend import CBackend
from anygatr.execution.c.tensors import TOKENS
from anygatr.execution.observed import traced
from anygatr.nn import MLP, Block, EquiLinear, GatedGELU, GeometricBilinear, LayerNorm, SelfAttention, Width
from anygatr.nn.bilinear import Products
from anygatr.ops import product
from anygatr.ops.batch import Batch, join_reference
from anygatr.ops.ragged import pack
from anygatr.spaces.geometry import Geometry
from anygatr.spaces.presets import geometry

BACKENDS = ["torch", "c"]
PRESETS = ["E", "P", "iP", "C"]
BOUNDS = [(torch.float64, 1e-12), (torch.float32, 2e-5)]
WIDE, ODD = Width(16, 6), Width(18, 22)  # whole vectors of channels, and no multiple of any
WHOLE = (16, 32), (8, 40)  # vectors, that is: weights are transposed in registers, gradients added up in place


@pytest.fixture(autouse=True)
def no_fallback():
    """A kernel that cannot be built would be replaced by torch with a warning; here that is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


def batch_of(x, s, geo, mask=None, packed=None, dtype=None):
    number = join_reference(x, geo, mask, packed).detach()
    return Batch(number if dtype is None else number.to(dtype), x[..., :0], mask, packed, s[..., :0])


def batches(geo, rng, width, dtype=torch.float64):
    """A dense, a masked and a packed stream, each with its batch."""
    x, s = (t.to(dtype) for t in stream(geo, rng, (3, 5), width))
    mask = torch.arange(5) < torch.tensor([[5], [2], [4]])
    yield x, s, batch_of(x, s, geo)
    yield x, s, batch_of(x, s, geo, mask)
    x, s = (t.to(dtype) for t in stream(geo, rng, (11,), width))
    yield x, s, batch_of(x, s, geo, None, pack(torch.tensor([0, 5, 7, 11])))


def both(fast, clear, inputs, weights=()):
    """The largest relative difference of outputs and of gradients for random cotangents."""
    worst = 0.0
    results = []
    for call in (fast, clear):
        leaves = [t.detach().clone().requires_grad_() for t in inputs]
        outputs = [y for y in call(*leaves) if y.numel()]
        generator = torch.Generator().manual_seed(3)
        cotangents = [torch.randn(y.shape, generator=generator, dtype=y.dtype) for y in outputs]
        grads = torch.autograd.grad(outputs, [*leaves, *weights], cotangents, allow_unused=True)
        results.append([*outputs, *grads])
    for a, b in zip(*results, strict=True):
        if a is None or b is None or not a.numel():
            assert not any(t is not None and bool(t.any()) for t in (a, b))
            continue
        worst = max(worst, float((a - b).abs().max()) / max(float(b.abs().max()), 1e-12))
    return worst


def on(backend, layer, *more):
    """A layer as networks run it, by one backend."""

    def call(x, s):
        with anygatr.backend(backend):
            return execute(layer, x, s, *more)

    return call


def parameters(layer):
    return [p for p in layer.parameters() if p.numel()]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("geo", GEOMETRIES, ids=name)
@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [((4, 6), (3, 5)), ((4, 0), (3, 0)), ((0, 6), (3, 5)), ((4, 6), (0, 5)), ((1, 1), (1, 0)), ((3, 5), (8, 4)), WHOLE],
    ids=lambda w: f"{w[0]}-{w[1]}",
)
def test_linear_equals_the_sum_over_all_maps(geo, inputs, outputs, backend, rng):
    layer = EquiLinear(geo, Width(*inputs), Width(*outputs)).double()
    x, s = stream(geo, rng, width=Width(*inputs))
    assert both(on(backend, layer), lambda x, s: oracle.linear(layer, x, s), (x, s), parameters(layer)) < 1e-12


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("geo", GEOMETRIES, ids=name)
def test_bilinear_equals_dense_products(geo, backend, rng):
    layer = GeometricBilinear(geo, WIDTH, WIDTH * 2).double()
    x, s = stream(geo, rng)
    number = join_reference(x, geo)
    clear = lambda x, s: oracle.bilinear(layer, x, s, number)  # noqa: E731
    assert both(on(backend, layer, number), clear, (x, s), parameters(layer)) < 1e-11


@pytest.mark.parametrize("geo", SMALL, ids=name)
def test_both_forms_of_the_products_agree_in_every_derivative(geo, rng, monkeypatch):
    """Term by term, as on a CPU, and by gathers, as elsewhere and under torch.func: three derivatives, tangents, vmap."""
    layer, reference = Products(geo).double(), torch.full((2, 1), 0.7, dtype=torch.float64)
    h, v = (torch.randn(geo.algebra.dim, 2, 6 * len(geo.products), generator=rng, dtype=torch.float64) for _ in range(2))

    def run(h):
        return layer(h, reference)

    def by_autograd():
        h.requires_grad_()
        yield (value := run(h))
        for _ in range(3):
            (value,) = torch.autograd.grad((value * value.detach()).sum() + (value**3).sum(), h, create_graph=True)
            yield value

    by_terms = [t.detach() for t in by_autograd()]
    slope = torch.func.grad(lambda h: (run(h) * by_terms[0]).sum() + (run(h) ** 3).sum())
    few = torch.stack([h, v, h + v]).detach()
    transformed = [t.detach() for t in (slope(h), torch.func.jvp(slope, (h,), (v,))[1], torch.func.vmap(slope)(few)[0])]
    (curvature,) = torch.autograd.grad((list(by_autograd())[1] * v).sum(), h)
    for ours, theirs in zip(transformed, (by_terms[1], curvature, by_terms[1]), strict=True):
        assert (ours - theirs).abs().max() < 1e-12 * theirs.abs().max()
    monkeypatch.setattr(product, "eager_on_cpu", lambda *_: False)
    for ours, theirs in zip(by_terms, by_autograd(), strict=True):
        assert (ours - theirs).abs().max() < 1e-12 * theirs.abs().max()


@pytest.mark.parametrize("width", [Width(16, 1), Width(15, 1)], ids=str)  # in vectors, and in all that is left over
@pytest.mark.parametrize(("preset", "dtype"), [("E", torch.float32), ("iP", torch.float64), ("C", torch.float32)])
def test_products_by_tables_have_the_digits_of_unrolled_ones(preset, dtype, width, rng, monkeypatch):
    geo = geometry(preset)
    layer = MLP(geo, width).to(dtype)
    x, s = (t.to(dtype).requires_grad_() for t in stream(geo, rng, (7,), width))
    reference = torch.rand(7, 1, generator=rng, dtype=torch.float64).to(dtype)

    def everything():
        y, t = execute(layer, x, s, reference)
        return (
            y,
            t,
            *torch.autograd.grad(y.square().sum() + t.sum(), [x, s, *(p for p in layer.parameters() if p.requires_grad)]),
        )

    unrolled = everything()
    monkeypatch.setattr(c_product, "UNROLLED", 0)
    called = []
    monkeypatch.setattr(
        c_product, "tables_of", lambda *given, make=c_product.tables_of: called.append(given) or make(*given)
    )
    caches = (c_product.kernel, prologue.tables_of)
    for cache in caches:
        cache.cache_clear()
    try:
        by_tables = everything()
    finally:
        for cache in caches:
            cache.cache_clear()
    assert len(called) == 2  # forwards and backwards
    assert all(torch.equal(a, b) for a, b in zip(unrolled, by_tables, strict=True))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("preset", ["iP", "C"])
def test_the_join_reference_is_differentiated(preset, backend, rng):
    """It is made of the data: its gradient counts, above all where the network's inputs are differentiated."""
    geo = geometry(preset)
    layer = GeometricBilinear(geo, WIDTH, WIDTH * 2).double()
    x, s = stream(geo, rng)
    call = lambda x, s: on(backend, layer, join_reference(x, geo))(x, s)  # noqa: E731
    clear = lambda x, s: oracle.bilinear(layer, x, s, join_reference(x, geo))  # noqa: E731
    assert both(call, clear, (x, s), parameters(layer)) < 1e-11


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("form", ["add", "clamp"])
@pytest.mark.parametrize("norm", ["inner", "abs", "grade_abs", "balanced", "weight"])
@pytest.mark.parametrize("preset", ["E", "iP", "C", "L"])
def test_norm_equals_its_formula(preset, norm, form, backend, rng):
    """By itself and, in C, as the prologue of a linear map."""
    geo = geometry(preset, norm=norm, norm_form=form, norm_eps=0.3)
    x, s = stream(geo, rng)
    x = x * torch.linspace(0.01, 1, 5, dtype=torch.float64)[None, None, :, None]  # some tokens below eps, some above
    assert both(lambda x: [on(backend, LayerNorm(geo))(x, s)[0]], lambda x: [oracle.norm(geo, x)], (x,)) < 1e-12
    block = Block(geo, WIDTH, heads=2).double()
    clear = lambda x, s: oracle.block(block, x, s, join_reference(x, geo).detach())  # noqa: E731
    assert both(on(backend, block, batch_of(x, s, geo)), clear, (x, s), parameters(block)) < 1e-9


def test_gate_equals_its_formula(rng):
    x, s = stream(geometry("C"), rng)
    assert both(lambda x: [GatedGELU()(x, s)[0]], lambda x: [oracle.gate(x)], (x,)) < 1e-12


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("multi_query", [True, False], ids=["shared", "multi"])
@pytest.mark.parametrize("geo", GEOMETRIES, ids=name)
def test_block_equals_the_clear_block(geo, multi_query, backend, rng):
    torch.manual_seed(0)
    layer = Block(geo, WIDTH, heads=2, multi_query=multi_query).double()
    for log_weight in layer.attention.attend.log_weights:
        torch.nn.init.normal_(log_weight)
    torch.nn.init.normal_(layer.attention.out.weight)
    x, s = stream(geo, rng)
    batch = batch_of(x, s, geo)
    clear = lambda x, s: oracle.block(layer, x, s, batch.reference)  # noqa: E731
    assert both(on(backend, layer, batch), clear, (x, s), parameters(layer)) < 1e-9


@pytest.mark.parametrize(("dtype", "bound"), BOUNDS, ids=["64", "32"])
@pytest.mark.parametrize("geo", GEOMETRIES, ids=name)
def test_c_gives_what_torch_gives(geo, dtype, bound, rng):
    block = Block(geo, WIDTH, heads=2).to(dtype)
    for x, s, batch in batches(geo, rng, WIDTH, dtype):
        assert both(on("c", block, batch), on("torch", block, batch), (x, s), parameters(block)) < bound


@pytest.mark.parametrize("options", [{"rope": True, "multi_query": False}, {"inner_norm": True}, {"dropout": 0.0}], ids=str)
@pytest.mark.parametrize("preset", PRESETS)
def test_c_gives_what_torch_gives_with_options(preset, options, rng):
    geo = geometry(preset)
    block = Block(geo, WIDE, heads=2, **options).double()
    for x, s, batch in batches(geo, rng, WIDE):
        assert both(on("c", block, batch), on("torch", block, batch), (x, s), parameters(block)) < 1e-12


@pytest.mark.parametrize("width", [ODD, Width(1, 3), Width(3, 0), Width(5, 1), Width(7, 7), Width(0, 4)], ids=str)
@pytest.mark.parametrize("preset", PRESETS)
def test_odd_widths_and_more_tokens_than_a_tile(preset, width, rng):
    geo = geometry(preset)
    torch.manual_seed(0)
    block = Block(geo, width, heads=1).double()
    torch.nn.init.normal_(block.attention.out.weight)
    x, s = stream(geo, rng, (3, 47), width)
    batch = batch_of(x, s, geo)
    assert both(on("c", block, batch), on("torch", block, batch), (x, s), parameters(block)) < 1e-11


def test_the_backend_that_was_asked_for_runs(rng):
    geo = geometry("iP")
    block = Block(geo, WIDE, heads=2).double()
    x, s = (t.requires_grad_() for t in stream(geo, rng, width=WIDE))
    batch = batch_of(x.detach(), s.detach(), geo)
    assert nodes(on("c", block, batch)(x, s)[0]) == ["SegmentFunctionBackward"]
    assert nodes(on("auto", block, batch)(x, s)[0]) == ["SegmentFunctionBackward"]
    assert nodes(on("torch", block, batch)(x, s)[0]) == []
    with pytest.raises(ValueError, match=r"backend='none' is not one of 'auto', 'torch', 'c'"):
        anygatr.backend("none")
    assert ["c", "available"] in [line.split() for line in str(anygatr.backends()).splitlines()]


def nodes(y):
    """The operations of ours behind a result."""
    found, todo = set(), [y.grad_fn]
    while todo:
        node = todo.pop()
        if node is not None and node not in found:
            found.add(node)
            todo += [below for below, _ in node.next_functions]
    return sorted(node.name() for node in found if node.name() == "SegmentFunctionBackward")


def test_without_a_compiler_torch_runs_and_says_why(rng, monkeypatch):
    geo = geometry("iP")
    block = Block(geo, WIDE, heads=2).double()
    x, s = stream(geo, rng, width=WIDE)
    batch = batch_of(x, s, geo)
    expected = on("torch", block, batch)(x, s)
    monkeypatch.setattr(build, "available", lambda: False)
    monkeypatch.setattr(build, "reason", lambda: "no compiler")
    assert all(torch.equal(a, b) for a, b in zip(execute(block, x, s, batch), expected, strict=True))
    assert dict(anygatr.backends())["c"] == "no compiler"
    with pytest.raises(ValueError, match=r"backend='c' is not available here: no compiler; use 'auto'"):
        anygatr.backend("c")


@pytest.mark.parametrize("when", ["forward", "backward"])
def test_a_kernel_that_cannot_be_built_leaves_it_to_torch(when, rng, monkeypatch):
    geo = geometry("iP")
    block = Block(geo, WIDE, heads=2).double()
    x, s = (t.requires_grad_() for t in stream(geo, rng, width=WIDE))
    batch = batch_of(x.detach(), s.detach(), geo)
    expected = torch.autograd.grad(on("torch", block, batch)(x, s)[0].square().sum(), (x, s))

    def fails(*_, **__):
        raise build.BuildError("the disk is full")

    from anygatr.execution.c import linear

    y = None if when == "forward" else execute(block, x, s, batch)[0]
    monkeypatch.setattr(linear, when, fails)
    y = execute(block, x, s, batch)[0] if y is None else y
    found = torch.autograd.grad(y.square().sum(), (x, s))
    assert max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(found, expected, strict=True)) < 1e-12


@pytest.mark.parametrize("which", [0, 1])
def test_one_of_two_results_may_be_unused(which, rng):
    geo = geometry("C")
    block = Block(geo, WIDTH, heads=2).double()
    x, s = stream(geo, rng)
    batch = batch_of(x, s, geo)
    one = lambda backend: lambda x, s: [on(backend, block, batch)(x, s)[which]]  # noqa: E731
    assert both(one("c"), one("torch"), (x, s)) < 1e-12


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("geo", SMALL, ids=name)
def test_second_derivatives(geo, backend, rng):
    for layer in (EquiLinear(geo, WIDTH, Width(2, 1)), MLP(geo, Width(2, 2)), Block(geo, Width(2, 2), heads=2)):
        width = layer.inputs
        x, s = stream(geo, rng, (1, 3), width)
        more = {EquiLinear: (), MLP: (join_reference(x, geo),), Block: (batch_of(x, s, geo),)}[type(layer)]
        call = on(backend, layer.double(), *more)
        leaves = (x.requires_grad_(), s.requires_grad_())
        assert gradcheck(call, leaves, fast_mode=True)
        assert gradgradcheck(call, leaves, fast_mode=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("geo", GEOMETRIES, ids=name)
def test_without_derivatives_every_digit_is_the_same(geo, dtype, rng):
    block = Block(geo, WIDE, heads=2).to(dtype)
    plain, weight = copy.deepcopy(block), block.mlp.out.s_to_s
    weight.data = weight.data.T.contiguous().T  # C has to be given a copy
    assert not weight.is_contiguous()
    for x, s, batch in batches(geo, rng, WIDE, dtype):
        expected = execute(plain, x, s, batch)
        with torch.no_grad():
            found = execute(block, x, s, batch)
        with torch.inference_mode():
            alone = execute(block.attention, x, s, batch)
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
        assert not any(t.requires_grad for t in found)
        assert all(torch.equal(a, b) for a, b in zip(alone, execute(block.attention, x, s, batch), strict=True))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("samples", "length"), [(150, 1), (9, 17), (5, 64), (2, 65), (1, 200)])
@pytest.mark.parametrize("preset", ["iP", "C"])
def test_samples_of_any_length_are_whole_in_their_tiles(preset, samples, length, threads, rng):
    """Without derivatives attention on short samples runs inside the tiles of the maps around it.

    Tiles of another length may round a token's last digit otherwise.
    """
    geo = geometry(preset)
    block = Block(geo, WIDE, heads=4, multi_query=samples % 2 == 0)
    for log_weight in block.attention.attend.log_weights:
        torch.nn.init.normal_(log_weight)
    x, s = (t.float() for t in stream(geo, rng, (samples, length), WIDE))
    batch, before = batch_of(x, s, geo), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        expected = execute(block, x, s, batch)
        with torch.no_grad():
            found = execute(block, x, s, batch)
    finally:
        torch.set_num_threads(before)
    bound = 1e-6 if TOKENS % length and length < TOKENS else 0
    assert max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(found, expected, strict=True)) <= bound


@pytest.mark.parametrize("width", [ODD, Width(16, 32)], ids=["odd", "whole"])
@pytest.mark.parametrize("preset", PRESETS)
def test_two_threads_give_the_same(preset, width, rng):
    geo = geometry(preset)
    torch.manual_seed(0)
    block = Block(geo, width, heads=2).double()
    x, s = stream(geo, rng, (3, 147), width)
    call = on("c", block, batch_of(x, s, geo))

    def threaded(x, s):
        torch.set_num_threads(2)
        return call(x, s)

    try:  # the gradients of the first call are taken before the second call: with one thread, then with two
        assert both(call, threaded, (x, s), parameters(block)) < 1e-10
    finally:
        torch.set_num_threads(1)


def test_fewer_threads_than_asked_for_give_the_same():
    """The system may refuse threads; what they would have added up must not be taken for something."""
    script = """
import torch
from anygatr import geometry
from anygatr.execution import execute
from anygatr.nn import EquiLinear, Width
torch.manual_seed(0)
layer = EquiLinear(geometry("iP"), Width(16, 32), Width(8, 40))
x, s = torch.randn(16, 300, 16), torch.randn(300, 32)
found = []
for threads in (1, 2):
    torch.set_num_threads(threads)
    [torch.full((n,), torch.nan) for n in range(1000, 100_000, 1000)]  # what freed memory holds
    y, t = execute(layer, x, s)
    found.append(torch.autograd.grad(y.square().sum() + t.square().sum(), [*layer.parameters()]))
assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-2) for a, b in zip(*found))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "OMP_THREAD_LIMIT": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_any_group_of_any_algebra(rng):
    """A group nobody named: rotations about one axis in G(3, 0, 0) and a boost in G(2, 1, 0), with more invariants."""
    for alg, blade in ((Algebra(3), "e12"), (Algebra(2, 1), "e13")):
        geo = Geometry(alg, Symmetry(alg, [alg[blade]]), axes=alg.names)
        layer = EquiLinear(geo, WIDTH, WIDTH).double()
        assert len(layer.invariant) > 2
        x, s = stream(geo, rng)
        for backend in BACKENDS:
            clear = lambda x, s, layer=layer: oracle.linear(layer, x, s)  # noqa: E731
            assert both(on(backend, layer), clear, (x, s), parameters(layer)) < 1e-12


# where somebody looks inside, the module itself runs


def test_a_hook_sees_what_the_module_computes(rng):
    geo = geometry("iP")
    block = Block(geo, WIDTH, heads=2).double()
    x, s = stream(geo, rng)
    batch = batch_of(x, s, geo)
    unseen, seen = execute(block, x, s, batch), []
    for layer in (block.norm, block.mlp.activation):
        layer.register_forward_hook(lambda layer, inputs, outputs: seen.append(type(layer)))
    assert all(torch.allclose(a, b, atol=1e-12) for a, b in zip(execute(block, x, s, batch), unseen, strict=True))
    assert seen == [LayerNorm, LayerNorm, GatedGELU]


@pytest.mark.parametrize("grad", [True, False])
def test_hooks_on_all_modules_see_all_layers(grad, rng):
    geo = geometry("iP")
    block = Block(geo, WIDE, heads=2).double()
    x, s = stream(geo, rng, width=WIDE)
    batch, seen = batch_of(x, s, geo), set()
    hook = register_module_forward_hook(lambda module, *_: seen.add(module))
    with torch.set_grad_enabled(grad):
        execute(block, x, s, batch)
    hook.remove()
    assert {block.norm, block.attention.qkv, block.attention.attend, block.mlp.bilinear.out, block.mlp.activation} <= seen


@pytest.mark.parametrize("how", ["another layer", "a subclass", "another forward"])
def test_a_layer_in_the_place_of_ours_is_used(how, rng):
    class Halved(LayerNorm):
        def forward(self, x, s):
            return x / 2, s / 2

    class Other(torch.nn.Module):
        forward = Halved.forward

    geo = geometry("iP")
    block = Block(geo, WIDTH, heads=2).double()
    x, s = stream(geo, rng)
    batch = batch_of(x, s, geo)
    execute(block, x, s, batch)  # its program is known before the layer is exchanged
    a, b = block.attention(x / 2, s / 2, batch)
    middle = x + a, s + b
    a, b = block.mlp(middle[0] / 2, middle[1] / 2, batch.reference)
    expected = middle[0] + a, middle[1] + b
    if how == "another forward":
        block.norm.forward = lambda x, s: (x / 2, s / 2)
    else:
        block.norm = Other() if how == "another layer" else Halved(geo)
    assert all(torch.allclose(a, b, atol=1e-10) for a, b in zip(execute(block, x, s, batch), expected, strict=True))


def test_dropout_is_followed_into_training_and_back(rng):
    geo = geometry("iP")
    block = Block(geo, WIDE, heads=2, dropout=0.5).double().eval()
    x, s = stream(geo, rng, width=WIDE)
    batch = batch_of(x, s, geo)
    still = execute(block, x, s, batch)[0]
    block.train()
    assert not torch.allclose(execute(block, x, s, batch)[0], still)
    block.eval()
    assert torch.equal(execute(block, x, s, batch)[0], still)


@pytest.mark.parametrize("backend", BACKENDS)
def test_watching_changes_no_digit(backend, rng):
    geo = geometry("C")
    block = Block(geo, WIDE, heads=2).double()
    x, s = stream(geo, rng, width=WIDE)
    batch, seen = batch_of(x, s, geo), []
    plain = on(backend, block, batch)(x, s)
    with watching(lambda module, step, values: seen.append((step.layer, values[0]))):
        watched = on(backend, block, batch)(x, s)
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))
    names = [layer for layer, _ in seen]
    assert [n for n in names if n.endswith(("qkv", "attend", "out", "factors"))] == [
        *("attention.qkv", "attention.attend", "attention.out"),
        *("mlp.bilinear.factors", "mlp.bilinear.out", "mlp.out"),
    ]
    assert backend != "c" or "norm" not in names  # a prologue there, of which nothing is kept in memory


# what torch does to tensors besides computing


def test_tensors_without_numbers_leave_nothing_behind():
    """Networks also run on tensors that have only shapes; real ones must not meet what those leave behind."""
    net = GATr(geometry("E"), Width(1, 1), Width(16, 8), Width(1, 1), blocks=1, heads=2)
    inputs = [torch.randn(2, 19, 1, net.geometry.algebra.dim), torch.randn(2, 19, 1)]  # a length no other test has
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        y, _ = net(*(mode.from_tensor(t) for t in inputs))
        assert isinstance(y, FakeTensor)
    assert net(*inputs)[0].isfinite().all()


def test_function_transforms_run_on_torch():
    net = GATr(geometry("E"), Width(1, 1), Width(16, 8), Width(1, 1), blocks=1, heads=2)
    inputs = torch.randn(2, 23, 1, net.geometry.algebra.dim), torch.randn(2, 23, 1)
    weights = {key: p.detach() for key, p in net.named_parameters()}
    found = torch.func.grad(lambda weights: torch.func.functional_call(net, weights, inputs)[0].square().sum())(weights)
    net(*inputs)[0].square().sum().backward()
    for key, p in net.named_parameters():
        assert p.grad is None or torch.allclose(found[key], p.grad, atol=1e-4 * float(p.grad.abs().max()))


@pytest.mark.parametrize("grad", [True, False])
def test_tensors_that_outlive_a_transform_are_taken(grad):
    net = GATr(geometry("E"), Width(1, 1), Width(16, 8), Width(1, 1), blocks=1, heads=2)
    x, s = torch.randn(2, 7, 1, net.geometry.algebra.dim), torch.randn(2, 7, 1)
    left = []
    torch.func.grad(lambda t: (left.append(t), t.sum())[1])(x)
    with torch.set_grad_enabled(grad):
        assert torch.equal(net(left[0], s)[0], net(x, s)[0])


def test_tangents_are_followed(rng):
    """Forward-mode derivatives: the C backend leaves them to torch."""
    geo = geometry("E")
    block = Block(geo, WIDE, heads=2).double()
    x, s = stream(geo, rng, width=WIDE)
    batch, direction = batch_of(x, s, geo), torch.ones_like(x)
    with torch.no_grad(), forward_ad.dual_level():
        y, _ = execute(block, forward_ad.make_dual(x, direction), s, batch)
        tangent = forward_ad.unpack_dual(y).tangent
    step = 1e-6
    ends = [execute(block, x + sign * step * direction, s, batch)[0] for sign in (1, -1)]
    assert torch.allclose(tangent, (ends[0] - ends[1]) / (2 * step), atol=1e-6)


def test_what_c_does_not_accept(rng):
    geo = geometry("E")
    block = Block(geo, WIDE, heads=2)
    x, s = (t.float() for t in stream(geo, rng, width=WIDE))
    found = traced(block, (x, s, batch_of(x, s, geo)))
    accepts = lambda *values: CBackend().accepts(found.program, values, found.bind(())[1])  # noqa: E731
    assert accepts(x, s)
    assert not accepts(x.double(), s)
    assert not accepts(x.half(), s.half())
    assert not accepts(x.to("meta"), s)
    assert not accepts(x[:, :0], s[:0])
    with torch.autocast("cpu", torch.bfloat16):
        assert not accepts(x, s)


def test_empty_batches_come_out_empty():
    net = GATr(geometry("iP"), Width(1, 1), Width(4, 8), Width(1, 1), blocks=1, heads=2)
    y, t = net(torch.zeros(0, 5, 1, 16), torch.zeros(0, 5, 1))
    assert (y.shape, t.shape) == ((0, 5, 1, 16), (0, 5, 1))


def test_conditions_are_attended_to_alike(rng):
    geo = geometry("C")
    net = ConditionalGATr(geo, Width(1, 2), Width(2, 1), Width(4, 8), Width(1, 1), blocks=1, heads=2).double()
    x, s, cx, cs = net.example(5)
    mask = torch.tensor([True, True, False, True, True])
    found = []
    for backend in BACKENDS:
        with anygatr.backend(backend):
            found.append(net(x, s, cx, cs, condition_mask=mask))
    assert all(torch.allclose(a, b, atol=1e-12) for other in found[1:] for a, b in zip(found[0], other, strict=True))


def test_attention_alone_is_run_by_c(rng):
    geo = geometry("iP")
    layer = SelfAttention(geo, WIDE, heads=2, reinsert=2, reinsert_s=1).double()
    x, s = stream(geo, rng, width=WIDE)
    batch = batch_of(x, s, geo)._replace(inputs=x[..., :2], scalars=s[..., :1])
    assert both(on("c", layer, batch), on("torch", layer, batch), (x, s), parameters(layer)) < 1e-11


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_do_not_suffer_from_large_logits(backend):
    """In float32 the logarithm of a sum of large exponentials is rounded: attention's weights do not quite sum to 1."""
    torch.manual_seed(0)
    net = GATr(geometry("iP"), Width(2, 3), Width(4, 8), Width(1, 2), blocks=2, heads=2, reinsert=(0,))
    exact, generator = copy.deepcopy(net).double(), torch.Generator().manual_seed(903)
    mask = torch.rand(9, 3, generator=generator) < 0.7
    x, s = torch.randn(9, 3, 2, 16, generator=generator), torch.randn(9, 3, 3, generator=generator)

    def gradient(net, dtype):
        y, t = net(x.to(dtype), s.to(dtype), mask=mask)
        (y.square().mean() + t.square().mean()).backward()
        return net.blocks[0].attention.again.weight.grad

    with anygatr.backend(backend):
        found, expected = gradient(net, torch.float32), gradient(exact, torch.float64)
    assert (found - expected).abs().max() < 1e-3 * expected.abs().max()
