"""Reachable grades: what is called dead is zero, narrowed networks compute what whole ones do, and less."""

import copy
import itertools
import pickle

import pytest
import torch
from family import GEOMETRIES, name
from torch import Tensor, nn

import anygatr
from anygatr import AxialGATr, ConditionalGATr, GATr, Geometry, model, spin, summary
from anygatr.algebra import Algebra
from anygatr.checkpoint import load, save
from anygatr.execution.c import build
from anygatr.export import program
from anygatr.interface.model import Model
from anygatr.nn import Width
from anygatr.nn.bilinear import Products
from anygatr.program.reach import Reach, reach
from anygatr.program.trace import trace
from anygatr.reach import Narrowing, narrow, widen
from anygatr.spaces import kinds
from anygatr.spaces.features import Inner
from anygatr.spaces.presets import geometry

PLANE = Geometry(Algebra(2), spin(Algebra(2)), axes=("e1", "e2"), point="relative", name="plane")
BODIES = {"position": "point", "velocity": "vector", "mass": "scalar"}
# the grades given, the grades read: few, so that much is dead
TASKS = {
    "E": (geometry("E"), (1,), (1,)),
    "P": (geometry("P"), (3,), (3,)),
    "iP": (geometry("iP", 2), (2,), (2,)),
    "C": (geometry("C", 2), (1,), (1,)),
    "L": (geometry("L", 2), (1,), (0,)),
    "SE": (geometry("E", mirrors=False), (1,), (1,)),
    "custom": (PLANE, (1,), (1,)),
}


def network(geo: Geometry, blocks: int = 2, dtype: torch.dtype = torch.float64, **options: object) -> GATr:
    torch.manual_seed(0)
    net = GATr(geo, Width(2, 3), Width(4, 6), Width(2, 0), blocks=blocks, heads=2, **options)
    return randomised(net).to(dtype)


def randomised(net: nn.Module) -> nn.Module:
    """The start of some layers leaves maps out, or is small."""
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.3)
    return net


def batch(net: GATr, grades: tuple[int, ...], tokens: tuple[int, ...] = (2, 7)) -> tuple[Tensor, Tensor]:
    """Random inputs of these grades."""
    rng, like = torch.Generator().manual_seed(1), net.linear_in.weight
    x = torch.randn(*tokens, 2, net.geometry.algebra.dim, generator=rng, dtype=torch.float64)
    x *= torch.isin(net.geometry.algebra.grades, torch.tensor(grades))
    return x.to(like), torch.randn(*tokens, 3, generator=rng, dtype=torch.float64).to(like)


def read(y: Tensor, geo: Geometry, grades: tuple[int, ...]) -> Tensor:
    return y[..., torch.isin(geo.algebra.grades, torch.tensor(grades))]


def results(net: GATr, grades: tuple[int, ...], *inputs: Tensor) -> tuple[Tensor, list[Tensor | None]]:
    """What is read, and the gradient of a loss of it in each parameter."""
    net.zero_grad()
    y = read(net(*inputs)[0], net.geometry, grades)
    y.square().mean().backward()
    return y.detach(), [p.grad for p in net.parameters()]


def occupied(x: Tensor, geo: Geometry) -> set[int]:
    """The grades of blade-major multivectors that are not zero."""
    return set(geo.algebra.grades[(x != 0).flatten(1).any(1)].tolist())


def seen(net: GATr, report: Narrowing, *inputs: Tensor) -> dict[str, tuple[set[int], bool]]:
    """What the layers of a report really make: the grades, and whether scalars."""
    found: dict[str, tuple[set[int], bool]] = {}

    def note(label: str, x: Tensor, s: Tensor) -> None:
        found[label] = occupied(x, net.geometry), bool(s.any())

    with torch.no_grad():
        handles = []
        for row in report.rows:
            hook = lambda _, __, out, label=row.name: note(label, *(out if isinstance(out, tuple) else (out, out[:0])))  # noqa: E731
            handles.append(net.get_submodule(row.name).register_forward_hook(hook))
        net(*inputs)
    for handle in handles:
        handle.remove()
    return found


@pytest.mark.parametrize("geo", GEOMETRIES, ids=name)
def test_what_is_called_dead_is_zero(geo):
    net = network(geo, blocks=2, reinsert=(0,))
    for given in ((), (0,), (1,), (geo.algebra.n - 1,)):
        report = narrow(net, given, (1,))
        widen(net)
        found = seen(net, report, *batch(net, given))
        for row in report.rows:
            grades, scalars = found[row.name]
            assert grades <= row.alive_out.grades, (given, row)
            assert scalars <= row.alive_out.scalars, (given, row)


