import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from anygatr.lab.data.files.dataset import load
from anygatr.lab.data.files.inspect import inspect

GOLDEN = Path(__file__).parent / "nbody_golden.npz"
RNG = np.random.default_rng(0)


def clean(size: int = 200, tokens: int = 5) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    place = rng.normal(size=(size, 1, 3)) * 10
    return {
        "position": rng.normal(size=(size, tokens, 3)) + place,
        "velocity": rng.normal(size=(size, tokens, 3)),
        "charge": rng.normal(size=(size, tokens)),
        "energy": rng.normal(size=size),
    }


def unit(*shape: int) -> np.ndarray:
    x = RNG.normal(size=shape)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def save(folder: Path, arrays: dict[str, np.ndarray]) -> Path:
    np.savez(folder / "mine.npz", **arrays)
    return folder / "mine.npz"


def test_a_clean_file_is_described_without_warnings(tmp_path):
    found = inspect(save(tmp_path, clean()))
    assert found.findings == ()
    assert (found.samples, found.tokens, found.dim, found.splits) == (200, (5, 5), 3, {})
    assert found.inputs == {"position": "point", "velocity": "vector", "charge": "scalar"}
    assert found.targets == {"energy": "scalar"}
    assert found.command.endswith("--inputs position:point velocity:vector charge:scalar --target energy:scalar")


def test_the_proposal_can_be_loaded(tmp_path):
    for path in (GOLDEN, save(tmp_path, clean())):
        found = inspect(path)
        assert len(load(path, found.inputs, found.targets)) == found.samples


def test_released_n_body_file():
    found = inspect(GOLDEN)
    assert found.inputs == {"m": "scalar", "x_initial": "point", "v_initial": "vector"}
    assert found.targets == {"x_final": "point"}


@pytest.mark.parametrize(
    ("name", "array", "kind"),
    [
        ("atomPositions", RNG.normal(size=(200, 5, 3)), "point"),
        ("a", RNG.normal(size=(200, 5, 3)) + 100 * RNG.normal(size=(200, 1, 3)), "point"),
        ("a", RNG.normal(size=(200, 5, 3)), "vector"),
        ("a", unit(200, 5, 3), "vector"),
        ("a", unit(200, 5, 4), "rotation"),
        ("quat", unit(200, 4), "rotation"),
        ("a", np.concatenate([unit(200, 4), RNG.normal(size=(200, 3))], axis=1), "motor"),
        ("a", np.concatenate([unit(200, 5, 3), RNG.normal(size=(200, 5, 3))], axis=2), "plane"),
        ("a", np.concatenate([RNG.normal(size=(200, 5, 3)), unit(200, 5, 3)], axis=2), "line"),
        ("momentum", RNG.normal(size=(200, 5, 4)), "momentum"),
        ("momentum", RNG.normal(size=(200, 5, 3)), "vector"),
        ("helicity", RNG.normal(size=(200, 5)), "pseudoscalar"),
        ("a", RNG.normal(size=(200, 5)), "scalar"),
        ("features", RNG.normal(size=(200, 5, 9)), "scalar*9"),
        ("kind", np.eye(3)[RNG.integers(0, 3, size=(200, 5))], "scalar*3"),
        ("species", RNG.integers(0, 7, size=(200, 5)), "category"),
        ("Z", RNG.choice([1, 6, 7, 8], size=(200, 5)), "category"),
        ("element", RNG.choice(["C", "H", "O"], size=(200, 5)), "category"),
        ("hits", RNG.integers(0, 900, size=(200, 5)), "scalar"),
        ("trajectory", RNG.normal(size=(200, 5, 11, 3)), None),
        ("edges", RNG.integers(0, 5, size=(77, 2)), None),
    ],
)
def test_kinds_are_proposed_from_names_and_numbers(name, array, kind, tmp_path):
    found = inspect(save(tmp_path, {"pos": clean()["position"], "vel": clean()["velocity"], name: array}))
    assert next(field.kind for field in found.fields if field.name == name) == kind


