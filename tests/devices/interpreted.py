"""Triton's kernels on the CPU, by its interpreter, against torch operations: what `test_triton.py` runs in another process.

The interpreter replaces Triton's language when that is imported, so TRITON_INTERPRET=1 has to be set before.
"""

import os
import warnings
from dataclasses import replace

import pytest
import sixteen_bits
import torch
from torch.autograd import gradgradcheck

import anygatr
from anygatr import ConditionalGATr, GATr
from anygatr.execution import cache, execute
from anygatr.execution.observed import traced
from anygatr.execution.triton import linear, product, selfcheck
from anygatr.execution.triton.launch import launches
from anygatr.execution.triton.schedule import Kernel, LinearKernel, LoadPrologue, schedule
from anygatr.nn import MLP, Block, EquiLinear, GeometricBilinear, Width
from anygatr.ops.batch import Batch, join_reference
from anygatr.spaces.presets import geometry

assert os.environ["TRITON_INTERPRET"] == "1"
SLOW = pytest.mark.slow
WIDTH = Width(4, 6)
EVERY = [geometry("iP", 2), *(pytest.param(geometry(name), marks=SLOW) for name in ("E", "P", "iP", "C", "L"))]


def label(geo):
    return f"{geo.name}{geo.dim}"


@pytest.fixture(autouse=True)
def no_fallback(request, monkeypatch, tmp_path):
    """Nothing is replaced by torch: self-checks, which take as long as the tests, are left to those that are about them."""
    torch.manual_seed(0)
    monkeypatch.setattr(cache, "directory", lambda: tmp_path)
    if "checked" not in request.node.name:
        monkeypatch.setattr(selfcheck, "passes", lambda *_: True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


def stream(geo, tokens=(2, 5), width=WIDTH, dtype=torch.float64):
    x = torch.randn(geo.algebra.dim, *tokens, width.mv, dtype=dtype)
    return x, torch.randn(*tokens, width.s, dtype=dtype)


def more_of(layer, x, s, geo):
    number = join_reference(x, geo).detach()
    if isinstance(layer, Block):
        return (Batch(number, x[..., :0], scalars=s[..., :0]),)
    return (number,) if isinstance(layer, MLP | GeometricBilinear) else ()


def results(backend, layer, geo, x, s):
    """The values of a layer and the gradients of its inputs and parameters."""
    before = sum(launches.values())
    with anygatr.backend(backend):
        leaves = [x.detach().clone().requires_grad_(), s.detach().clone().requires_grad_()]
        made = [y for y in execute(layer, *leaves, *more_of(layer, x, s, geo)) if y.numel()]
        asked = [*leaves, *(p for p in layer.parameters() if p.requires_grad)]
        torch.manual_seed(1)
        grads = torch.autograd.grad(made, asked, [torch.randn_like(y) for y in made], materialize_grads=True)
    assert (sum(launches.values()) > before) is (backend == "triton")
    return [t.detach().double() for t in (*made, *grads)]


def worst(found, expected):
    """The largest difference, relative to the largest number of each tensor."""
    pairs = [(a, b) for a, b in zip(found, expected, strict=True) if b.numel()]
    return max(float((a - b).abs().max() / b.abs().max().clamp(min=1e-9)) for a, b in pairs)


def difference(layer, geo, x, s):
    """Between both backends."""
    return worst(*(results(backend, layer, geo, x, s) for backend in ("triton", "torch")))


@pytest.mark.parametrize("geo", EVERY, ids=label)
def test_blocks_give_what_torch_gives(geo):
    block = Block(geo, WIDTH, heads=2)
    assert difference(block.double(), geo, *stream(geo)) < 1e-12


@pytest.mark.parametrize("geo", [geometry("E", 2), *EVERY[1:]], ids=label)
def test_float32_blocks_give_what_torch_gives(geo):
    block = Block(geo, WIDTH, heads=2)
    assert difference(block, geo, *stream(geo, dtype=torch.float32)) < 2e-5


@pytest.mark.parametrize("width", [Width(17, 3), pytest.param(Width(3, 0), marks=SLOW), Width(0, 4)], ids=str)
def test_sizes_that_do_not_divide_a_tile(width, monkeypatch):
    """More channels and tokens than a tile, and none; tokens summed in several chunks."""
    monkeypatch.setattr(linear, "CHUNK", 16)
    geo = geometry("E", 2)
    assert difference(MLP(geo, width).double(), geo, *stream(geo, (37,), width)) < 1e-12


@pytest.mark.parametrize("layout", ["packed", *(pytest.param(n, marks=SLOW) for n in ("masked", "condition", "multi"))])
def test_attention_of_every_layout(layout):
    """A distance with learned weights, on masked and ragged batches, to a condition, and with a key for every head."""
    geo = geometry("iP", 2)
    if layout == "condition":
        net = ConditionalGATr(geo, Width(1, 1), Width(1, 2), Width(2, 4), Width(1, 1), blocks=1, heads=2).double()
        more = {"cx": torch.randn(2, 3, 1, 8).double(), "cs": torch.randn(2, 3, 2).double()}
    else:
        net = GATr(geo, Width(1, 1), Width(2, 4), Width(1, 1), 1, heads=2, multi_query=layout != "multi").double()
        more = {"mask": torch.rand(2, 4) < 0.7} if layout == "masked" else {}
        more = {"offsets": torch.tensor([0, 3, 8])} if layout == "packed" else more
    x, s = torch.randn(2, 4, 1, 8).double(), torch.randn(2, 4, 1).double()
    x, s = (x.flatten(0, 1), s.flatten(0, 1)) if layout == "packed" else (x, s)
    for name, p in net.named_parameters():
        if "log_weights" in name:
            torch.nn.init.normal_(p)
    results = []
    for backend in ("triton", "torch"):
        with anygatr.backend(backend):
            y, t = net(x, s, **more)
        asked = [p for p in net.parameters() if p.requires_grad]
        results.append([y, t, *torch.autograd.grad(y.square().sum() + t.square().sum(), asked, materialize_grads=True)])
    assert max(float((a - b).detach().abs().max()) for a, b in zip(*results, strict=True) if a.numel()) < 1e-10


@pytest.mark.parametrize(
    ("preset", "norm", "form"),
    [
        ("L", "inner", "clamp"),
        pytest.param("L", "abs", "add", marks=SLOW),
        pytest.param("L", "grade_abs", "clamp", marks=SLOW),
        ("C", "balanced", "add"),
        pytest.param("C", "inner", "add", marks=SLOW),
    ],
)
def test_every_norm(preset, norm, form):
    """Indefinite forms, with and without blades that meet others; some tokens below eps and some above."""
    geo = geometry(preset, 1, norm=norm, norm_form=form, norm_eps=0.3)
    x, s = stream(geo, (1, 6), Width(2, 3))
    x = x * torch.linspace(0.05, 1, 6, dtype=x.dtype)[:, None]
    assert difference(Block(geo, Width(2, 3), heads=1).double(), geo, x, s) < 1e-12


@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_sixteen_bits_are_summed_in_float32(name, monkeypatch):
    """The kernels on rounded numbers give what they give in float32; sums in 16 bits, the negative control, do not."""
    geo, short = geometry("E", 2), sixteen_bits.SHORT[name]
    layer, (x, s) = EquiLinear(geo, WIDTH, WIDTH), (t.to(short).float() for t in stream(geo, dtype=torch.float32))
    (kernel,) = (item for item in schedule(traced(layer, (x, s)).program) if isinstance(item, LinearKernel))
    weights = [p.detach() for p in layer.parameters()]
    widths, empty = linear._widths(weights), x.new_empty(0)
    tables = linear._tables(kernel, widths, x)
    packed = linear._packed(weights, tables, torch.float32).to(short).float()

    def run(short):
        y, t = torch.empty_like(x), torch.empty_like(s)  # float32: the sums themselves
        linear._linear(x, s, empty, packed, tables.forward, (), (y, t), LoadPrologue(), short, False)
        own = linear._weight_gradients(kernel, x, s, x.flip(-1), s.flip(-1), empty, widths, tables, weights, short)
        return [y, t, *own]

    expected = run(None)
    sixteen_bits.teach(monkeypatch)
    assert worst(run(short), expected) < 1e-6
    sixteen_bits.teach(monkeypatch, sums=name)
    assert worst(run(short), expected) > 1e-4


@SLOW
def test_blocks_under_autocast_are_as_exact_as_by_torch(monkeypatch):
    """Values and gradients in bfloat16, against float32. Both backends round, at different places."""
    geo, short = geometry("iP", 2), torch.bfloat16
    sixteen_bits.teach(monkeypatch)
    block, (x, s) = Block(geo, WIDTH, heads=2), stream(geo, dtype=torch.float32)
    exact = results("torch", block, geo, x, s)
    with torch.autocast("cpu", short):
        ours, torchs = (worst(results(backend, block, geo, x, s), exact) for backend in ("triton", "torch"))
    assert 1e-4 < ours < 2 * torchs < 0.2


@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_results_of_linear_maps_are_rounded_once(name, monkeypatch):
    """Under autocast to 16 bits; with a residual stream in float32 to nothing less."""
    geo, short = geometry("E", 2), sixteen_bits.SHORT[name]
    sixteen_bits.teach(monkeypatch)
    layer, (x, s) = EquiLinear(geo, WIDTH, WIDTH), stream(geo, dtype=torch.float32)
    with torch.autocast("cpu", short), anygatr.backend("triton"):
        found = execute(layer, x, s)
    expected = execute(layer, x, s)
    assert all(y.dtype is short for y in found)
    assert worst([y.double() for y in found], [y.detach().double() for y in expected]) < 8 * torch.finfo(short).eps


@pytest.mark.parametrize("preset", ["iP", pytest.param("C", marks=SLOW)])
def test_products_by_table(preset, monkeypatch):
    """Even and odd ones, as plans too long to be unrolled are run; a wrong sign in the table is caught."""
    monkeypatch.setattr(product, "UNROLLED", 0)
    geo = geometry(preset, 2)
    layer, (x, s) = GeometricBilinear(geo, WIDTH, WIDTH).double(), stream(geo)
    assert difference(layer, geo, x, s) < 1e-12

    def wrong(plan, *args, make=product.product_tables):
        return make(flipped(plan), *args)

    monkeypatch.setattr(product, "product_tables", wrong)
    assert difference(layer, geo, x, s) > 0.1


def test_squared_points_stay_in_float32_under_autocast():
    """Values and gradients of a precise map are those without autocast; those of E are rounded."""
    errors = {}
    for name in ("C", "E"):
        geo = geometry(name, 1)
        layer, given = EquiLinear(geo, WIDTH, WIDTH), [t.requires_grad_() for t in stream(geo, dtype=torch.float32)]
        found = []
        for backend in ("triton", "torch"):
            with anygatr.backend(backend), torch.autocast("cpu", torch.float16, enabled=backend == "triton"):
                made = execute(layer, *given)
            grads = torch.autograd.grad([y.float().square().sum() for y in made], [*given, layer.weight])
            found.append([*made, *grads])
        errors[name] = max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(*found, strict=True))
    assert errors["C"] < 1e-5 < 1e-4 < errors["E"]


