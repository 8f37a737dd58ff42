"""Molecules as people store them: names and atomic numbers, PyTorch Geometric's ptr and batch, energies that add up."""

from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from anygatr.lab.data.files.dataset import load
from anygatr.lab.data.files.inspect import inspect
from anygatr.lab.data.kinds import encoded, parse_fields
from anygatr.lab.data.task import Task
from anygatr.lab.data.token_counts import warn_of_unseen_count

SYMBOLS = np.array(["C", "H", "N", "O"])
NUMBERS = np.array([6, 1, 7, 8])


def molecules(path: Path, samples: int = 120, layout: str = "ptr", **more: np.ndarray) -> Path:
    """Ragged molecules: positions, symbols, atomic numbers, and an energy that is a sum over atoms."""
    rng = np.random.default_rng(0)
    counts = rng.integers(3, 12, samples)
    which = rng.integers(0, 4, counts.sum())
    which[:4] = np.arange(4)
    ptr = np.concatenate([[0], np.cumsum(counts)])
    arrays = {"pos": rng.normal(size=(len(which), 3)), "symbol": SYMBOLS[which], "z": NUMBERS[which]}
    arrays["energy"] = np.add.reduceat(np.array([-38.0, -0.5, -54.0, -75.0])[which], ptr[:-1])
    arrays |= {"ptr": {"ptr": ptr}, "batch": {"batch": np.repeat(np.arange(samples), counts)}}[layout]
    np.savez(path, **arrays | more)
    return path


@pytest.mark.parametrize("layout", ["ptr", "batch"])
def test_the_layouts_of_pytorch_geometric_are_understood(tmp_path, layout):
    path = molecules(tmp_path / "m.npz", layout=layout)
    found = inspect(path)
    assert (found.samples, found.tokens) == (120, (3, 11))
    assert found.inputs == {"pos": "point", "symbol": "category", "z": "category"}
    assert found.targets == {"energy": "scalar"}
    data = load(path, {"pos": "point"}, {"energy": "scalar"})
    assert (len(data), data.per) == (120, "sample")


def test_bad_batches_and_offsets_say_what_is_wrong(tmp_path):
    good = dict(np.load(molecules(tmp_path / "m.npz", layout="batch")))
    for change, message in (
        ({"batch": good["batch"][::-1]}, "batch, of shape .* must be the number of each token's sample"),
        ({"batch": good["batch"] * 2}, "batch: sample 1 has no token"),
    ):
        np.savez(tmp_path / "x.npz", **good | change)
        with pytest.raises(ValueError, match=message):
            load(tmp_path / "x.npz", {"pos": "point"}, {"energy": "scalar"})
    rows, short = len(good["pos"]), np.concatenate([[0], np.cumsum(np.bincount(good["batch"]))])
    short[-1] -= 2
    np.savez(tmp_path / "x.npz", **{k: a for k, a in good.items() if k != "batch"}, offsets=short)
    with pytest.raises(ValueError, match=f"offsets end at {rows - 2}, but the field 'pos' has {rows} rows"):
        load(tmp_path / "x.npz", {"pos": "point"}, {"energy": "scalar"})


@pytest.mark.parametrize(("field", "classes"), [("symbol", ("C", "H", "N", "O")), ("z", (1, 6, 7, 8))])
def test_names_and_numbers_become_codes_of_a_vocabulary(tmp_path, field, classes):
    path = molecules(tmp_path / "m.npz")
    data = load(path, {"pos": "point", field: "category"}, {"energy": "scalar"})
    assert data.kinds[field] == "category*4"
    assert data.vocabulary == {field: classes}
    assert [classes[int(code)] for code in data.fields[field]] == np.load(path)[field].tolist()
    task = Task.of(data)
    assert Task.from_json(task.to_json() | {"vocabulary": {field: list(classes)}}) == task
    one_hot = encoded("category*4", data.fields[field], 3)
    assert torch.equal(one_hot.argmax(-1), data.fields[field].long())


def test_a_class_that_training_did_not_have_is_an_error(tmp_path):
    path = molecules(tmp_path / "m.npz")
    known = load(path, {"pos": "point", "symbol": "category"}, {"energy": "scalar"}).vocabulary
    fewer = {"symbol": ("C", "H", "O")}
    with pytest.raises(
        ValueError, match=r"the field 'symbol' has the category 'N', which was not there in training; .*C, H, O"
    ):
        load(path, {"pos": "point", "symbol": "category"}, {}, fractions=None, vocabulary=fewer)
    again = load(path, {"pos": "point", "symbol": "category"}, {}, fractions=None, vocabulary=known | {"other": ("a", "b")})
    assert again.kinds["symbol"] == "category*4"
    with pytest.raises(ValueError, match="category needs whole numbers or names"):
        load(path, {"pos": "point", "energy": "category"}, {})
    with pytest.raises(ValueError, match="which can be an input only"):
        load(path, {"pos": "point"}, {"z": "category"})


def test_declared_codes_have_no_vocabulary(tmp_path):
    which = np.random.default_rng(1).integers(0, 5, size=(20, 4))
    np.savez(
        tmp_path / "x.npz",
        place=np.random.default_rng(0).normal(size=(20, 4, 3)),
        kind=which,
        flags=which[..., None] == np.arange(5),
    )
    data = load(tmp_path / "x.npz", parse_fields(["place:point", "kind:category*14", "flags:scalar*5"]), {})
    assert (data.kinds["kind"], data.kinds["flags"], data.vocabulary) == ("category*14", "scalar*5", {})
    with pytest.raises(ValueError, match=r"holds 5 of scalar, but flags:scalar\*6 declares 6"):
        load(tmp_path / "x.npz", parse_fields(["place:point", "flags:scalar*6"]), {})
    with pytest.raises(ValueError, match="should end with how many"):
        parse_fields(["flags:scalar*"])


def test_a_target_that_grows_with_the_sample_is_found_and_a_sum_proposed(tmp_path):
    found = inspect(molecules(tmp_path / "m.npz"))
    said = next(f for f in found.findings if f.field == "energy")
    assert "grows with the number of tokens" in said.problem
    assert found.command.endswith("--target energy:scalar --pool sum")
    intensive = np.random.default_rng(2).normal(size=120)
    assert "--pool" not in inspect(molecules(tmp_path / "i.npz", energy=intensive)).command
    data = load(tmp_path / "m.npz", {"pos": "point"}, {"energy": "scalar"})
    with pytest.warns(UserWarning, match=r"it explains \d\d% of energy: sum over tokens with --pool sum"):
        warn_of_unseen_count(data)
    warn_of_unseen_count(data, "sum")


def test_guesses_carry_a_question_mark(tmp_path):
    """Three numbers per sample of three tokens may be a vector or a number for each; names decide, if they can."""
    rng = np.random.default_rng(0)
    arrays = {"pos": rng.normal(size=(200, 3, 3)), "dipole": rng.normal(size=(200, 3)), "w": rng.normal(size=(200, 3))}
    arrays["count"] = rng.integers(0, 5, size=(200, 3))
    np.savez(tmp_path / "x.npz", **arrays)
    found = inspect(tmp_path / "x.npz")
    fields = {f.name: f for f in found.fields}
    assert (fields["dipole"].kind, fields["dipole"].per, fields["dipole"].is_guess) == ("vector", "sample", True)
    assert (fields["w"].kind, fields["w"].is_guess) == ("scalar", True)
    assert "if they are codes, say count:category" in fields["count"].reason or "w:vector" in fields["w"].reason
    assert not fields["pos"].is_guess
    console = Console(record=True, width=200)
    console.print(found)
    assert "vector?" in console.export_text()
