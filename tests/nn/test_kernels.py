"""The fast forms equal the clear ones, in value, in gradient and in the gradient's gradient."""

import os
import subprocess
import sys

import oracle
import pytest
import torch
from family import GEOMETRIES, SMALL, WIDTH, name, stream
from torch.autograd import gradcheck, gradgradcheck

from anygatr.algebra import Algebra
from anygatr.equivariance.symmetry import Symmetry
from anygatr.kernels import native
from anygatr.kernels.linear import equi_linear
from anygatr.kernels.linear_plan import Weights, linear_plan
from anygatr.kernels.maps_source import PAST, TOKENS
from anygatr.kernels.norm import norm_plan, normalise
from anygatr.kernels.product import product_plan, products
from anygatr.kernels.prologue import NOTHING, Prologue
from anygatr.kernels.runs import runs, transposed, unwritten
from anygatr.nn import Block, EquiLinear, GatedGELU, GeometricBilinear, LayerNorm, Width
from anygatr.nn.batch import Batch, reference
from anygatr.spaces.geometry import Geometry
from anygatr.spaces.presets import geometry


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


WHOLE = (16, 32), (8, 40)  # vectors, that is: weights are transposed in registers, gradients added up in place


@pytest.mark.parametrize("geo", GEOMETRIES, ids=name)
@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [((4, 6), (3, 5)), ((4, 0), (3, 0)), ((0, 6), (3, 5)), ((4, 6), (0, 5)), ((1, 1), (1, 0)), ((3, 5), (8, 4)), WHOLE],
    ids=lambda w: f"{w[0]}-{w[1]}",
)
def test_linear_equals_the_sum_over_all_maps(geo, inputs, outputs, rng):
    layer = EquiLinear(geo, Width(*inputs), Width(*outputs)).double()
    weights = [p for p in layer.parameters() if p.numel()]
    x, s = stream(geo, rng, width=Width(*inputs))
    assert both(layer, lambda x, s: oracle.linear(layer, x, s), (x, s), weights) < 1e-12


def prologues(geo):
    """All that linear layers do on their way."""
    activations = [GatedGELU(form).prologue for form in ("exact", "tanh")]
    return [LayerNorm(geo).prologue, *activations, Prologue(scalars="norm"), NOTHING]


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-12), (torch.float32, 2e-5)], ids=["64", "32"])
@pytest.mark.parametrize("preset", ["E", "P", "iP", "C", "L"])
@pytest.mark.parametrize(
    ("inputs", "outputs"), [((18, 22), (3, 5)), ((4, 0), (3, 2)), ((0, 6), (3, 5)), ((4, 6), (0, 5))], ids=str
)
def test_what_a_linear_layer_does_on_its_way_equals_the_steps(preset, inputs, outputs, dtype, bound, rng):
    geo, inputs, outputs = geometry(preset), Width(*inputs), Width(*outputs)
    layer = EquiLinear(geo, inputs, outputs).to(dtype)
    weights = [p for p in layer.parameters() if p.numel()]
    tokens = (3, 47)  # more than a tile
    given = [t.to(dtype) for width in (inputs, outputs) for t in stream(geo, rng, tokens, width)]
    for before in prologues(geo):

        def together(x, s, onto_x, onto_s, before=before):
            return layer(x, s, before, (onto_x, onto_s))

        def steps(x, s, onto_x, onto_s, before=before):
            y, t = layer(*before(x, s))
            return onto_x + y, onto_s + t

        assert both(together, steps, given, weights) < bound
        assert before == NOTHING or both(lambda x, s, b=before: layer(x, s, b), layer, given[:2]) > 1e-3 or 0 in inputs


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-12), (torch.float32, 2e-5)], ids=["64", "32"])
@pytest.mark.parametrize("hidden", [3, 24])
@pytest.mark.parametrize("preset", ["E", "iP", "C"])
def test_products_on_the_way_equal_the_steps(preset, hidden, dtype, bound, rng, monkeypatch):
    geo = geometry(preset)
    names = ("geometric", "geometric")
    layer = EquiLinear(geo, Width(2 * hidden, 5), Width(3, 4)).to(dtype)
    x, s = (t.to(dtype) for t in stream(geo, rng, (3, 47), Width(4 * hidden, 5)))
    number = torch.randn(3, 1, 1, generator=rng, dtype=dtype)
    for odd in (False, True):
        plan = product_plan(geo.algebra, names, (False, odd))
        before, given = Prologue(scalars="norm", products=plan, referred=odd), number if odd else None

        def together(x, s, before=before, given=given):
            return layer(x, s, before, reference=given)

        def interrupted(x, s, before=before, given=given):
            out = layer(x, s, before, reference=given)
            monkeypatch.setattr(native, "compiler", lambda: None)
            return out

        def steps(x, s, plan=plan, odd=odd):
            first, second = (products(part, product_plan(geo.algebra, names[:1])) for part in x.chunk(2, -1))
            return layer(torch.cat((first, number * second if odd else second), -1), s, Prologue(scalars="norm"))

        assert both(together, steps, (x, s), list(layer.parameters())) < bound
        assert both(interrupted, steps, (x, s), list(layer.parameters())) < bound
        monkeypatch.undo()
        assert not odd or both(together, lambda x, s: steps(x, s, odd=False), (x, s)) > 1e-3


