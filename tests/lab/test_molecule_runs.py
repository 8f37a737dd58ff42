"""A run on ragged molecules: sums over atoms, categories, another folder, messages."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from anygatr import lab
from anygatr.lab.config.commands import EvaluateConfig
from anygatr.lab.training.evaluate import evaluate
from anygatr.lab.training.run import TrainingRun

TINY = {"blocks": 1, "mv": 4, "s": 8, "heads": 2, "batch": 16, "threads": 1}
FIELDS = {"inputs": ["pos:point", "symbol:category"], "target": ["energy:scalar"]}
ENERGY = {"C": -38.0, "H": -0.5, "O": -75.0}


def molecules(path: Path, samples: int = 80, symbols: str = "CHO", seed: int = 0) -> Path:
    """Energies that add up over atoms, besides a little of the shape."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(3, 12, samples)
    symbol = rng.choice(list(symbols), counts.sum())
    pos, ptr = rng.normal(size=(len(symbol), 3)), np.concatenate([[0], np.cumsum(counts)])
    each = np.array([ENERGY.get(s, -1.0) for s in symbol]) + 0.1 * (pos**2).sum(-1)
    np.savez(path, pos=pos, symbol=symbol, ptr=ptr, energy=np.add.reduceat(each, ptr[:-1]))
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """Trained from the folder of its data, with a relative path."""
    folder, before = tmp_path_factory.mktemp("project"), os.getcwd()
    molecules(folder / "m.npz")
    os.chdir(folder)
    try:
        lab.train(data="m.npz", model="E", out="runs/e", pool="sum", steps=120, lr=1e-2, **FIELDS, **TINY)
    finally:
        os.chdir(before)
    return folder / "runs" / "e"


def test_sums_learn_what_means_cannot_see(run, tmp_path):
    """The same budget: with sums the energy is learned, with means hardly more than its mean."""
    row = json.loads((run / "result.json").read_text())
    data = str(run.parent.parent / "m.npz")
    mean = lab.train(data=data, model="E", out=str(tmp_path / "mean"), pool="mean", steps=120, lr=1e-2, **FIELDS, **TINY)
    assert row["metrics"]["eval"]["rmse"] < 0.5 * mean["metrics"]["eval"]["rmse"]
    units = TrainingRun.open(run).units
    assert units.per_token["energy"] < -20
    assert units.normaliser.shift["energy"] == (0.0,)


def test_r2_is_of_the_target_itself_not_of_what_is_learned(run):
    """What each token adds is subtracted for the network and added again: errors and R2 are those of the file's numbers."""
    opened = TrainingRun.open(run)
    arrays = np.load(run.parent.parent / "m.npz")
    data = opened.spec.load()
    found = lab.predict(str(run), str(run.parent.parent / "m.npz"), out=str(run.parent / "p.npz"))["energy"].numpy()
    index = data.splits["eval"].numpy()
    true, guess = arrays["energy"][index], found[index]
    numbers = json.loads((run / "result.json").read_text())["metrics"]["eval"]
    assert numbers["rmse"] == pytest.approx(np.sqrt(((true - guess) ** 2).mean()), rel=1e-4)
    assert numbers["mae"] == pytest.approx(np.abs(true - guess).mean(), rel=1e-4)
    assert numbers["r2"] == pytest.approx(1 - ((true - guess) ** 2).sum() / ((true - true.mean()) ** 2).sum(), rel=1e-4)


def test_a_run_finds_its_data_from_another_folder_and_after_a_move(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert set(evaluate(EvaluateConfig(str(run)))) == {"train", "val", "eval"}
    moved = tmp_path / "elsewhere"
    run.parent.parent.rename(moved)
    try:
        assert set(evaluate(EvaluateConfig("elsewhere/runs/e"))) == {"train", "val", "eval"}
    finally:
        moved.rename(run.parent.parent)


def test_unseen_classes_and_comparisons_are_refused_in_one_line(run, tmp_path):
    other = molecules(tmp_path / "n.npz", symbols="CHN")
    with pytest.raises(ValueError, match="the field 'symbol' has the category 'N', which was not there in training"):
        lab.predict(str(run), str(other), out=str(tmp_path / "p.npz"))
    comparison = tmp_path / "cmp" / "runs"
    comparison.mkdir(parents=True)
    (comparison / "E-16-0").symlink_to(run)
    with pytest.raises(ValueError, match=r"is a comparison of 1 runs; name one of them: .*runs/E-16-0"):
        lab.predict(str(tmp_path / "cmp"), str(other))


def test_predictions_as_a_table(run, tmp_path):
    lab.predict(str(run), str(run.parent.parent / "m.npz"), out=str(tmp_path / "p.csv"))
    lines = (tmp_path / "p.csv").read_text().splitlines()
    assert (lines[0], len(lines)) == ("sample,energy", 81)


def test_inputs_outside_the_range_of_training_are_remarked_on(run, tmp_path):
    arrays = dict(np.load(run.parent.parent / "m.npz"))
    np.savez(tmp_path / "far.npz", **arrays | {"pos": 10 * arrays["pos"]})
    with pytest.warns(UserWarning, match=r"pos: samples extend over .*, in training .*: the prediction is an extrapolation"):
        lab.predict(str(run), str(tmp_path / "far.npz"), out=str(tmp_path / "p.npz"))