def test_second_derivatives():
    geo = geometry("E", 2)
    layer, (x, s) = MLP(geo, Width(1, 1)).double(), stream(geo, (2,), Width(1, 1))
    with anygatr.backend("triton"):
        number = join_reference(x, geo).detach()
        assert gradgradcheck(
            lambda x, s: execute(layer, x, s, number), (x.requires_grad_(), s.requires_grad_()), fast_mode=True
        )


def kernels_of(layer, geo):
    x, s = stream(geo)
    return [item for item in schedule(traced(layer, (x, s, *more_of(layer, x, s, geo))).program) if isinstance(item, Kernel)]


def flipped(plan):
    """A product with the sign of one of its terms exchanged."""
    first, *rest = plan.terms[0].entries
    wrong = (*first[:3], -first[3])
    return replace(plan, terms=(plan.terms[0]._replace(entries=(wrong, *rest)), *plan.terms[1:]))


@pytest.fixture
def checked_with_a_wrong_sign(monkeypatch):
    """A call of a layer whose product kernel is wrong, and what torch makes of it."""
    geo = geometry("E", 2)
    layer, (x, s) = GeometricBilinear(geo, WIDTH, WIDTH).double(), stream(geo)
    monkeypatch.setattr(selfcheck, "_known", {})
    monkeypatch.setattr(product, "product_source", lambda plan, k, write=product.product_source: write(flipped(plan), k))
    number = join_reference(x, geo)

    def call(backend):
        with anygatr.backend(backend):
            return execute(layer, x, s, number)

    return call