@pytest.mark.parametrize("preset", ["E", "iP", "C"])
@pytest.mark.parametrize("outputs", [Width(32, 3), Width(31, 0)], ids=lambda w: f"{w.mv}")
def test_large_results_are_those_of_their_parts(preset, outputs, rng):
    """They are written past the caches, smaller ones are not; every token is computed alike."""
    geo, inputs = geometry(preset), Width(32, 5)
    layer = EquiLinear(geo, inputs, outputs)
    tokens = 2 * PAST // (4 * geo.algebra.dim * min(inputs.mv, outputs.mv)) + 7
    x, s = (t.float() for t in stream(geo, rng, (tokens,), inputs))
    onto = tuple(t.float() for t in stream(geo, rng, (tokens,), outputs))
    for before in (LayerNorm(geo).prologue, NOTHING):

        def results(start, stop, before=before):
            part = [t[..., start:stop, :].clone().requires_grad_() for t in (x, s, *onto)]
            y, t = layer(*part[:2], before, tuple(part[2:]))
            return [y, t, *torch.autograd.grad(y.square().sum() + t.square().sum(), part)]

        few = PAST // (4 * geo.algebra.dim * inputs.mv) // TOKENS * TOKENS - TOKENS  # whole tiles: each as in the whole
        parts = [results(start, start + few) for start in range(0, tokens, few)]
        for whole, *cut in zip(results(0, tokens), *parts, strict=True):
            assert torch.equal(whole, torch.cat(cut, -2))


def test_one_number_serves_all_tokens(rng):
    geo = geometry("iP")
    h, _ = stream(geo, rng, (5,), Width(8, 0))
    even, odd = (product_plan(geo.algebra, ("join",), (flag,)) for flag in (False, True))
    found = products(h, odd, torch.full((1, 1), 3.0, dtype=torch.float64))
    assert float((found - 3 * products(h, even)).abs().max()) < 1e-12 < float(found.abs().max())


@pytest.mark.parametrize("preset", ["E", "iP"])
def test_products_on_the_way_have_second_derivatives(preset, rng):
    geo = geometry(preset)
    layer = EquiLinear(geo, Width(4, 1), Width(1, 1)).double()
    before = Prologue(products=product_plan(geo.algebra, ("geometric",), (True,)), referred=True)
    x, s = (t.requires_grad_() for t in stream(geo, rng, (2,), Width(8, 1)))
    number = torch.randn(2, 1, generator=rng, dtype=torch.float64)
    assert gradgradcheck(lambda x, s: layer(x, s, before, reference=number), (x, s), fast_mode=True)


def test_gradients_of_a_prologue_survive_the_loss_of_the_compiler(rng, monkeypatch):
    geo = geometry("iP")
    layer = EquiLinear(geo, WIDTH, WIDTH).double()
    x, s = stream(geo, rng)
    for before in prologues(geo):

        def interrupted(x, s, before=before):
            out = layer(x, s, before)
            monkeypatch.setattr(native, "compiler", lambda: None)  # gradients are taken after this call
            return out

        assert both(interrupted, lambda x, s, b=before: layer(*b(x, s)), (x, s), list(layer.parameters())) < 1e-12
        monkeypatch.undo()


def test_a_layer_with_hooks_runs_by_itself(rng):
    geo = geometry("iP")
    block = Block(geo, WIDTH, heads=2).double()
    x, s = stream(geo, rng)
    batch = Batch(reference(x, geo), x[..., :0])
    unseen, seen = block(x, s, batch), []
    for layer in (block.norm, block.mlp.activation):
        layer.register_forward_hook(lambda layer, inputs, outputs: seen.append(type(layer)))
    assert all(torch.allclose(a, b, atol=1e-12) for a, b in zip(block(x, s, batch), unseen, strict=True))
    assert seen == [LayerNorm, LayerNorm, GatedGELU]
    out = block.mlp.bilinear.out
    out.register_forward_pre_hook(lambda layer, inputs: seen.append(inputs[0].shape[-1]))
    assert all(torch.allclose(a, b, atol=1e-12) for a, b in zip(block(x, s, batch), unseen, strict=True))
    assert out.inputs.mv in seen  # products, not their factors


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
    batch = Batch(reference(x, geo), x[..., :0])
    a, b = block.attention(x / 2, s / 2, batch)
    middle = x + a, s + b
    a, b = block.mlp(middle[0] / 2, middle[1] / 2, batch.reference)
    expected = middle[0] + a, middle[1] + b
    if how == "another forward":
        block.norm.forward = lambda x, s: (x / 2, s / 2)
    else:
        block.norm = Other() if how == "another layer" else Halved(geo)
    assert all(torch.allclose(a, b, atol=1e-10) for a, b in zip(block(x, s, batch), expected, strict=True))


