import json
import math

import pytest
import torch
from torch import Tensor

from anygatr.lab.data.dataset import Dataset
from anygatr.lab.data.kinds import KINDS, columns
from anygatr.lab.data.normalise import Normaliser


def every_kind(dim: int, scale: float = 1.0, tokens: int = 6, per: str = "token") -> Dataset:
    """A field of every kind, in units in which nothing is of order one."""
    generator = torch.Generator().manual_seed(0)

    def numbers(kind: str) -> Tensor:
        width = columns(kind, dim)
        x = torch.randn(50, tokens, width, generator=generator, dtype=torch.float64) * scale + 3 * scale
        return x if width > 1 else x[..., 0]

    fields = {kind: numbers(kind) for kind in KINDS}
    fields["final"] = fields["point"] + 0.1 * scale if per == "token" else fields["point"][:, 0]
    return Dataset(fields, {k: k for k in KINDS} | {"final": "point"}, ("final",), dim, per)


@pytest.mark.parametrize("scale", [1e-9, 1.0, 3e5])
@pytest.mark.parametrize("dim", [2, 3])
def test_undo_returns_what_was_normalised(dim, scale):
    data = every_kind(dim, scale)
    normaliser = Normaliser.fit(data)
    back = normaliser.undo(normaliser.apply(data.fields))
    for name, x in data.fields.items():
        if any(normaliser.shift[name]):
            torch.testing.assert_close(back[name], x, rtol=1e-14, atol=0)
        else:
            assert back[name].equal(x)  # bit for bit: units are powers of two


@pytest.mark.parametrize("scale", [1e-9, 3e5])
def test_fields_become_of_order_one(scale):
    data = every_kind(3, scale)
    fields = Normaliser.fit(data).apply(data.fields)
    for name in ("point", "scalar", "translation", "sphere"):
        assert 0.4 < fields[name].std() < 1.6, name
    for name in ("vector", "momentum", "pseudoscalar"):
        assert 0.6 < fields[name].square().mean().sqrt() < 1.6, name
    assert abs(fields["scalar"].mean()) < 1e-12
    assert fields["rotation"].equal(data.fields["rotation"])


@pytest.mark.parametrize("packed", [False, True], ids=["dense", "packed"])
def test_normalising_commutes_with_motions_and_mirrors(packed):
    generator = torch.Generator().manual_seed(1)
    mirror, _ = torch.linalg.qr(torch.randn(3, 3, generator=generator, dtype=torch.float64))
    mirror = mirror if torch.det(mirror) < 0 else -mirror
    shift = torch.tensor([1000.0, -50.0, 3.0], dtype=torch.float64)

    def move(fields: dict[str, Tensor], unit: float = 1.0) -> dict[str, Tensor]:
        return {
            "point": fields["point"] @ mirror.T + shift / unit,
            "final": fields["final"] @ mirror.T + shift / unit,
            "vector": fields["vector"] @ mirror.T,
            "pseudoscalar": -fields["pseudoscalar"],
            "scalar": fields["scalar"],
        }

    data = every_kind(3)
    kept = list(move(data.fields))
    data = Dataset({k: data.fields[k] for k in kept}, {k: data.kinds[k] for k in kept}, ("final",), 3)
    moved = Dataset(move(data.fields), data.kinds, data.targets, 3)
    if packed:
        data, moved = data.packed(), moved.packed()
    normaliser = Normaliser.fit(data)
    assert Normaliser.fit(moved).scale == normaliser.scale
    expected = move(normaliser.apply(data.fields), unit=normaliser.scale["point"][0])
    for name, x in normaliser.apply(moved.fields).items():
        torch.testing.assert_close(x, expected[name], rtol=0, atol=1e-11)
    # a shifted vector, the usual standardisation, would not commute
    centred = data.fields["vector"].flatten(0, -2).mean(0)
    assert not torch.allclose((data.fields["vector"] - centred) @ mirror.T, moved.fields["vector"] - centred)


