"""The tournament: rounds that halve, a winner that is trained and certified, a reason, and how sure it is."""

import json

import pytest
from samples import DRIFT, drift

import anygatr
from anygatr import lab
from anygatr.lab.comparison import choose as module
from anygatr.lab.comparison.choose import Candidate, _plan, _verdict
from anygatr.lab.config.recipe import recipe


def test_a_tournament_ends_with_a_trained_certified_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module, "WIDTHS", ((4, 8),))
    monkeypatch.setattr(module, "DEPTHS", (1,))
    monkeypatch.setattr(module, "LEAST_STEPS", 3)
    out = tmp_path / "t"
    row = lab.choose(data=str(drift(tmp_path / "d.npz")), models=["E", "iP"], minutes=0.03, out=str(out), threads=1, **DRIFT)
    assert row["status"] == "ok"
    assert row["certified"]
    assert "won: validation error" in row["reason"]
    said = " ".join(capsys.readouterr().out.split())
    assert "candidates: 4 for " in said  # before the first round
    assert said.index("candidates: ") < said.index("round 1")
    assert row["reason"] in said
    assert len(json.loads((out / "tournament.json").read_text())) == 2
    rounds = [path.name.split("-")[-2:] for path in (out / "runs").iterdir()]
    assert sum(seed != "0" for _, seed in rounds) == 4  # two finalists with two more seeds each
    assert anygatr.load_run(out / "best").row["reason"] == row["reason"]
    with pytest.raises(ValueError, match="a tournament needs a directory of its own"):
        lab.choose(data=str(tmp_path / "d.npz"), models=["E"], minutes=0.01, out=str(out), **DRIFT)


def test_what_cannot_learn_the_task_takes_no_part(tmp_path):
    import numpy as np

    place = np.random.default_rng(0).normal(size=(30, 4, 3))
    np.savez(tmp_path / "x.npz", place=place, force=place - place.mean(1, keepdims=True))
    fields = {"inputs": ["place:point"], "target": ["force:vector"]}
    with pytest.raises(ValueError, match="geometry 'P' cannot predict the vector 'force'"):
        lab.choose(data=str(tmp_path / "x.npz"), models=["P"], minutes=0.01, out=str(tmp_path / "t"), **fields)
    with pytest.raises(ValueError, match="minutes=0 must be positive"):
        lab.choose(data=str(tmp_path / "x.npz"), models=["E"], minutes=0, out=str(tmp_path / "t"), **fields)


def test_a_tournament_that_cannot_end_in_time_says_so_beforehand():
    assert "fewer --models" not in _plan([32, 11, 4, 2], 20, expected=100.0, seconds=100.0)
    late = _plan([32, 11, 4, 2], 20, expected=600.0, seconds=120.0)
    assert "32 for 20 steps, 11 for 60 steps, 4 for 180 steps, 2 for 540 steps" in late
    assert "about 10 minutes at today's speed, not the 2 that --minutes leaves" in late


@pytest.mark.parametrize(
    ("theirs", "said"),
    [((2.0, 2.1, 1.9), "every one of 3 seeds"), ((1.2, 0.5, 1.6), "only 2 of 3 seeds, so the two are hardly")],
)
def test_how_sure_a_victory_is(theirs, said):
    first, second = (Candidate(recipe("laptop", name), 1.0, errors) for name, errors in (("E", (1.0,) * 3), ("C", theirs)))
    winner, reason = _verdict([first, second])
    assert winner is first
    assert said in reason