@pytest.mark.parametrize("geo", GEOMETRIES, ids=name)
def test_bilinear_equals_dense_products(geo, rng):
    layer = GeometricBilinear(geo, WIDTH, WIDTH * 2).double()
    x, s = stream(geo, rng)
    call = lambda x, s: layer(x, s, reference(x, geo))  # noqa: E731
    clear = lambda x, s: oracle.bilinear(layer, x, s, reference(x, geo))  # noqa: E731
    weights = [p for p in layer.parameters() if p.numel()]
    assert both(call, clear, (x, s), weights) < 1e-11


@pytest.mark.parametrize("form", ["add", "clamp"])
@pytest.mark.parametrize("norm", ["inner", "abs", "grade_abs"])
@pytest.mark.parametrize("preset", ["E", "iP", "C", "L"])
def test_norm_equals_its_formula(preset, norm, form, rng):
    geo = geometry(preset, norm=norm, norm_form=form, norm_eps=0.3)
    x, s = stream(geo, rng)
    x = x * torch.linspace(0.01, 1, 5, dtype=torch.float64)[None, None, :, None]  # some tokens below eps, some above
    layer = LayerNorm(geo)
    assert both(lambda x: [layer(x, s)[0]], lambda x: [oracle.norm(geo, x)], (x,)) < 1e-12


def test_gate_equals_its_formula(rng):
    x, s = stream(geometry("C"), rng)
    assert both(lambda x: [GatedGELU()(x, s)[0]], lambda x: [oracle.gate(x)], (x,)) < 1e-12


@pytest.mark.parametrize("multi_query", [True, False], ids=["shared", "multi"])
@pytest.mark.parametrize("geo", GEOMETRIES, ids=name)
def test_block_equals_the_clear_block(geo, multi_query, rng):
    torch.manual_seed(0)
    layer = Block(geo, WIDTH, heads=2, multi_query=multi_query).double()
    for log_weight in layer.attention.attend.log_weights:
        torch.nn.init.normal_(log_weight)
    torch.nn.init.normal_(layer.attention.out.weight)
    x, s = stream(geo, rng)
    call = lambda x, s: layer(x, s, Batch(reference(x, geo), x[..., :0]))  # noqa: E731
    clear = lambda x, s: oracle.block(layer, x, s, reference(x, geo))  # noqa: E731
    assert both(call, clear, (x, s), [p for p in layer.parameters() if p.numel()]) < 1e-9


@pytest.mark.parametrize("geo", SMALL, ids=name)
def test_linear_has_second_derivatives(geo, rng):
    plan = linear_plan(geo.linear_basis)
    maps, invariants = plan.mixing.shape[0], len(plan.invariant)
    shapes = [
        (plan.blades, 3, 1),
        (3, 2),
        (2, 1, maps),
        (invariants, 2, 2),
        (invariants, 1, 1),
        (1, 2),
        (invariants, 2),
        (1,),
    ]
    inputs = [torch.randn(*shape, generator=rng, dtype=torch.float64, requires_grad=True) for shape in shapes]
    onto = [torch.randn(*shape, generator=rng, dtype=torch.float64) for shape in ((plan.blades, 3, 2), (3, 1))]
    for before in prologues(geo):
        call = lambda x, s, *weights, b=before: equi_linear(x, s, Weights(*weights), plan.mixing, plan, b, onto)  # noqa: E731
        assert gradcheck(call, inputs, fast_mode=True)
        assert gradgradcheck(call, inputs, fast_mode=True)


@pytest.mark.parametrize("geo", SMALL, ids=name)
def test_products_norm_and_gate_have_second_derivatives(geo, rng):
    plan = product_plan(geo.algebra, ("geometric", "join"))
    h = torch.randn(geo.algebra.dim, 2, 4, generator=rng, dtype=torch.float64, requires_grad=True)
    x = torch.randn(geo.algebra.dim, 2, 2, generator=rng, dtype=torch.float64, requires_grad=True)
    norms = [norm_plan(geo.algebra, norm, 0.1, form) for norm in ("inner", "abs", "grade_abs") for form in ("add", "clamp")]
    calls = [(lambda h: products(h, plan), h), (lambda x: GatedGELU()(x, x[0])[0], x)]
    for call, leaf in [*calls, *((lambda x, p=p: normalise(x, p), x) for p in norms)]:
        assert gradcheck(call, (leaf,), fast_mode=True)
        assert gradgradcheck(call, (leaf,), fast_mode=True)


