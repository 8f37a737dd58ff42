"""Predictors of bodies without training: the linear one finds linear laws, and moves with the bodies."""

from dataclasses import replace

import pytest
import torch
from samples import DRIFT, drift
from scipy.spatial.transform import Rotation

from anygatr.lab.config.commands import TrainConfig
from anygatr.lab.data.registry import spec_of
from benchmarks.nbody import closed_forms


@pytest.fixture(scope="module")
def bodies(tmp_path_factory):
    path = drift(tmp_path_factory.mktemp("data") / "drift.npz")
    return spec_of(TrainConfig(data=str(path), **DRIFT)).load().split("train")


def test_the_linear_predictor_finds_a_linear_law(bodies):
    found = closed_forms.Linear.fit(bodies)
    assert len(found.coefficients) == 5
    assert closed_forms.errors(found, bodies)["mse"] < 1e-12 < closed_forms.errors(lambda _: torch.zeros(()), bodies)["mse"]


def test_the_linear_predictor_is_equivariant(bodies):
    predict = closed_forms.Linear({name: 0.3 + i for i, name in enumerate(closed_forms.vectors(bodies))})
    turn = -torch.from_numpy(Rotation.random(random_state=0).as_matrix())
    fields = {name: bodies.fields[name].double() for name in bodies.fields}
    moved = fields | {"position": fields["position"] @ turn.T + 100.0, "velocity": fields["velocity"] @ turn.T}
    torch.testing.assert_close(
        predict(replace(bodies, fields=moved)), predict(replace(bodies, fields=fields)) @ turn.T, rtol=0, atol=1e-9
    )
