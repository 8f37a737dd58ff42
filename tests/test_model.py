"""Coordinates in, coordinates out: predictions follow the data, on every path, and bad input is named."""

import copy
import pickle
import subprocess
import sys

import pytest
import torch

from anygatr.interface.model import model
from anygatr.nn.width import Width
from anygatr.spaces import kinds
from anygatr.spaces.geometry import Geometry
from anygatr.spaces.presets import geometry

SMALL = {"hidden": Width(4, 8), "blocks": 2, "heads": 2}
BODIES = {"position": "point", "velocity": "vector", "mass": "scalar"}
GEOMETRIES = [geometry(name, dim, mirrors) for name in ("E", "P", "iP", "C") for dim in (2, 3) for mirrors in (True, False)]
THREE = [geometry(name) for name in ("E", "P", "iP", "C")]


def label(value):
    if not isinstance(value, Geometry):
        return str(value)
    return f"{value.name}{value.dim}{'' if len(value.symmetry.mirrors) else '-spin'}"


def build(geo, inputs=BODIES, targets=None, dtype=torch.float64, seed=0, **options):
    torch.manual_seed(seed)
    m = model(geo, inputs, targets or {"final": "point"}, **{**SMALL, "init": "paper", **options}).to(dtype)
    with torch.no_grad():  # away from the gentle initialisation, where tokens hardly see each other
        for parameter in m.parameters():
            parameter.mul_(2)
    return m