@pytest.mark.parametrize("geo", SMALL, ids=name)
def test_block_has_second_derivatives(geo, rng):
    layer = Block(geo, Width(2, 2), heads=2).double()
    x, s = stream(geo, rng, (1, 3), Width(2, 2))
    call = lambda x, s: layer(x, s, Batch(reference(x, geo), x[..., :0]))  # noqa: E731
    assert gradgradcheck(call, (x.requires_grad_(), s.requires_grad_()), fast_mode=True)


ODD = Width(18, 22)  # no multiple of vectors


def wide_block(geo, width=ODD):
    """For more tokens than a tile."""
    torch.manual_seed(0)
    layer = Block(geo, width, heads=2).double()
    torch.nn.init.normal_(layer.attention.out.weight)
    return lambda x, s: layer(x, s, Batch(reference(x, geo), x[..., :0])), [p for p in layer.parameters() if p.numel()]


@pytest.mark.parametrize("preset", ["E", "P", "iP", "C"])
def test_without_a_compiler_torch_gives_the_same(preset, rng, monkeypatch):
    geo = geometry(preset)
    call, weights = wide_block(geo)
    x, s = stream(geo, rng, (3, 47), Width(18, 22))

    def without(x, s):
        monkeypatch.setattr(native, "compiler", lambda: None)  # for the gradients, too, which are taken after this call
        assert not native.applies(x)
        return call(x, s)

    if native.compiler() is None:
        pytest.skip("there is no C compiler to compare with")
    assert both(call, without, (x, s), weights) < 1e-10


@pytest.mark.parametrize("width", [ODD, Width(16, 32)], ids=["odd", "whole"])
@pytest.mark.parametrize("preset", ["E", "P", "iP", "C"])
def test_two_threads_give_the_same(preset, width, rng):
    geo = geometry(preset)
    call, weights = wide_block(geo, width)

    def threaded(x, s):
        torch.set_num_threads(2)
        return call(x, s)

    try:  # the gradients of the first call are taken before the second call: with one thread, then with two
        assert both(call, threaded, stream(geo, rng, (3, 147), width), weights) < 1e-10
    finally:
        torch.set_num_threads(1)


def test_fewer_threads_than_asked_for_give_the_same():
    """The system may refuse threads; what they would have added up must not be taken for something."""
    script = """
import torch
from anygatr import geometry
from anygatr.nn import EquiLinear, Width
torch.manual_seed(0)
layer = EquiLinear(geometry("iP"), Width(16, 32), Width(8, 40))
x, s = torch.randn(16, 300, 16), torch.randn(300, 32)
found = []
for threads in (1, 2):
    torch.set_num_threads(threads)
    [torch.full((n,), torch.nan) for n in range(1000, 100_000, 1000)]  # what freed memory holds
    y, t = layer(x, s)
    found.append(torch.autograd.grad(y.square().sum() + t.square().sum(), list(layer.parameters())))
assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-2) for a, b in zip(*found))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "OMP_THREAD_LIMIT": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_runs_cover_every_entry_once():
    entries = [(0, 1.0, 0, 0), (0, 1.0, 1, 1), (1, 2.0, 1, 0), (1, -1.0, 3, 2), (1, -1.0, 4, 3), (0, 1.0, 5, 5)]
    found = runs(entries)
    expand = lambda rs: sorted((r.weight, r.factor, r.target + j, r.source + j) for r in rs for j in range(r.length))  # noqa: E731
    assert expand(found) == sorted(entries)
    assert expand(transposed(found)) == sorted((w, f, i, o) for w, f, o, i in entries)
    assert unwritten(found, 6) == (2,)
    first = [r.target + j for r in found if r.first for j in range(r.length)]
    assert sorted(first) == [0, 1, 3, 4, 5]  # each written blade is written first exactly once


def test_any_group_of_any_algebra(rng):
    """A group nobody named: rotations about one axis in G(3, 0, 0) and a boost in G(2, 1, 0), with more invariants."""
    for alg, blade in ((Algebra(3), "e12"), (Algebra(2, 1), "e13")):
        sym = Symmetry(alg, [alg[blade]])
        geo = Geometry(alg, sym, axes=alg.names)
        layer = EquiLinear(geo, WIDTH, WIDTH).double()
        assert len(layer.plan.invariant) > 2
        x, s = stream(geo, rng)
        assert both(layer, lambda x, s, layer=layer: oracle.linear(layer, x, s), (x, s)) < 1e-12
