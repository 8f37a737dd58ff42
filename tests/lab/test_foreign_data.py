"""Data nobody shaped for us, trained through the command's function to well below the trivial predictor."""

from pathlib import Path

import numpy as np
import pytest
from samples import charges, planar, poses

from anygatr.lab.commands import PredictConfig, TrainConfig
from anygatr.lab.metrics import trivial_mse
from anygatr.lab.predict import predict
from anygatr.lab.source import Source
from anygatr.lab.train import train

SMALL = {"blocks": 2, "mv": 8, "s": 16, "heads": 4, "batch": 32, "lr": 3e-3, "lr_end": 1e-4, "threads": 1}


def score(path: Path, out: Path, **asked) -> float:
    """The evaluation error relative to that of the trivial predictor."""
    config = TrainConfig(data=str(path), out=str(out), **SMALL | asked)
    row = train(config)
    data = Source.of(config).load()
    return row["metrics"]["eval"]["mse"] / trivial_mse(data.split("train"), data.split("eval"))


def test_forces_in_the_plane(tmp_path):
    fields = {"inputs": ("xy:point", "strength:scalar"), "target": ("force:vector",), "dim": 2}
    path = planar(tmp_path / "planar.npz")
    assert score(path, tmp_path / "run", model="E", steps=120, **fields) < 0.2
    new = planar(tmp_path / "new.npz", samples=7, seed=9)
    found = np.load(predict(PredictConfig(str(tmp_path / "run"), str(new), str(tmp_path / "p.npz"))))["force"]
    true = np.load(new)["force"]
    assert ((found - true) ** 2).mean() < 0.3 * true.var()


@pytest.mark.slow
@pytest.mark.parametrize("model", ["iP", "C"])
def test_motions_of_a_rigid_body(tmp_path, model):
    fields = {"inputs": ("before:point", "after:point"), "target": ("motion:motor",)}
    assert score(poses(tmp_path / "poses.npz"), tmp_path / "run", model=model, steps=600, **fields) < 0.2


@pytest.mark.slow
@pytest.mark.parametrize("model", ["E", "C"])
def test_energy_of_charges(tmp_path, model):
    fields = {"inputs": ("place:point", "charge:scalar"), "target": ("energy:scalar",)}
    assert score(charges(tmp_path / "charges.npz"), tmp_path / "run", model=model, steps=800, **fields) < 0.2