@pytest.mark.parametrize("per", ["token", "sample"])
def test_one_length_unit_for_inputs_and_targets(per):
    scale = Normaliser.fit(every_kind(3, 1e-3, per=per)).scale
    unit = scale["point"][0]
    assert unit == 2.0 ** round(math.log2(1e-3))
    lengths = [scale["point"], scale["final"], scale["translation"], scale["sphere"], scale["plane"][3:], scale["line"][:3]]
    lengths += [scale["motor"][4:], scale["oriented_point"]]
    assert {value for columns in lengths for value in columns} == {unit}
    assert set(scale["rotation"] + scale["plane"][:3] + scale["line"][3:] + scale["motor"][:4]) == {1.0}


def test_the_unit_of_length_is_the_distance_between_neighbours_not_the_size():
    axis = 0.01 * torch.arange(12, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis, axis)
    rows = Dataset({"place": torch.stack([grid, grid + 7.0])}, {"place": "point"}, (), 3)
    ragged = Dataset(
        {"place": torch.cat([grid, grid[:200]])}, {"place": "point"}, (), 3, offsets=torch.tensor([0, 1728, 1928])
    )
    for data in (rows, ragged):
        assert Normaliser.fit(data).scale["place"] == (2.0**-7,) * 3  # 0.01, to a power of two


def test_a_given_unit_of_length_replaces_the_one_found():
    data = every_kind(3, per="token")
    found, given = Normaliser.fit(data), Normaliser.fit(data, 0.3)
    assert given.scale["point"] == given.scale["final"] == (0.3,) * 3
    assert given.scale["vector"] == found.scale["vector"]
    only = Normaliser.identity(data, 0.3)
    assert only.scale["point"] == (0.3,) * 3
    assert only.scale["plane"] == (1.0,) * 3 + (0.3,) * 3
    assert set(only.scale["vector"] + only.scale["scalar"]) == {1.0}
    assert {value for columns in only.shift.values() for value in columns} == {0.0}


def test_single_points_take_their_unit_from_the_target():
    data = every_kind(3, tokens=1)
    fields = {"point": data.fields["point"] * 1000, "final": data.fields["point"] * 1000 + 0.25}
    normaliser = Normaliser.fit(Dataset(fields, {"point": "point", "final": "point"}, ("final",), 3))
    assert normaliser.scale["point"][0] == 0.125


def test_equal_points_far_away_have_no_spread():
    place = (torch.rand(50, 1, 3, dtype=torch.float64) + 1e4).expand(50, 7, 3)
    normaliser = Normaliser.fit(Dataset({"place": place}, {"place": "point"}, (), 3))
    assert normaliser.scale["place"][0] == 0.25  # the spread between samples, sqrt(1 / 12)


def test_constant_columns_keep_their_unit():
    fields = {"mass": torch.ones(5, 2, dtype=torch.float64), "place": torch.zeros(5, 2, 3, dtype=torch.float64)}
    normaliser = Normaliser.fit(Dataset(fields, {"mass": "scalar", "place": "point"}, (), 3))
    assert normaliser.scale == {"mass": (1.0,), "place": (1.0, 1.0, 1.0)}


def test_float32_outputs_keep_a_large_mean():
    energy = -1e6 + torch.randn(1000, 3, dtype=torch.float64)
    data = Dataset({"energy": energy}, {"energy": "scalar"}, (), 3)
    normaliser = Normaliser.fit(data)
    output = {k: v.float() for k, v in normaliser.apply(data.fields).items()}
    assert (normaliser.undo(output)["energy"] - energy).abs().max() < 1e-6


def test_identity_and_json():
    data = every_kind(3)
    assert all(Normaliser.identity(data).apply(data.fields)[k].equal(v) for k, v in data.fields.items())
    normaliser = Normaliser.fit(data)
    assert Normaliser.from_json(json.loads(json.dumps(normaliser.to_json()))) == normaliser


def test_offsets_pass_unchanged():
    data = every_kind(3).packed()
    assert Normaliser.fit(data).apply(data.batch())["offsets"].equal(data.offsets)
