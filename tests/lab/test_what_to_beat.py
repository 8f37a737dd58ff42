"""Every number beside what it must beat: closed forms, RMSE, MAE and R2, several targets, remarks on a budget."""

import json
import math

import numpy as np
import pytest
import torch
from samples import DRIFT, drift

from anygatr.lab.baselines.closed_forms import closed_forms
from anygatr.lab.comparison.compare import compare
from anygatr.lab.config.commands import CompareConfig, EvaluateConfig, TrainConfig
from anygatr.lab.config.recipe import recipe
from anygatr.lab.data.files.dataset import load
from anygatr.lab.data.task import Task
from anygatr.lab.training.evaluate import evaluate
from anygatr.lab.training.metrics import baseline_metrics, residuals, sample_errors, target_weights
from anygatr.lab.training.models import build
from anygatr.lab.training.objective import ErrorUnits, Objective
from anygatr.lab.training.remarks import remarks
from anygatr.lab.training.run import TrainingRun
from anygatr.lab.training.train import train
from anygatr.spaces.presets import geometry

TINY = {"blocks": 1, "mv": 4, "s": 8, "heads": 2, "batch": 8, "steps": 6, "threads": 1}
INPUTS = {"position": "point", "velocity": "vector", "mass": "scalar"}


def test_closed_forms_find_what_is_linear(tmp_path):
    """final = position + velocity is found exactly by constant velocity and by the linear map; staying misses the step."""
    data = load(drift(tmp_path / "d.npz", samples=60), INPUTS, {"final": "point"})
    found = baseline_metrics(data.split("train"), {"eval": data.split("eval")}, {})["eval"]
    assert list(found) == ["mean", "stay", "constant velocity", "linear"]
    assert found["constant velocity"]["rmse"] < 1e-12
    assert found["linear"]["rmse"] < 1e-10
    step = data.split("eval").fields["velocity"]
    assert found["stay"]["mse"] == pytest.approx(float(step.square().mean()))
    assert found["stay"]["mae"] == pytest.approx(float(step.abs().mean()))
    assert found["linear"]["r2"] == pytest.approx(1.0)


def test_a_scalar_that_is_zero_in_another_split_still_weighs(tmp_path):
    data = load(drift(tmp_path / "d.npz", samples=60), INPUTS, {"final": "point"})
    held = data.split("eval")
    held.fields["mass"][0, 0] = 0.0
    assert baseline_metrics(data.split("train"), {"eval": held}, {})["eval"]["linear"]["rmse"] < 1e-10


def test_the_linear_map_is_equivariant(tmp_path):
    """Turned and shifted training and evaluation data give the turned and shifted prediction."""
    rng = np.random.default_rng(0)
    turn = torch.linalg.qr(torch.from_numpy(rng.normal(size=(3, 3))))[0]
    path = drift(tmp_path / "d.npz", samples=50)
    arrays = dict(np.load(path))
    arrays["final"] = arrays["final"] + 0.3 * rng.normal(size=arrays["final"].shape)
    np.savez(path, **arrays)
    shifts = {"position": 5.0, "final": 5.0, "velocity": 0.0}
    moved = arrays | {name: arrays[name] @ turn.numpy().T + shift for name, shift in shifts.items()}
    np.savez(tmp_path / "m.npz", **moved)
    before, after = (load(p, INPUTS, {"final": "point"}) for p in (path, tmp_path / "m.npz"))
    ours, theirs = (closed_forms(d.split("train"))["linear"](d.split("eval"))["final"] for d in (before, after))
    assert torch.allclose(ours @ turn.T + 5.0, theirs, atol=1e-9)


def test_compositions_are_linear(tmp_path):
    """An energy that adds up over atoms by their class is a linear function of how many there are of each."""
    rng = np.random.default_rng(0)
    counts = rng.integers(3, 9, 80)
    which = rng.integers(0, 3, counts.sum())
    ptr = np.concatenate([[0], np.cumsum(counts)])
    energy = np.add.reduceat(np.array([-1.0, 4.0, 2.5])[which], ptr[:-1])
    np.savez(tmp_path / "x.npz", place=rng.normal(size=(len(which), 3)), z=which, ptr=ptr, energy=energy)
    data = load(tmp_path / "x.npz", {"place": "point", "z": "category"}, {"energy": "scalar"})
    found = baseline_metrics(data.split("train"), {"eval": data.split("eval")}, {})["eval"]
    assert found["linear"]["rmse"] < 1e-9 < 0.1 < found["mean"]["rmse"]


def test_shapes_that_would_broadcast_are_refused():
    task = Task({"x": "point"}, {"e": "scalar"}, 3, "sample")
    with pytest.raises(ValueError, match=r"e is predicted with shape \(4,\), but its true values have \(4, 1\)"):
        residuals({"e": torch.zeros(4)}, {"e": torch.zeros(4, 1)}, task)


def two_targets(path, factor: float = 1.0):
    rng = np.random.default_rng(0)
    place, velocity = rng.normal(size=(2, 60, 4, 3))
    arrays = {"position": place, "velocity": velocity, "mass": rng.uniform(1, 2, (60, 4))}
    np.savez(path, **arrays, force=factor * (place - place.mean(1, keepdims=True)), work=rng.normal(size=(60, 4)) + 5)
    return path