@pytest.mark.parametrize("mirrors", [True, False], ids=["E(3)", "SE(3)"])
def test_what_is_called_alive_is_not_zero(mirrors):
    """Where no map is nilpotent; with an infinity, infinity ^ infinity ^ x is zero although its grade could be alive."""
    net = network(geometry("E", 3, mirrors))
    for given in ((), (0,), (1,), (2,), (3,), (1, 2)):
        report = narrow(net, given, (1,))
        widen(net)
        found = seen(net, report, *batch(net, given))
        assert {row.name: found[row.name] for row in report.rows} == {
            r.name: (set(r.alive_out.grades), r.alive_out.scalars) for r in report.rows
        }


@pytest.mark.parametrize("geo", GEOMETRIES, ids=name)
def test_each_layer_makes_all_that_is_called_alive(geo, rng):
    """One layer at a time, from random multivectors of each grade and of each pair of grades."""
    net = network(geo, blocks=1)
    grades = range(geo.algebra.n + 1)
    for given in (*((g,) for g in grades), *itertools.combinations(grades, 2)):
        row = narrow(net, given, grades).rows[0]
        widen(net)
        assert seen(net, Narrowing(1, (row,)), *batch(net, given))[row.name][0] == row.alive_out.grades
        products = net.blocks[0].mlp.bilinear.products
        h = torch.randn(geo.algebra.dim, 5, 2 * len(geo.products), generator=rng, dtype=torch.float64)
        h *= torch.isin(geo.algebra.grades, torch.tensor(given))[:, None, None]
        number = torch.ones(1, dtype=torch.float64)
        program = trace(products, (h, number))
        filled = {"h": Reach(frozenset(given), False), "reference": Reach(frozenset(), True)}
        (found,) = reach(program, geo.algebra.grades.tolist(), filled, Reach(frozenset(grades), False))
        assert occupied(products(h, number), geo) == found.alive_out.grades


@pytest.mark.parametrize("geo", GEOMETRIES, ids=name)
def test_what_is_not_needed_is_not_read(geo):
    """Noise added to what nobody asks for changes nothing that is read; added to all, it does."""
    with anygatr.backend("torch"):  # layers with hooks run on it, and digits are compared
        net = network(geo)
        every = tuple(range(geo.algebra.n + 1))
        outputs = (geo.algebra.n - 1,)
        report = narrow(net, every, outputs)
        widen(net)
        x, s = batch(net, every)
        with torch.no_grad():
            expected = read(net(x, s)[0], geo, outputs)
            for row in report.rows:
                layer = net.get_submodule(row.name)
                if isinstance(layer, Products):
                    continue
                unneeded = ~torch.isin(geo.algebra.grades, torch.tensor(sorted(row.needed.grades), dtype=torch.int64))

                def disturb(_, __, out, mask=unneeded, scalars=not row.needed.scalars):
                    y, t = out
                    return y + mask.to(y).view(-1, *[1] * (y.dim() - 1)), t + 1 if scalars else t

                handle = layer.register_forward_hook(disturb)
                assert torch.equal(read(net(x, s)[0], geo, outputs), expected), row
                handle.remove()
            handle = net.blocks[0].mlp.register_forward_hook(lambda _, __, out: (out[0] + 1, out[1]))
            assert not torch.allclose(read(net(x, s)[0], geo, outputs), expected)
            handle.remove()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("task", TASKS)
def test_narrowed_networks_compute_the_same(task, dtype):
    geo, given, asked = TASKS[task]
    net = network(geo, dtype=dtype)
    x, s = batch(net, given)
    expected, expected_grads = results(net, asked, x, s)
    report = narrow(net, given, asked)
    found, grads = results(net, asked, x, s)
    assert report.after < report.before
    assert expected.abs().max() > 0
    exact = build.available()  # matrix products of other sizes may round differently in a BLAS
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-4}[dtype]
    assert torch.equal(found, expected) if exact else torch.allclose(found, expected, rtol=tolerance, atol=tolerance)
    for a, b in zip(grads, expected_grads, strict=True):
        assert (a is None) == (b is None)
        assert a is None or (torch.equal(a, b) if exact else torch.allclose(a, b, rtol=tolerance, atol=tolerance))


