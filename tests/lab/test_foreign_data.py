"""Data nobody shaped for us, trained by the command line to well below the trivial predictor."""

import shlex
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from samples import charges, planar, poses

from anygatr.lab.cli import main
from anygatr.lab.config.commands import PredictConfig, TrainConfig, command_line
from anygatr.lab.config.json_files import read_json
from anygatr.lab.config.recipe import recipe
from anygatr.lab.data.registry import FILES, spec_of
from anygatr.lab.data.spec import DataSpec
from anygatr.lab.data.task import Task
from anygatr.lab.data.token_counts import warn_of_unseen_count
from anygatr.lab.training.metrics import trivial_mse
from anygatr.lab.training.models import build
from anygatr.lab.training.predict import predict
from anygatr.lab.training.run import RESULT

SMALL = {"blocks": 2, "mv": 8, "s": 16, "heads": 4, "batch": 32, "lr": 3e-3, "lr_end": 1e-4, "threads": 1}
CHARGES = {"place": "point", "charge": "scalar"}


def score(path: Path, out: Path, **asked) -> float:
    """The evaluation error relative to that of the trivial predictor."""
    config = TrainConfig(data=str(path), out=str(out), **SMALL | asked)
    main(shlex.split(command_line("train", config))[1:])
    data = spec_of(config).load()
    return read_json(out / RESULT)["metrics"]["eval"]["mse"] / trivial_mse(data.split("train"), data.split("eval"))


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
@pytest.mark.parametrize("model", ["iP", "C"])
def test_energy_of_charges(tmp_path, model):
    """Below half of what a fit without geometry leaves, which knows the number of charges and the square of their sum."""
    fields = {"inputs": ("place:point", "charge:scalar", "number:scalar"), "target": ("energy:scalar",)}
    path = charges(tmp_path / "charges.npz")
    arrays = np.load(path)
    total = np.add.reduceat(arrays["charge"], arrays["offsets"][:-1])
    known = np.stack([total**2, arrays["number"], np.ones_like(total)], 1)
    fitted = known @ np.linalg.lstsq(known, arrays["energy"], rcond=None)[0]
    blind = (arrays["energy"] - fitted).var() / arrays["energy"].var()
    assert score(path, tmp_path / "run", model=model, steps=800, **fields) < 0.5 * blind


def test_a_number_of_tokens_that_is_given_is_not_missed(tmp_path):
    path = str(charges(tmp_path / "c.npz", samples=30))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_unseen_count(DataSpec(FILES, path, CHARGES | {"number": "scalar"}, {"energy": "scalar"}).load())


@pytest.mark.parametrize("model", ["E", "P", "iP", "C", "transformer"])
def test_the_number_of_tokens_is_unseen_and_said_so(tmp_path, model):
    """Every token twice: the same output. The commands warn when targets of ragged samples might need the number."""
    data = DataSpec(FILES, str(charges(tmp_path / "c.npz", samples=30)), CHARGES, {"energy": "scalar"}).load()
    with pytest.warns(UserWarning, match="4 to 7 tokens"):
        warn_of_unseen_count(data)
    module = build(Task.of(data), recipe("laptop", model)).double()
    place, charge = torch.randn(1, 5, 3).double(), torch.randn(1, 5).double()
    once = module(place=place, charge=charge)["energy"]
    assert torch.allclose(module(place=place.repeat(1, 2, 1), charge=charge.repeat(1, 2))["energy"], once, rtol=1e-9)
    assert not torch.allclose(module(place=place, charge=2 * charge)["energy"], once, rtol=1e-9)
