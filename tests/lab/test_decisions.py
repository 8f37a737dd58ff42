"""The rule by which models are trained until they are done: few arteries, few steps, and what the rows say of them."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from anygatr.lab.config.commands import command_line
from benchmarks.arteries import decide as arteries
from benchmarks.harness.decision import Rule
from benchmarks.nbody import decide as nbody

ROOT = Path(__file__).parents[2]
TINY = Rule(
    core_hours=0.01, batch=1, validations=2, patience=3, rates=(1e-3, 3e-3), units=(0.125, 0.25), choice_validations=1
)


@pytest.fixture
def few(tmp_path, monkeypatch):
    """An experiment of a hundred steps on the arteries of the tests, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    shutil.copy(ROOT / "tests/arteries/data/arteries.h5", "data/arteries-3.h5")
    monkeypatch.setattr("benchmarks.harness.decision.made_by", lambda: {"commit": "none"})
    small = {"milliseconds": 400, "size": {"blocks": 1, "mv": 2, "s": 4, "heads": 2}}
    monkeypatch.setattr(arteries, "RULE", TINY)
    return replace(arteries.experiment(3), models={"E": small})


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_model_is_trained_by_the_rule_and_once(few, capsys):
    few.decide("E", 1, 0)
    assert "finished E with 1 samples" in capsys.readouterr().out
    choices, (row,) = lines(few.choices), lines(few.rows)
    assert [(c["unit"], c["learning_rate"]) for c in choices[:2]] == [(0.125, 1e-3), (0.25, 1e-3)]
    assert len(choices) == 3, "two units at the first rate, then the other rate"
    unit = min(choices[:2], key=lambda c: c["validation"])["unit"]
    rate = min((c for c in choices if c["unit"] == unit), key=lambda c: c["validation"])["learning_rate"]
    assert (row["unit"], row["learning_rate"], row["steps"], row["stopped"]) == (unit, rate, 100, "cap")
    assert (row["arteries"], row["model"], row["size"], row["seed"]) == (3, "E", 1, 0)
    assert 0 < row["training"]["approximation"] < row["evaluation"]["approximation"]
    assert {"training", "validation", "full_resolution", "core_hours", "command", "commit", "curve"} <= set(row)
    few.decide("E", 1, 0)
    assert lines(few.rows) == [row]


def test_choices_are_not_shown_the_evaluation_set(few, monkeypatch):
    seen = []

    def told(config, data):
        seen.append(set(data.splits))
        return {"steps": 5, "error": None, "metrics": {"val": {"mse": config.lr}}}, 0.0

    monkeypatch.setattr("benchmarks.harness.decision.train", told)
    assert few.chosen("E") == (1e-3, 0.125)
    assert seen == [{"train", "val"}] * 3


def test_a_model_that_diverges_at_every_rate_is_named(few, monkeypatch):
    failed = {"steps": 2, "error": "step 2: not finite", "metrics": {}}
    monkeypatch.setattr("benchmarks.harness.decision.train", lambda config, data: (failed, 0.0))
    with pytest.raises(ValueError, match="model='E' diverges at every rate"):
        few.chosen("E")


def test_committed_rows_are_of_the_rule():
    """Rows of n-body models were trained with the settings that the rule gives today, so new rows may stand beside them."""
    found = nbody.EXPERIMENT
    trained = [row for row in lines(ROOT / nbody.ROWS) if row["stopped"] != "closed form"]
    assert trained
    for row in trained:
        model, size, seed = row["model"], row["size"], row["seed"]
        out = f"{found.runs}/{model}-{size}-{seed}"
        rate, unit = row["learning_rate"], row["unit"]
        config = found.train_config(model, size, seed, rate, unit, found.steps(model), found.rule.validations, out)
        assert sorted(command_line("train", config).split()) == sorted(row["command"].split())
