"""The unit of length of a model: size does not matter, and the unit travels with the weights."""

import copy
import math

import pytest
import torch

from anygatr import model
from anygatr.checkpoint import load, save
from anygatr.testing import equivariance_error

INPUTS = {"position": "point", "velocity": "vector", "mass": "scalar"}
SIZES = (1e-6, 1e-3, 1.0, 100.0, 1e4, 1e6)


def build(name="C", **options):
    torch.manual_seed(0)
    return model(name, INPUTS, {"final": "point"}, hidden=(8, 16), blocks=2, heads=2, origin="mass", **options).eval()


def cloud(size, dtype=torch.float32, seed=0, shift=0.0):
    rng = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, generator=rng, dtype=torch.float64)  # noqa: E731
    values = {
        "position": size * (draw(4, 16, 3) + shift),
        "velocity": size * draw(4, 16, 3),
        "mass": draw(4, 16).abs() + 0.1,
    }
    return {name: x.to(dtype) for name, x in values.items()}


def error(net, values):
    """Of the prediction for rotated data, relative to how far predictions are from the positions."""
    turn = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)).Q
    moved = {name: (x.double() @ turn.T).to(x) if x.shape[-1] == 3 else x for name, x in values.items()}
    with torch.no_grad():
        still, after = net(**values)["final"].double(), net(**moved)["final"].double()
    return float((still @ turn.T - after).abs().max() / (still - values["position"]).abs().max())


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-3), (torch.float64, 1e-11)], ids=["f32", "f64"])
@pytest.mark.parametrize("name", ["E", "P", "iP", "C"])
def test_predictions_follow_rotations_at_every_size(name, dtype, bound):
    for size in SIZES:
        assert error(build(name).to(dtype), cloud(size, dtype)) < bound


def test_without_a_unit_size_matters():
    assert error(build(unit=None), cloud(1e6)) > 1e-2


@pytest.mark.parametrize("name", ["E", "iP", "C"])
@pytest.mark.parametrize("backend", ["c", "torch"])
def test_predictions_grow_with_the_data(name, backend):
    """Scaling all data by a power of two scales predictions to the last bit."""
    import anygatr

    small, large = cloud(1.0, shift=3.0), cloud(2.0**20, shift=3.0)
    with anygatr.backend(backend), torch.no_grad():
        expected, found = build(name)(**small)["final"], build(name)(**large)["final"]
    assert torch.equal(found, expected * 2.0**20)


def test_units_are_taken_from_the_first_batch_and_kept():
    net, first = build(), cloud(100.0)
    net(**first)
    assert net.units.values == {"length": 128.0, "velocity": 128.0}
    net(**cloud(1e-3))
    assert net.units.values == {"length": 128.0, "velocity": 128.0}
    assert net.fit_unit(**cloud(1e-3)) == net.units.values == {"length": 2.0**-10, "velocity": 2.0**-10}


def test_units_do_not_depend_on_padding_place_or_packing():
    net, values = build(), cloud(10.0, torch.float64)
    units = net.fit_unit(**values)
    padded = {name: torch.cat([x, torch.full_like(x[:, :3], 1e9)], 1) for name, x in values.items()}
    mask = (torch.arange(19) < 16).expand(4, 19)
    assert net.fit_unit(**padded, mask=mask) == units
    packed = {name: x.flatten(0, 1) for name, x in values.items()}
    assert net.fit_unit(**packed, offsets=torch.arange(0, 65, 16)) == units
    assert net.fit_unit(**values | {"position": values["position"] + 1e6}) == units


def test_units_travel_with_checkpoints_and_state_dicts(tmp_path):
    net, values = build(), cloud(1e3)
    expected = net(**values)["final"]
    save(net, tmp_path / "m.safetensors")
    again, twin = load(tmp_path / "m.safetensors"), build()
    twin.load_state_dict(net.state_dict())
    for other in (again, twin, copy.deepcopy(net)):
        assert other.units.values == net.units.values
        assert torch.equal(other(**values)["final"], expected)
    assert twin.to(torch.bfloat16).units.values == net.units.values


def test_a_state_dict_without_units_has_the_unit_one():
    net = build()
    with pytest.warns(RuntimeWarning, match="no units, so 1 is used"):
        net.load_state_dict(build(unit=None).state_dict())
    assert net.units.values == {"length": 1.0, "velocity": 1.0}


def test_given_units_are_those():
    values = cloud(1.0)
    for unit in (4.0, {"length": 4, "velocity": 4.0}):
        scaled = {
            name: x / 4 if name != "mass" and not (name == "velocity" and unit == 4.0) else x for name, x in values.items()
        }
        assert torch.equal(build(unit=unit)(**values)["final"], 4 * build(unit=None)(**scaled)["final"])


@pytest.mark.parametrize("unit", [0.0, -1, math.inf, math.nan, "dat", True, {"mass": 1.0}])
def test_other_units_are_refused(unit):
    with pytest.raises(ValueError, match="unit="):
        build(unit=unit)


def test_looking_does_not_set_the_unit():
    net = build()
    equivariance_error(net)
    assert net.units.values is None


def test_directions_have_no_unit():
    net = model("C", {"plane": "plane", "ball": "sphere"}, {"out": "plane"}, hidden=(4, 4), blocks=1, heads=2)
    plane = torch.cat([torch.nn.functional.normalize(torch.randn(8, 3), dim=-1), 1e3 * torch.randn(8, 3)], -1)
    ball = torch.cat([1e3 * torch.randn(8, 3), 1e3 * torch.rand(8, 1)], -1)
    scaled = net.units.enter({"plane": plane, "ball": ball}) if net.fit_unit(plane=plane, ball=ball) else {}
    assert torch.equal(scaled["plane"][:, :3], plane[:, :3])
    assert torch.equal(scaled["ball"] * net.units.values["length"], ball)
    turn = torch.linalg.qr(torch.randn(3, 3)).Q
    moved = torch.cat([plane[:, :3] @ turn.T, plane[:, 3:] @ turn.T], -1)
    found = net(plane=moved, ball=torch.cat([ball[:, :3] @ turn.T, ball[:, 3:]], -1))["out"]
    expected = net(plane=plane, ball=ball)["out"]
    assert torch.allclose(found[:, 3:], expected[:, 3:] @ turn.T, atol=1e-3 * float(expected.abs().max()))


def test_a_network_that_leaves_its_range_says_so_once():
    net = build(unit=None)
    with pytest.warns(RuntimeWarning, match="not finite.*fit_unit"):
        net(**cloud(1e19))
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net(**cloud(1e19))
        assert torch.isfinite(build()(**cloud(1e19))["final"]).all()


def test_compiled_code_cannot_set_it():
    from anygatr import export

    with pytest.raises(ValueError, match="call fit_unit"):
        export.program(build("E"))


def test_a_large_unit_is_no_size(tmp_path):
    save(build(unit=10**9), tmp_path / "m.safetensors")
    assert load(tmp_path / "m.safetensors").units.values["length"] == 1e9