@pytest.mark.parametrize(
    "options", [{"reinsert": (0,), "values_see_inputs": True}, {"inner_norm": True}, {"multi_query": False}]
)
def test_options_compute_the_same(options):
    geo, given, asked = TASKS["iP"]
    net = network(geo, **options)
    x, s = batch(net, given)
    expected, expected_grads = results(net, asked, x, s)
    narrow(net, given, asked)
    found, grads = results(net, asked, x, s)
    torch.testing.assert_close(found, expected, rtol=0, atol=0 if build.available() else 1e-12)
    torch.testing.assert_close(grads, expected_grads, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("task", ["E", "iP", "C"])
def test_torch_operations_compute_the_same(task):
    geo, given, asked = TASKS[task]
    net = network(geo)
    x, s = batch(net, given)
    expected, expected_grads = results(net, asked, x, s)
    narrow(net, given, asked)
    with anygatr.backend("torch"):
        found, grads = results(net, asked, x, s)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(grads, expected_grads, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("task", ["E", "iP"])
def test_second_derivatives_stay(task):
    geo, given, asked = TASKS[task]
    net = network(geo, blocks=1)
    found = []
    for narrowed in (False, True):
        if narrowed:
            narrow(net, given, asked)
        x, s = batch(net, given)
        s.requires_grad_()
        (force,) = torch.autograd.grad(read(net(x, s)[0], geo, asked).square().sum(), s, create_graph=True)
        weights = [p for p in net.parameters() if p.requires_grad]
        found.append([force, *torch.autograd.grad(force.square().sum(), weights, materialize_grads=True)])
    torch.testing.assert_close(found[1], found[0], rtol=1e-10, atol=1e-10)


def test_long_samples_masks_and_packed_samples_compute_the_same():
    geo, given, asked = TASKS["E"]
    net = network(geo, blocks=1)
    cases = {
        "long": ((1, 520), lambda x: {}),
        "masked": ((2, 7), lambda x: {"mask": torch.arange(14).view(2, 7) % 5 > 0}),
        "packed": ((14,), lambda x: {"offsets": torch.tensor([0, 3, 14])}),
    }
    for tokens, more in cases.values():
        x, s = batch(net, given, tokens)
        found = []
        for change in (widen, lambda net: narrow(net, given, asked)):
            change(net)
            net.zero_grad()
            y = read(net(x, s, **more(x))[0], geo, asked)
            y.square().sum().backward()
            found.append([y, *(p.grad.clone() for p in net.parameters() if p.grad is not None)])
        torch.testing.assert_close(found[1], found[0], rtol=1e-11, atol=1e-11)


def test_axial_and_conditional_networks_compute_the_same():
    geo, given, asked = TASKS["E"]
    size = {"hidden": Width(4, 6), "outputs": Width(2, 0), "blocks": 2, "heads": 2}
    axial = randomised(AxialGATr(geo, Width(2, 3), **size)).double()
    conditional = randomised(ConditionalGATr(geo, Width(2, 3), Width(2, 3), **size)).double()
    x, s = batch(axial, given, (3, 4))
    calls = {axial: (x, s), conditional: (x, s, *batch(axial, (2,), (3, 5)))}
    for net, inputs in calls.items():
        expected, expected_grads = results(net, asked, *inputs)
        report = narrow(net, given, asked, condition=(2,) if net is conditional else ())
        found, grads = results(net, asked, *inputs)
        torch.testing.assert_close(found, expected, rtol=0, atol=0 if build.available() else 1e-12)
        torch.testing.assert_close(grads, expected_grads, rtol=1e-12, atol=1e-12)
        assert report.after < report.before
    with pytest.raises(ValueError, match="cx has coefficients of grade 1"):
        conditional(x, s, x, s)


def points(preset: str, blocks: int, inputs: dict[str, str]) -> Model:
    torch.manual_seed(0)
    return model(preset, inputs, {"final": "point"}, hidden=(8, 16), blocks=blocks, heads=2)


@pytest.mark.parametrize("blocks", [1, 2, 4])
@pytest.mark.parametrize("preset", ["E", "P", "iP", "C"])
def test_points_to_points_cost_less(preset, blocks):
    few = points(preset, blocks, {"position": "point"}).narrow()
    more = points(preset, blocks, BODIES).narrow()
    assert 0 < more.saved <= few.saved < 1
    assert "saved" in str(few)
    if blocks > 1:
        assert few.saved < points(preset, 1, {"position": "point"}).narrow().saved  # in the middle all grades live


@pytest.mark.parametrize("preset", ["E", "P", "iP", "C"])
def test_models_predict_the_same(preset):
    whole = points(preset, 2, BODIES)
    thin = copy.deepcopy(whole)
    thin.narrow()
    rng = torch.Generator().manual_seed(0)
    fields = {key: torch.randn(3, 9, *(() if key == "mass" else (3,)), generator=rng) for key in BODIES}
    a, b = (net(**fields)["final"] for net in (whole, thin))
    torch.testing.assert_close(a, b, rtol=0, atol=0 if build.available() else 1e-5)


def taken(geo: Geometry, kind: str) -> bool:
    """Whether a geometry has a kind or something that stands for it."""
    try:
        return bool(kinds.parts(geo, kind))
    except ValueError:
        return False


@pytest.mark.parametrize("geo", GEOMETRIES, ids=name)
def test_models_of_every_kind_predict_the_same(geo, monkeypatch):
    """What fields fill and what they are read from; on torch operations, for there are many kinds to build kernels for."""
    monkeypatch.setattr(build, "available", lambda: False)
    rng = torch.Generator().manual_seed(0)
    for kind in (kind for kind, entry in kinds.KINDS.items() if taken(geo, kind) and not entry.coded):
        place = {"position": "point"} if "point" in geo.kinds else {}
        torch.manual_seed(0)
        net = randomised(Model(geo, {**place, "other": kind}, {"out": kind}, (2, 2), 1, 1, invariants=True)).double()
        fields = {f.name: kinds.draw(geo, f.kind, 2, 5, generator=rng) for f in net.inputs.fields}
        expected = net(**fields)["out"]
        net.narrow()
        torch.testing.assert_close(net(**fields)["out"], expected, rtol=1e-7, atol=1e-7)


def test_too_few_grades_are_refused_and_would_change_the_outputs():
    geo = geometry("E")
    net = network(geo)
    x, s = batch(net, (1, 2))
    expected = read(net(x, s)[0], geo, (1,))
    narrow(net, (1,), (1,))
    with pytest.raises(ValueError, match="x has coefficients of grade 2, but the network was narrowed to inputs of grades"):
        net(x, s)
    net.grades = None
    assert not torch.allclose(read(net(x, s)[0], geo, (1,)), expected)
    widen(net)
    assert torch.equal(read(net(x, s)[0], geo, (1,)), expected)


def test_padding_may_hold_anything():
    net = network(geometry("E"))
    narrow(net, (1,), (1,))
    x, s = batch(net, (1,))
    x[:, -1] = torch.nan
    assert net(x, s, mask=torch.arange(7).expand(2, 7) < 6)[0].isfinite().all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((5,), (1,)), r"inputs=\[5\]: 5 is not a grade of .*; use integers from 0 to 3"),
        (((1,), (-1,)), r"outputs=\[-1\]: -1 is not a grade"),
        (((1,), ("1",)), r"outputs=\['1'\]: '1' is not a grade"),
        (((True,), (1,)), r"inputs=\[True\]: True is not a grade"),
    ],
)
def test_unknown_grades_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        narrow(network(geometry("E")), *arguments)