def test_plane_problems(tmp_path):
    arrays = {"pos": RNG.normal(size=(200, 5, 2)), "vel": RNG.normal(size=(200, 5, 2)), "heading": RNG.normal(size=(200, 5))}
    found = inspect(save(tmp_path, arrays))
    assert found.dim == 2
    assert found.inputs == {"pos": "point", "vel": "vector", "heading": "rotation"}


def spoiled(case: str) -> dict[str, np.ndarray]:
    arrays = clean()
    match case:
        case "nan":
            arrays["velocity"][17, 2, 0] = np.inf
        case "coincident":
            arrays["position"][11, 3] = arrays["position"][11, 0]
        case "constant":
            arrays["velocity"][..., 2] = 0.5
        case "cancellation":
            arrays["position"] = (arrays["position"] + 1e5).astype(np.float32)
        case "normals":
            arrays["normal"] = unit(200, 5, 3)
        case "w first":
            arrays["rotation"] = np.concatenate([np.ones((200, 5, 1)), 0.1 * RNG.normal(size=(200, 5, 3))], axis=2)
            arrays["rotation"] /= np.linalg.norm(arrays["rotation"], axis=-1, keepdims=True)
        case "not unit":
            arrays["rotation"] = RNG.normal(size=(200, 5, 4))
        case "few":
            arrays = clean(20)
        case "repeated":
            arrays = {k: np.concatenate([a, a[:3]]) for k, a in arrays.items()}
        case "ragged":
            arrays = {k: a[:, 0] if a.ndim > 1 else a[:40] for k, a in arrays.items()}
            arrays["offsets"] = np.array([0, *np.cumsum(np.arange(40) % 9 + 1)])
            arrays["offsets"][-1] = 200
        case "axial":
            arrays["angular_velocity"] = RNG.normal(size=(200, 5, 3))
        case "magnitudes":
            arrays["charge"] = 10.0 ** RNG.uniform(-6, 6, size=(200, 5))
        case "leak":
            arrays = {
                f"{s}_{k}": a[b] for k, a in arrays.items() for s, b in [("train", slice(150)), ("test", slice(140, 200))]
            }
    return arrays


@pytest.mark.parametrize(
    ("case", "field", "problem"),
    [
        ("nan", "velocity", "1 samples, the first is 17, hold NaN"),
        ("coincident", "position", "1 samples, the first is 11, hold points that coincide"),
        ("constant", "velocity", "column 2 never change"),
        ("cancellation", "position", "float32 positions lie 1.1e+05 times their spread"),
        ("normals", "normal", "unit length"),
        ("w first", "rotation", "the first column dominates"),
        ("not unit", "rotation", "not of unit length"),
        ("few", "samples", "only 20"),
        ("repeated", "samples", "3 repeat an earlier one"),
        ("ragged", "samples", "ragged: 1 to"),
        ("axial", "angular_velocity", "axial vector"),
        ("magnitudes", "charge", "orders of magnitude"),
        ("leak", "splits", "10 samples occur in two"),
    ],
)
def test_what_will_hurt_is_said(case, field, problem, tmp_path):
    found = inspect(save(tmp_path, spoiled(case)))
    assert [f for f in found.findings if f.field == field and problem in f.problem], found.findings
    assert {f.field for f in found.findings} <= {field, "samples"}
    assert all(f.remedy for f in found.findings)


def test_it_prints_and_serialises(tmp_path):
    found = inspect(save(tmp_path, spoiled("nan")))
    console = Console(record=True, width=160)
    console.print(found)
    text = console.export_text()
    assert "position" in text
    assert "hold NaN" in text
    assert found.command.startswith(f"--data {tmp_path}")
    assert "--target energy:scalar" in found.command
    assert json.loads(json.dumps(found.to_json()))["fields"][0]["kind"] == "point"


def test_nothing_to_see_is_an_error(tmp_path):
    np.savez(tmp_path / "mine.npz", text=np.array("hello"))
    with pytest.raises(ValueError, match="holds no arrays of numbers"):
        inspect(tmp_path / "mine.npz")
