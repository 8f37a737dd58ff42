"""A run as files to publish: loaded in one line it predicts the same, and its card says what the run measured."""

import json
import shutil

import pytest
import torch
from samples import DRIFT, drift

import anygatr
from anygatr import lab
from benchmarks.harness import release as module
from benchmarks.harness.release import CARD, card, release

TINY = {"blocks": 1, "mv": 4, "s": 8, "heads": 2, "batch": 8, "steps": 4, "threads": 1}


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    drift(tmp_path / "drift.npz")
    lab.train(data="drift.npz", model="E", out="run", **DRIFT, **TINY)
    return anygatr.load_run("run")


def test_a_release_is_loaded_in_one_line_and_predicts_the_same(run, tmp_path):
    path = release("run", "released", about="Bodies that drift.")
    assert sorted(file.name for file in path.iterdir()) == [CARD, "config.json", "result.json", "weights.safetensors"]
    shutil.move("released", tmp_path / "elsewhere")
    for name in ("run", "drift.npz"):
        (shutil.rmtree if name == "run" else lambda path: (tmp_path / path).unlink())(name)
    generator = torch.Generator().manual_seed(0)
    fields = {name: torch.randn(5, 3 if kind != "scalar" else 1, generator=generator) for name, kind in run.inputs.items()}
    fields = {name: x.squeeze(-1) if run.inputs[name] == "scalar" else x for name, x in fields.items()}
    found, expected = anygatr.load_run("elsewhere").predict(**fields), run.predict(**fields)
    for name in run.targets:
        assert torch.equal(found[name], expected[name])


def test_the_card_says_what_was_measured(run):
    text = card(run, "released", "Bodies that drift.")
    row = run.row
    assert f"{row['parameters']:,} parameters" in text
    assert "| eval | " in text
    assert "Bodies that drift." in text
    changed = json.loads(json.dumps(row))
    changed["metrics"]["eval"]["mse"] *= 10
    (run.run.directory / "result.json").write_text(json.dumps(changed))
    assert card(anygatr.load_run("run"), "released", "Bodies that drift.") != text


def test_what_cannot_be_released_is_refused(run, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LIMIT", 1e-3)
    with pytest.raises(ValueError, match="MB of weights"):
        release("run", "released")
    (tmp_path / "run" / "result.json").unlink()
    with pytest.raises(ValueError, match="is not finished; continue it: anygatr train"):
        release("run", "released")
    lab.train(data=str(tmp_path / "drift.npz"), model="E", out="absolute", **DRIFT, **TINY)
    with pytest.raises(ValueError, match="absolute path"):
        release("absolute", "released")
    assert not (tmp_path / "released").exists()