def test_other_modules_are_refused():
    with pytest.raises(ValueError, match=r"net=Model is none of GATr.*model.narrow\(\)"):
        narrow(points("E", 1, BODIES), (1,), (1,))
    with pytest.raises(ValueError, match="tokens=0 must be positive"):
        narrow(network(geometry("E")), (1,), (1,), tokens=0)


def test_copies_and_pickles_stay_narrowed_and_checkpoints_do_not(tmp_path):
    geo, given, asked = TASKS["E"]
    net = network(geo)
    whole = summary(net, 16).flops
    x, s = batch(net, given)
    expected = read(net(x, s)[0], geo, asked)
    report = narrow(net, given, asked)
    save(net, tmp_path / "net.safetensors")
    loaded = load(tmp_path / "net.safetensors")
    for other, cost in (
        (copy.deepcopy(net), report.after),
        (pickle.loads(pickle.dumps(net)), report.after),
        (loaded, report.before),
    ):
        assert summary(other, 16).flops == 2 * cost
        assert torch.equal(read(other(x, s)[0], geo, asked), expected)
    assert whole == 2 * report.before
    net.load_state_dict(loaded.state_dict())


def test_narrowing_keeps_types_and_training(rng):
    geo, given, asked = TASKS["E"]
    net = network(geo)
    narrow(net, given, asked)
    assert "0 1 s" in str(narrow(net, given, asked))
    net.float().double()
    optimiser = torch.optim.Adam(net.parameters(), foreach=True)
    results(net, asked, *batch(net, given))
    assert all(p.grad is not None for p in net.parameters() if p.requires_grad)
    optimiser.step()
    assert all(p.isfinite().all() for p in net.parameters())


def test_an_inner_product_keeps_the_blades_that_are_left():
    assert Inner((0, 1, 4), (1.0, -1.0, 1.0)).within((1, 4, 5)) == Inner((1, 4), (-1.0, 1.0))


@pytest.mark.parametrize("task", ["E", "C"])
def test_exported_programs_predict_the_same(task):
    geo, given, asked = TASKS[task]
    net = network(geo, blocks=1)
    x, s = batch(net, given)
    expected = read(net(x, s)[0], geo, asked)
    narrow(net, given, asked)
    found = read(program(net).module()(x=x, s=s)[0], geo, asked)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.slow
def test_compiled_networks_can_be_narrowed():
    torch.compiler.reset()
    geo, given, asked = TASKS["E"]
    net = network(geo, dtype=torch.float32)
    x, s = batch(net, given)
    expected, expected_grads = results(net, asked, x, s)
    net.compile()
    for change in (lambda: None, lambda: narrow(net, given, asked), lambda: widen(net)):
        change()
        found, grads = results(net, asked, x, s)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(grads, expected_grads, rtol=1e-3, atol=1e-4)