def data(m, *tokens, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return {
        field.name: torch.cat([kinds.draw(m.geo, field.kind, *tokens, generator=generator) for _ in range(field.count)], -1)
        for field in m.inputs.fields
    }


def moved(m, fields, values, matrix, shift):
    """Every field of one object per token, carried along by the motion."""
    out = {}
    for field in fields:
        x = values[field.name]
        bare = x.shape[-1:] != (field.columns(m.geo),) or (field.columns(m.geo) == 1 and x.dim() == 2)
        y = kinds.move(m.geo, field.kind, x.unsqueeze(-1) if bare else x, matrix, shift)
        out[field.name] = y.squeeze(-1) if bare else y
    return out


def motion(geo, determinant, size=10.0, seed=2):
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.linalg.qr(torch.randn(geo.dim, geo.dim, generator=generator, dtype=torch.float64)).Q
    matrix[:, -1] *= torch.linalg.det(matrix) * determinant
    return matrix, size * torch.randn(geo.dim, generator=generator, dtype=torch.float64)


def deviation(m, values, matrix, shift, **options):
    """The largest difference between moving before and after the model, relative to the centred prediction's size."""
    with torch.no_grad():
        expected = moved(m, m.targets.fields, m(**values, **options), matrix, shift)
        found = m(**moved(m, m.inputs.fields, values, matrix, shift), **options)
    tokens = -1 if values[m.inputs.fields[0].name].dim() == expected[next(iter(expected))].dim() + 1 else -2
    return max(
        float((found[k] - expected[k]).abs().max() / (expected[k] - expected[k].mean(tokens, keepdim=True)).abs().max())
        for k in expected
    )


@pytest.mark.parametrize("geo", GEOMETRIES, ids=label)
def test_predictions_follow_rotations_and_translations(geo):
    m = build(geo)
    values = data(m, 2, 5)
    assert deviation(m, values, *motion(geo, 1)) < 1e-11
    # and they are no constants: when one point moves its own prediction changes, and so do others
    other = {**values, "position": values["position"].clone()}
    other["position"][:, 0] += 0.5
    change = (m(**other)["final"] - m(**values)["final"]).abs().amax(-1)
    assert change[:, 0].min() > 1e-2
    assert change[:, 1:].max() > 1e-3


@pytest.mark.parametrize("geo", [geo for geo in GEOMETRIES if len(geo.symmetry.mirrors)], ids=label)
def test_predictions_follow_mirrors_where_points_are_even(geo):
    """E and C. P and iP see minus the mirrored points: equivariant as multivectors, not as coordinates."""
    m = build(geo, {**BODIES, "wall": "plane"})
    error = deviation(m, data(m, 2, 5), *motion(geo, -1))
    assert error < 1e-11 if geo.point != "meet" else error > 1e-3


@pytest.mark.parametrize("name", ["E", "P", "iP", "C"])
def test_vectors_follow_rotations_and_p_cannot_make_them_from_points(name):
    """Without the join nothing in P that translations leave alone depends on points or free vectors: zero is refused."""
    if name == "P":
        with pytest.raises(ValueError, match=r"cannot predict the vector 'force'.*use geometry 'E' or geometry 'iP'"):
            build(geometry(name), targets={"force": "vector"})
    m = build(geometry(name), {**BODIES, "wall": "plane"} if name == "P" else BODIES, {"force": "vector"})
    assert deviation(m, data(m, 2, 5), *motion(m.geo, 1)) < 1e-11


@pytest.mark.parametrize("name", ["E", "C"])
def test_without_mirrors_predictions_need_not_follow_them(name):
    m = build(geometry(name, mirrors=False))
    assert deviation(m, data(m, 2, 5), *motion(m.geo, -1)) > 1e-3


@pytest.mark.parametrize(
    ("geo", "kind"),
    [
        (geo, kind)
        for geo in THREE
        for kind, entry in kinds.KINDS.items()
        if not entry.coded and (kind != "oriented_point" or geo.point != "relative")
    ],
    ids=label,
)
def test_every_kind_goes_in_and_comes_out(geo, kind):
    m = build(geo, {"x": "point", "extra": kind, "wall": "plane"}, {"y": kind})
    assert deviation(m, data(m, 5), *motion(geo, 1)) < 1e-8
    if geo.point == "null" and kind != "oriented_point":
        assert deviation(m, data(m, 5), *motion(geo, -1)) < 1e-8


@pytest.mark.parametrize("mirrors", [True, False])
def test_momenta_follow_lorentz_transformations(mirrors):
    m = build(geometry("L", mirrors=mirrors), {"p": "momentum", "charge": "scalar"}, {"out": "momentum", "a": "scalar"})
    values = data(m, 2, 5)
    boost = torch.eye(4, dtype=torch.float64)
    boost[:2, :2] = torch.tensor([[5.0, 24.0**0.5], [24.0**0.5, 5.0]], dtype=torch.float64)
    out, found = m(**values), m(p=values["p"] @ boost.T, charge=values["charge"])
    torch.testing.assert_close(found["out"], out["out"] @ boost.T, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(found["a"], out["a"], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("size", [1.0, 100.0, 10_000.0])
@pytest.mark.parametrize("geo", THREE, ids=label)
def test_float32_weights_keep_float64_coordinates(geo, size):
    m = build(geo, dtype=torch.float32)
    values = data(m, 2, 8)
    out = m(**values)
    assert out["final"].dtype == torch.float64
    assert deviation(m, values, *motion(geo, 1, size)) < 1e-4


def test_float32_coordinates_far_away_lose_digits_and_no_origin_loses_more():
    m, none = (build(geometry("C"), dtype=torch.float32, origin=origin) for origin in ("mean", None))
    values = data(m, 8)
    eye, shift = torch.eye(3, dtype=torch.float64), torch.full((3,), 1000.0, dtype=torch.float64)
    assert deviation(m, values, eye, shift) < 1e-4 < deviation(none, values, eye, shift)


@pytest.mark.parametrize("geo", THREE, ids=label)
def test_the_origin_changes_nothing_in_exact_arithmetic_but_in_e(geo):
    values = data(build(geo), 2, 5)
    values["mass"] = values["mass"].abs()
    mean, weighted, none = (
        build(geo, origin=origin, invariants=False)(**values)["final"] for origin in ("mean", "mass", None)
    )
    if geo.point == "relative":
        assert (mean - none).abs().max() > 1e-3
        assert (mean - weighted).abs().max() > 1e-3
    else:
        torch.testing.assert_close(mean, none, rtol=1e-7, atol=1e-7)
        torch.testing.assert_close(mean, weighted, rtol=1e-7, atol=1e-7)


def test_e_without_an_origin_is_not_translation_equivariant():
    m = build(geometry("E"), origin=None)
    assert deviation(m, data(m, 2, 5), *motion(m.geo, 1)) > 1e-3


@pytest.mark.parametrize("per", ["token", "sample"])
@pytest.mark.parametrize("geo", THREE, ids=label)
def test_padded_packed_and_single_samples_agree(geo, per):
    targets = {"final": "point", "energy": "scalar", "wall": "plane"}
    m = build(geo, {**BODIES, "floor": "plane"}, targets, origin="mass", per=per)
    values = data(m, 2, 5)
    values["mass"] = values["mass"].abs() + 0.1
    lengths = [3, 5]
    mask = torch.arange(5) < torch.tensor(lengths)[:, None]
    dirty = {name: x.clone() for name, x in values.items()}
    for x in dirty.values():
        x[~mask] = torch.nan
    padded = m(**dirty, mask=mask)
    offsets = torch.tensor([0, 3, 8])
    packed = m(**{name: torch.cat([x[i, :n] for i, n in enumerate(lengths)]) for name, x in values.items()}, offsets=offsets)
    for i, n in enumerate(lengths):
        alone = m(**{name: x[i, :n] for name, x in values.items()})
        for name, expected in alone.items():
            of_padded = padded[name][i, :n] if per == "token" else padded[name][i]
            of_packed = packed[name][offsets[i] : offsets[i + 1]] if per == "token" else packed[name][i]
            torch.testing.assert_close(of_padded, expected, rtol=1e-9, atol=1e-9)
            torch.testing.assert_close(of_packed, expected, rtol=1e-9, atol=1e-9)
    if per == "token":
        assert all((out[~mask] == 0).all() for out in padded.values())


@pytest.mark.parametrize("geo", THREE, ids=label)
def test_sample_targets_are_pooled_and_placed(geo):
    m = build(
        geo,
        targets={"centre": "point", "energy": "scalar", "final": "point"},
        per={"centre": "sample", "energy": "sample", "final": "token"},
    )
    values, (matrix, shift) = data(m, 2, 5), motion(geo, 1)
    out = m(**values)
    assert {name: tuple(x.shape) for name, x in out.items()} == {"centre": (2, 3), "energy": (2,), "final": (2, 5, 3)}
    found = m(**moved(m, m.inputs.fields, values, matrix, shift))
    torch.testing.assert_close(found["centre"], out["centre"] @ matrix.T + shift, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(found["energy"], out["energy"], rtol=1e-8, atol=1e-8)
    order = torch.tensor([3, 0, 4, 1, 2])
    shuffled = m(**{name: x[:, order] for name, x in values.items()})
    torch.testing.assert_close(shuffled["centre"], out["centre"])
    torch.testing.assert_close(shuffled["final"], out["final"][:, order])


def test_a_field_per_sample_holds_for_all_its_tokens():
    m = build(geometry("C"), {"x": "point", "wind": "vector", "heat": "scalar"}, {"y": "point"})
    x, wind, heat = torch.randn(2, 5, 3).double(), torch.randn(2, 1, 3).double(), torch.randn(2, 1).double()
    expected = m(x=x, wind=wind.expand(2, 5, 3), heat=heat.expand(2, 5))["y"]
    torch.testing.assert_close(m(x=x, wind=wind, heat=heat)["y"], expected)
    packed = m(x=x.flatten(0, 1), wind=wind[:, 0], heat=heat[:, 0], offsets=torch.tensor([0, 5, 10]))["y"]
    torch.testing.assert_close(packed.unflatten(0, (2, 5)), expected)


@pytest.mark.parametrize("name", ["position", "velocity"])
def test_reinserted_fields_reach_the_attention(name):
    m = build(geometry("E"), reinsert=(name,))
    assert m.net.reinsert == m.inputs.channels(name)
    assert deviation(m, data(m, 5), *motion(m.geo, 1)) < 1e-9


def test_numbers_may_come_with_or_without_their_axis():
    m = build(geometry("C"))
    values = data(m, 2, 5)
    bare = {**values, "mass": values["mass"].squeeze(-1)}
    torch.testing.assert_close(m(**bare), m(**values))
    alone = build(geometry("C"), {"a": "scalar", "b": "scalar"}, {"c": "scalar"})
    a, b = torch.randn(2, 2, 5).double()
    torch.testing.assert_close(alone(a=a, b=b), alone(a=a[..., None], b=b[..., None]))
    assert alone(a=a, b=b)["c"].shape == (2, 5)


@pytest.mark.parametrize("geo", THREE, ids=label)
def test_gradients_are_finite_and_reach_every_input(geo):
    m = build(geo, dtype=torch.float32)
    values = {name: x.float().requires_grad_() for name, x in data(m, 2, 5).items()}
    values["mass"].data.abs_()
    sum(out.square().sum() for out in m(**values).values()).backward()
    for x in values.values():
        assert torch.isfinite(x.grad).all()
        assert x.grad.abs().max() > 0
    assert all(torch.isfinite(p.grad).all() for p in m.parameters() if p.grad is not None)


def test_autocast_leaves_coordinates_alone():
    m = build(geometry("E"), dtype=torch.float32)
    values = data(m, 2, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = m(**values)["final"]
        far = m(**{**values, "position": values["position"] + 1e6})["final"]
    assert out.dtype == torch.float64
    assert (far - 1e6 - out).abs().max() < 1e-3


def test_a_model_can_be_copied_and_pickled_and_its_state_is_its_weights_and_units():
    m = build(geometry("iP"))
    values = data(m, 5)
    for twin in (copy.deepcopy(m), pickle.loads(pickle.dumps(m))):
        torch.testing.assert_close(twin(**values), m(**values))
    assert set(m.state_dict()) == {name for name, _ in m.named_parameters()} | {"units._extra_state"}
    assert "inputs={'position': 'point'" in str(m)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inputs": {"x": "pont"}}, "kind 'pont' is unknown; did you mean 'point'"),
        ({"targets": {"y": "plain"}}, "y='plain': kind 'plain' is unknown.*'plane'"),
        ({"inputs": {"v": "vector"}}, "target 'final' is a position, but no input is"),
        ({"per": "sampel"}, "per='sampel' must be"),
        ({"per": {"other": "token"}}, "per="),
        ({"origin": "masss"}, "no input field 'masss'.*did you mean 'mass'"),
        ({"origin": "velocity"}, "origin='velocity' has kind 'vector'"),
        ({"reinsert": ("positions",)}, "no input field 'positions'.*did you mean 'position'"),
        ({"heads": 3}, "heads=3"),
        ({"geo": "CC"}, "name='CC' is not a geometry"),
    ],
)
def test_bad_declarations_name_the_argument(options, message):
    with pytest.raises(ValueError, match=message):
        build(**{"geo": "C", **options})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"velocity": None}, "input field 'velocity' is missing"),
        ({"mas": torch.zeros(2, 5)}, "no input field 'mas'; did you mean 'mass'"),
        ({"position": torch.zeros(2, 5, 2)}, r"position has shape \(2, 5, 2\); point has 3 columns"),
        ({"position": torch.zeros(2, 5, 3, dtype=torch.long)}, "position is torch.int64; pass a floating point tensor"),
        ({"position": [[0.0]]}, "position is list; pass a floating point tensor"),
        ({"mass": torch.zeros(2, 5, 2)}, "mass has shape.*1 columns"),
        ({"mass": torch.zeros(2, 4)}, "do not have the same tokens"),
        ({"velocity": torch.zeros(3)}, "velocity has shape"),
        ({"position": torch.full((2, 5, 3), torch.nan)}, r"position contains NaN or infinity, first at index \(0, 0, 0\)"),
        ({"mass": torch.full((2, 5), torch.inf)}, "mass contains NaN or infinity"),
        ({"mask": torch.ones(2, 4, dtype=torch.bool)}, r"mask has shape \(2, 4\); the tokens have \(2, 5\)"),
        ({"mask": torch.ones(2, 5)}, "mask is torch.float32; it must be torch.bool"),
        ({"mask": torch.zeros(2, 5, dtype=torch.bool)}, r"mask leaves sample \(0,\) without a real token"),
        ({"mask": torch.ones(2, 5, dtype=torch.bool), "offsets": torch.tensor([0, 5])}, "mask and offsets were both given"),
        ({"offsets": torch.tensor([0, 5])}, "offsets=.*must start at 0 and end at the number of tokens, 2"),
    ],
)
def test_bad_input_names_the_argument(change, message):
    m = build("C")
    with pytest.raises(ValueError, match=message):
        m(**{**data(m, 2, 5), **change})


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([0, 4, 2, 5], "sample 1 ends before it starts"),
        ([0, 2, 2, 5], "sample 1 is empty"),
        ([1, 5], "must start at 0"),
        ([0, 4], "end at the number of tokens, 5"),
    ],
)
def test_bad_offsets(offsets, message):
    m = build("C")
    with pytest.raises(ValueError, match=message):
        m(**data(m, 5), offsets=torch.tensor(offsets))
    with pytest.raises(ValueError, match="a sample needs at least one"):
        m(**data(m, 0))


