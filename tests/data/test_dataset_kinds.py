"""Kinds of data sets: how a path finds its kind, how runs store it, and that a new kind is an object and a registry line."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from anygatr.lab.config.commands import PredictConfig, TrainConfig
from anygatr.lab.data import registry
from anygatr.lab.data.dataset import Dataset
from anygatr.lab.data.registry import DATASETS, spec_of, stored_spec
from anygatr.lab.data.spec import DatasetKind, DataSpec
from anygatr.lab.training.predict import predict
from anygatr.lab.training.train import train

NBODY = {"path": "data/nbody", "inputs": {}, "targets": {}, "dim": None, "per": None, "normalise": False}
ARTERIES = NBODY | {"path": "a.h5", "normalise": True, "nodes": "corners"}
FILES = NBODY | {
    "path": "c.npz",
    "inputs": {"x": "point"},
    "targets": {"e": "scalar"},
    "dim": 3,
    "per": "sample",
    "unit": 2.0,
}


@pytest.mark.parametrize(("record", "kind"), [(NBODY, "nbody"), (ARTERIES, "arteries"), (FILES, "files")])
def test_stored_records_keep_their_format(record, kind):
    spec = stored_spec(record)
    assert spec.kind.name == kind
    assert spec.to_json() == record
    assert spec.at("elsewhere").to_json() == record | {"path": "elsewhere"}


def test_names_stand_for_places():
    spec = spec_of(TrainConfig())
    assert spec.to_json() == NBODY
    assert (spec.kind.preset, spec.origin(None), spec.origin("mean"), spec.origin("none")) == (
        "laptop",
        "mass",
        "mean",
        None,
    )


def test_declared_fields_win_over_the_layout(tmp_path):
    path = str(tmp_path / "b.npz")
    np.savez(path, m=np.ones((4, 2)), x_initial=np.ones((4, 2, 3)))
    assert spec_of(TrainConfig(data=path)).kind.name == "nbody"
    declared = TrainConfig(data=path, inputs=("x_initial:point",), target=("m:scalar",))
    assert spec_of(declared).kind.name == "files"


def test_what_nobody_knows_must_be_declared(tmp_path):
    np.savez(tmp_path / "c.npz", place=np.ones((4, 2, 3)))
    with pytest.raises(
        ValueError, match=r"holds place, which is not the layout of arteries, o3, .* and nbody data; .* inspect"
    ):
        spec_of(TrainConfig(data=str(tmp_path / "c.npz")))
    with pytest.raises(FileNotFoundError, match="does not exist"):
        spec_of(TrainConfig(data=str(tmp_path / "d.npz")))
    with pytest.raises(ValueError, match=r"without train\.npz"):
        spec_of(TrainConfig(data=str(tmp_path)))
    with pytest.raises(ValueError, match="kind='o7' is no data set of this version; did you mean o5 or o3"):
        stored_spec(NBODY | {"kind": "o7"})


UNITS = {"force": "N"}


@dataclass(frozen=True)
class SpringsConfig:
    """Settings of a toy data set."""

    out: str


class Springs(DatasetKind):
    """Two masses on a spring: points, and the force on each."""

    name = "springs"
    config = SpringsConfig
    units = UNITS

    def recognises(self, path: str) -> bool:
        return path.endswith(".springs.npz")

    def load(self, spec: DataSpec) -> Dataset:
        x = torch.from_numpy(np.load(spec.path)["x"])
        fields, kinds = {"place": x, "force": x.flip(1) - x}, {"place": "point", "force": "vector"}
        parts = dict(zip(("train", "val", "eval"), torch.arange(len(x)).chunk(3), strict=True))
        return Dataset(fields, kinds, ("force",), 3, splits=parts)

    def load_inputs(self, spec: DataSpec, path: str, options: PredictConfig | None = None) -> Dataset:
        return Dataset({"place": torch.from_numpy(np.load(path)["x"])}, {"place": "point"}, (), 3)


def test_a_new_kind_is_an_object_and_a_line_of_the_registry(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "DATASETS", (Springs(), *DATASETS))
    data, out = str(tmp_path / "a.springs.npz"), str(tmp_path / "run")
    np.savez(data, x=np.random.default_rng(0).normal(size=(12, 2, 3)))
    spec = spec_of(TrainConfig(data=data))
    assert spec.to_json() == NBODY | {"path": data, "normalise": True, "kind": "springs"}
    assert spec.describe() == {"units": {"force": "N"}, "name": "a.springs", "description": data}
    small = {"blocks": 1, "mv": 2, "s": 4, "heads": 2, "batch": 4, "steps": 2}
    assert train(TrainConfig(data=data, model="E", out=out, threads=1, **small))["status"] == "ok"
    written = predict(PredictConfig(run=out, data=data, out=str(tmp_path / "p.npz")))
    assert np.load(written)["force"].shape == (12, 2, 3)


def test_every_kind_with_settings_is_made_by_a_command():
    from anygatr.lab.data.config import DataConfig

    made = {kind.name: kind.config for kind in DATASETS if kind.config is not None}
    assert set(made) == {"nbody", "arteries", "o3", "o5", "hulls", "charged"}
    members = DataConfig.__annotations__["what"].__args__
    assert {member.__metadata__[0].name: member.__origin__ for member in members} == made