def test_a_checked_kernel_with_a_wrong_sign_is_left_out(checked_with_a_wrong_sign):
    expected = checked_with_a_wrong_sign("torch")
    with pytest.warns(RuntimeWarning, match=r"the product kernel in float64 on cpu is wrong by"):
        found = checked_with_a_wrong_sign("triton")
    assert all(torch.allclose(a, b) for a, b in zip(found, expected, strict=True))
    before = launches["linear_kernel"]
    checked_with_a_wrong_sign("triton")  # the warning came once, and the other kernels run
    assert launches["linear_kernel"] == before + 2


def test_verdicts_of_checked_kernels_are_kept(checked_with_a_wrong_sign, monkeypatch, tmp_path):
    """Another process checks nothing again and says the reason; a damaged file is written anew; other sources are others."""

    def another_process(match):
        selfcheck._known.clear()
        before = sum(launches.values())
        with pytest.warns(RuntimeWarning, match=match):
            checked_with_a_wrong_sign("triton")
        return sum(launches.values()) - before

    checking = another_process("is wrong by [^i]*; torch operations run")
    files = sorted(tmp_path.glob("check-*.json"))
    assert len(files) == 3  # two linear maps and the product
    assert another_process("is wrong by .* in an earlier process") == 2 < checking  # the linear maps, run once
    whole = [file.read_text() for file in files]
    for file, damaged in zip(files, ("", '{"failure": 1}', "[0]"), strict=True):
        file.write_text(damaged)
    assert another_process("is wrong by [^i]*; torch operations run") == checking
    assert [file.read_text() for file in files] == whole
    for key in selfcheck._known:
        assert " at 0x" not in repr(key)  # nothing that another process would call otherwise
    monkeypatch.setattr(selfcheck, "platform", lambda device: ("interpreter", "other sources"))
    assert another_process("is wrong by [^i]*; torch operations run") == checking


def test_a_wrong_table_of_a_linear_map_is_caught(monkeypatch):
    geo = geometry("E", 2)
    layer, (x, s) = EquiLinear(geo, WIDTH, WIDTH).double(), stream(geo)

    def wrong(*args, make=linear.linear_tables):
        tables = make(*args)
        factors = tables.forward.factors.clone()
        factors[-2] *= -1
        return tables._replace(forward=tables.forward._replace(factors=factors))

    assert difference(layer, geo, x, s) < 1e-12
    monkeypatch.setattr(linear, "linear_tables", wrong)
    assert difference(layer, geo, x, s) > 0.1


def test_norms_and_gates_are_read_by_linear_maps():
    names = [type(item).__name__ for item in kernels_of(Block(geometry("iP"), WIDTH, heads=2).double(), geometry("iP"))]
    assert names.count("LinearKernel") == 5
    assert names.count("ProductKernel") == 1
