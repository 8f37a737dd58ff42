"""Names of models: presets with overrides, baselines with the sizes of their publications, rows written by evaluate."""

import json
from pathlib import Path

import pytest
import torch
from samples import DRIFT, drift

from anygatr.lab.comparison.compare import compare
from anygatr.lab.config.commands import CompareConfig, EvaluateConfig, TrainConfig
from anygatr.lab.config.recipe import recipe
from anygatr.lab.data.task import Task
from anygatr.lab.report.palette import is_algebra, looks
from anygatr.lab.report.theory import theory
from anygatr.lab.training.evaluate import evaluate
from anygatr.lab.training.models import build, check_names, geometry_of
from anygatr.lab.training.train import train
from anygatr.spaces.presets import geometry

TINY = {"blocks": 1, "mv": 4, "s": 8, "heads": 2, "batch": 8, "steps": 3}


def test_overrides_change_the_geometry_they_name():
    changed = geometry_of("C,norm=abs,norm_eps=1")
    assert (changed.norm, changed.norm_eps, changed.init) == ("abs", 1.0, geometry("C").init)
    assert geometry_of("P,products=iP").products == geometry("iP").products
    assert geometry_of("P,products=iP").features == geometry("P").features
    assert geometry_of("P,features=iP").features == geometry("iP").features
    assert geometry_of("C") == geometry("C")
    task = Task({"x": "point"}, {"y": "point"}, 3, "token")
    assert build(task, recipe("laptop", "C,init=kaiming", blocks=1, mv=4, s=8)).geo.init == "kaiming"


@pytest.mark.parametrize("name", ["iP,mirrors=false", "iP,mirrors=False"])
def test_mirrors_can_be_left_out(name):
    """A geometry without mirrors has more maps; the report knows it as an algebra with a name of its own."""
    proper = geometry_of(name)
    assert proper == geometry("iP", mirrors=False)
    assert len(proper.linear_basis) > len(geometry("iP").linear_basis)
    assert is_algebra(name)
    assert not is_algebra("iP,norm=abs")
    looked = looks(["iP", name])
    assert looked[name].label == "iP-GATr without mirrors"
    assert looked[name].colour == looked["iP"].colour
    assert looked[name].symbol != looked["iP"].symbol
    assert theory(name, 3).maps == len(proper.linear_basis)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("E,mirrors=no", "neither true nor false"),
        ("GNN", "All models: E, P, iP, C, L, transformer, se3_transformer, segnn, pointnet2, gem_cnn"),
        ("D,norm=abs", "unknown"),
        ("C,norm", "name=value"),
        ("C,norms=abs", "did you mean 'norm'"),
        ("C,norm=max", "grade_abs"),
        ("transformer,norm=abs", "token, sample"),
        ("transformer,init=identity", "it takes norm"),
        ("segnn,norm=abs", "no geometry"),
    ],
)
def test_bad_names_are_refused(name, said):
    with pytest.raises(ValueError, match=said):
        check_names([name])


def test_a_transformer_may_normalise_whole_samples():
    """As official GATr's baseline once did; padding does not count."""
    task = Task({"x": "point"}, {"y": "point"}, 3, "token")
    torch.manual_seed(0)
    whole = build(task, recipe("laptop", "transformer,norm=sample", blocks=2, s=16)).double()
    assert recipe("laptop", "transformer,norm=sample").s == recipe("laptop", "transformer").s
    x = torch.randn(7, 3, dtype=torch.float64)
    alone = [whole(x=part)["y"] for part in (x[None, :4], x[None, 4:])]
    packed = whole(x=x, offsets=torch.tensor([0, 4, 7]))["y"]
    assert float((packed - torch.cat([part[0] for part in alone])).abs().max()) < 1e-12
    torch.manual_seed(0)
    plain = build(task, recipe("laptop", "transformer", blocks=2, s=16)).double()
    assert float((plain(x=x[None])["y"] - whole(x=x[None])["y"]).abs().max()) > 1e-3


@pytest.mark.parametrize("preset", ["paper", "figure", "laptop"])
def test_published_sizes_survive_every_preset(preset):
    assert (recipe(preset, "segnn").blocks, recipe(preset, "segnn").s) == (4, 64)
    assert (recipe(preset, "se3_transformer").blocks, recipe(preset, "se3_transformer").s) == (4, 8)


def test_variants_are_compared_like_models(tmp_path):
    """Rows under their own names; rows without weights, as in a fresh clone, are kept and reported."""
    data = str(drift(tmp_path / "drift.npz"))
    config = CompareConfig(data=data, models=("E", "E,init=identity"), out=str(tmp_path / "cmp"), jobs=1, **DRIFT, **TINY)
    compare(config)
    rows = sorted((tmp_path / "cmp/rows").iterdir())
    errors = [json.loads(path.read_text())["metrics"]["eval"]["mse"] for path in rows]
    assert len(errors) == 2
    assert errors[0] != errors[1]
    for path in (tmp_path / "cmp/runs").rglob("*"):
        if path.is_file():
            path.unlink()
    assert compare(config).exists()


def test_evaluate_writes_the_row(tmp_path):
    data, out = str(drift(tmp_path / "drift.npz")), tmp_path / "run"
    made = train(TrainConfig(data=data, model="E", out=str(out), threads=1, **DRIFT, **TINY))
    metrics = evaluate(EvaluateConfig(str(out), out=str(tmp_path / "row.json")))
    row = json.loads((tmp_path / "row.json").read_text())
    assert row["metrics"] == metrics
    assert row["parameters"] == made["parameters"]
    assert row["command"].startswith("anygatr train")
    assert row["environment"]["torch"]
    (Path(out) / "result.json").unlink()
    with pytest.raises(ValueError, match="not finished"):
        evaluate(EvaluateConfig(str(out), out=str(tmp_path / "row.json")))