WORKER = """
import pickle, sys
m, values = pickle.load(open(sys.argv[1], "rb"))
pickle.dump((m(**values)["final"], m.geo.embed_point(values["position"])), open(sys.argv[2], "wb"))
"""


def test_models_and_their_geometry_travel_to_worker_processes(tmp_path):
    m = build("C", targets={"final": "point", "wall": "plane"})
    values = data(m, 2, 5)
    given, found = tmp_path / "given", tmp_path / "found"
    given.write_bytes(pickle.dumps((m, values)))
    subprocess.run([sys.executable, "-c", WORKER, str(given), str(found)], check=True)
    final, point = pickle.loads(found.read_bytes())
    torch.testing.assert_close(final, m(**values)["final"])
    torch.testing.assert_close(point, m.geo.embed_point(values["position"]))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.uint8, torch.int32], ids=str)
def test_offsets_of_any_integer_type(dtype):
    net = model("E", {"p": "point"}, {"e": "scalar"}, hidden=Width(2, 4), blocks=1, heads=2, per="sample")
    p = torch.randn(120, 3)
    expected = net(p=p, offsets=torch.tensor([0, 50, 120]))["e"]
    assert torch.equal(net(p=p, offsets=torch.tensor([0, 50, 120], dtype=dtype))["e"], expected)
    with pytest.raises(ValueError, match="offsets must increase"):  # as differences of uint8 they would grow
        net(p=p, offsets=torch.tensor([0, 100, 50, 120], dtype=dtype))
