"""What cannot be learned is refused, what cannot be seen is said: by train, by compare and in the report."""

import io
import json

import numpy as np
import pytest
from rich.console import Console
from samples import drift

from anygatr.interface.sight import UnreachableError
from anygatr.lab.comparison.advise import advise
from anygatr.lab.comparison.compare import compare
from anygatr.lab.config.commands import AdviseConfig, CompareConfig, TrainConfig
from anygatr.lab.config.recipe import PRESETS, Recipe, recipe
from anygatr.lab.report.summary import summarise
from anygatr.lab.training.train import train

TINY = {"steps": 2, "batch": 4, "blocks": 2, "mv": 2, "s": 4, "heads": 2}
FORCE = {"inputs": ("position:point", "mass:scalar"), "target": ("velocity:vector",)}
ENERGY = {"inputs": ("position:point", "mass:scalar"), "target": ("energy:scalar",)}


@pytest.fixture
def data(tmp_path):
    """Bodies with an energy."""
    with np.load(drift(tmp_path / "drift.npz")) as arrays:
        np.savez(tmp_path / "bodies.npz", energy=arrays["mass"] ** 2, **arrays)
    return str(tmp_path / "bodies.npz")


def test_train_refuses_what_nothing_can_fit_before_it_writes(data, tmp_path):
    with pytest.raises(UnreachableError, match=r"nothing made of them is a vector.*use geometry 'E'"):
        train(TrainConfig(data=data, model="P", out=str(tmp_path / "run"), threads=1, **FORCE, **TINY))
    assert not (tmp_path / "run" / "result.json").exists()


def test_train_warns_of_what_it_cannot_see(data, tmp_path):
    with pytest.warns(UserWarning, match="P cannot see position: no prediction depends on it"):
        train(TrainConfig(data=data, model="P", out=str(tmp_path / "run"), threads=1, invariants=False, **ENERGY, **TINY))


def test_compare_leaves_out_what_cannot_learn_and_marks_what_cannot_see(data, tmp_path):
    config = CompareConfig(data=data, models=("E", "P"), out=str(tmp_path / "cmp"), jobs=1, **FORCE, **TINY)
    with pytest.warns(UserWarning, match="left out: geometry 'P' cannot predict the vector"):
        report = compare(config)
    assert json.loads((tmp_path / "cmp" / "experiment.json").read_text())["models"] == ["E"]
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(summarise(tmp_path / "cmp"))
    text = console.export_text()
    assert "cannot learn it" in text
    assert "was not trained: geometry 'P' cannot predict the vector" in text
    assert "was not trained" in report.read_text()
    with pytest.raises(UnreachableError):
        compare(CompareConfig(data=data, models=("P",), out=str(tmp_path / "none"), jobs=1, **FORCE, **TINY))


def test_the_report_shows_what_is_unseen_instead_of_a_rank(data, tmp_path):
    out, models = str(tmp_path / "cmp"), ("E", "P")
    compare(CompareConfig(data=data, models=models, out=out, jobs=1, invariants=False, **ENERGY, **TINY))
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(summarise(tmp_path / "cmp"))
    rows = [line for line in console.export_text().splitlines() if "P-GATr" in line or "E-GATr" in line]
    assert any("cannot see position" in line and "P-GATr" in line for line in rows)
    assert not any("cannot see" in line and "E-GATr" in line for line in rows)


def test_advice_is_never_exact_where_it_is_zero():
    found = {v.name: v for v in advise(AdviseConfig(**FORCE, mv=4, s=8))}
    assert not found["P"].possible
    assert found["P"].fields["velocity"].startswith("no: geometry 'P' cannot predict the vector")
    assert found["P"].targets == {"velocity": "cannot be reached"}
    assert found["E"].mirrors
    assert found["E"].targets["velocity"].endswith("follows mirrors")
    assert not found["iP"].mirrors
    assert not any(v.blind for v in found.values() if v.possible)


def test_presets_of_the_paper_stay_as_published():
    for preset in PRESETS:
        chosen = recipe(preset, "iP")
        assert (chosen.invariants, chosen.init) == ((True, "balanced") if preset == "laptop" else (False, "paper"))
        assert Recipe.from_json(chosen.to_json()) == chosen
    assert not {"invariants", "init"} & set(recipe("paper", "iP").to_json())
    with pytest.raises(ValueError, match="init='kaiming' is unknown"):
        recipe("paper", "iP", init="kaiming")