def test_several_targets_count_the_same_whatever_their_units(tmp_path):
    """The loss is a share of the error without learning: in another unit of force it is the same to rounding."""
    losses, shares = [], []
    for factor in (1.0, 1024.0):
        data = load(two_targets(tmp_path / f"{factor}.npz", factor), INPUTS, {"force": "vector", "work": "scalar"})
        weights, task = target_weights(data), Task.of(data)
        torch.manual_seed(0)
        module = build(task, recipe("laptop", "E", blocks=1, mv=4, s=8, heads=2))
        fields = data.fields | {"force": data.fields["force"] / factor}
        units = ErrorUnits({"force": (factor,) * 3, "work": (1.0,)}, weights)
        losses.append(float(Objective(module, task, 0.0, units)(module, fields | {})[0].detach()))
        guess = {"force": torch.zeros_like(data.fields["force"]), "work": torch.full((60, 4), 5.0)}
        shares.append(float(sample_errors(residuals(guess, data.fields, task), None, None, weights).mean()))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert shares == [pytest.approx(1.0, rel=0.05)] * 2
    single = load(tmp_path / "1.0.npz", INPUTS, {"force": "vector"})
    assert target_weights(single) == {}


def test_train_and_evaluate_show_what_to_beat(tmp_path, capsys):
    config = TrainConfig(data=str(drift(tmp_path / "d.npz")), model="E", out=str(tmp_path / "run"), **DRIFT, **TINY)
    row = train(config)
    text = capsys.readouterr().out
    for word in ("RMSE", "MAE", "R²", "constant velocity", "linear", "stay", "mean", "no better than without training"):
        assert word in text
    numbers = row["metrics"]["eval"]
    assert numbers["rmse"] == pytest.approx(math.sqrt(numbers["mse"]))
    assert row["baselines"]["val"]["linear"]["mse"] < 1e-20
    evaluate(EvaluateConfig(str(tmp_path / "run"), json=True))
    printed = json.loads(capsys.readouterr().out)
    assert set(printed["baselines"]) == {"val", "eval"}


def test_two_targets_train_and_are_told_apart(tmp_path, capsys):
    path = two_targets(tmp_path / "x.npz", 1024.0)
    fields = {"inputs": DRIFT["inputs"], "target": ("force:vector", "work:scalar")}
    row = train(TrainConfig(data=str(path), model="E", out=str(tmp_path / "run"), **fields, **TINY))
    assert set(row["metrics"]["eval"]["targets"]) == {"force", "work"}
    assert "force" in capsys.readouterr().out
    assert row["metrics"]["eval"]["mse"] < 3  # a share of the error without learning, not 1024 squared
    run = TrainingRun.open(tmp_path / "run")
    assert set(run.units.weights) == {"force", "work"}


def test_a_comparison_records_baselines_of_each_split(tmp_path, capsys):
    out = tmp_path / "cmp"
    small = {name: value for name, value in TINY.items() if name != "threads"}
    compare(CompareConfig(data=str(drift(tmp_path / "d.npz")), models=("E",), out=str(out), jobs=1, **DRIFT, **small))
    record = json.loads((out / "experiment.json").read_text())["data"]
    assert set(record["baselines"]) == {"val", "eval"}
    assert record["baselines"]["val"]["stay"] != record["baselines"]["eval"]["stay"]
    assert record["trivial_mse"] == min(record["baselines"]["eval"][name]["mse"] for name in ("mean", "stay"))
    assert "(linear)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"steps": 40, "best_step": 10}, "stopped at step 40 of 100: no better validation since step 10"),
        ({"best_step": 20, "curve": [[20, 1.0, 1.0], [100, 0.1, 3.0]]}, "at step 20 of 100 and is 3.0 times that since"),
        ({"blind": True}, "E is blind to these inputs"),
        ({"baselines": {"eval": {"linear": {"mse": 0.5}}}}, "'linear' has 0.5 on eval, the network 1"),
    ],
)
def test_wasted_budgets_are_remarked_on(changes, said):
    row = {"model": "E", "steps": 100, "best_step": 100, "curve": [[100, 1.0, 1.0]], "metrics": {"eval": {"mse": 1.0}}}
    asked = recipe("laptop", "E", steps=100)
    assert remarks(row, asked) == []
    assert any(said in sentence for sentence in remarks(row | changes, asked))


def test_early_stopping_is_the_default_for_own_files(tmp_path):
    from anygatr.lab.config.commands import FitOptions
    from anygatr.lab.data.registry import DATASETS

    assert {kind.name: kind.patience for kind in DATASETS if kind.patience is not None} == {"files": 6}
    asked = FitOptions(epochs=2.5, batch=8, weight_decay=0.01, dropout=0.1)
    made = asked.recipe("E", 0, None, "mean", samples=20, patience=6)
    assert (made.steps, made.patience, made.weight_decay, made.dropout) == (7, 6, 0.01, 0.1)
    assert FitOptions(patience=0).recipe("E", 0, None, "mean", patience=6).patience is None
    assert made.of(40, 1, 40).steps == 13
    with pytest.raises(ValueError, match=r"epochs=2\.0 and steps=5 were both given"):
        FitOptions(epochs=2.0, steps=5).recipe("E", 0, None, "mean", samples=20)
    with pytest.raises(ValueError, match=r"dropout=0.1: transformer has none"):
        build(Task(INPUTS, {"final": "point"}, 3, "token"), recipe("laptop", "transformer", dropout=0.1))
    plain = recipe("laptop", "E")
    assert not {"pool", "weight_decay", "dropout", "epochs", "patience"} & plain.to_json().keys()


def test_weights_decay_and_channels_drop():
    task = Task(INPUTS, {"final": "point"}, 3, "token")
    torch.manual_seed(0)
    module = build(task, recipe("laptop", "E", blocks=1, mv=4, s=8, heads=2, dropout=0.5)).train()
    fields = {"position": torch.randn(2, 4, 3), "velocity": torch.randn(2, 4, 3), "mass": torch.rand(2, 4)}
    assert not torch.equal(module(**fields)["final"], module(**fields)["final"])
    assert torch.equal(module.eval()(**fields)["final"], module(**fields)["final"])
    assert geometry("E") == module.geo
