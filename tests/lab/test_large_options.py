"""Attention for samples of many tokens in the laboratory: chosen by option or by name, kept with the run, its cost said."""

import json

import numpy as np
import pytest
import torch
from samples import DRIFT, drift

from anygatr.lab.config.commands import ChooseConfig, CompareConfig, FitOptions, PredictConfig, TrainConfig
from anygatr.lab.config.recipe import Recipe, recipe
from anygatr.lab.data.task import Task
from anygatr.lab.distributed.shares import sample_costs
from anygatr.lab.training import exact_cost
from anygatr.lab.training.large import attending, large_options
from anygatr.lab.training.models import build, check_names
from anygatr.lab.training.predict import predict_fields
from anygatr.lab.training.rehearsal import peak_bytes
from anygatr.lab.training.run import TrainingRun
from anygatr.lab.training.train import train

TASK = Task({"x": "point"}, {"y": "scalar"}, 3, "token")
TINY = {"blocks": 1, "mv": 4, "s": 8, "heads": 2}


def of(model="iP", **options) -> Recipe:
    return recipe("laptop", model, **TINY, **options)


@pytest.mark.parametrize(
    ("name", "options"),
    [("iP", {"large": "anchors", "anchors": 8, "neighbours": 0}), ("iP,large=anchors,anchors=8,neighbours=0", {})],
)
def test_options_and_names_say_the_same(name, options):
    made = FitOptions(**TINY, **options).recipe(name, 0, None, "mean")
    net = build(TASK, Recipe.from_json(json.loads(json.dumps(made.to_json())))).net
    assert (net.anchors, net.neighbours) == (8, 0)


def test_pooled_with_another_geometry_override():
    net = build(TASK, of("C,mirrors=false,large=pooled,pooled=3")).net
    assert (type(net).__name__, net.pooled, len(net.geometry.symmetry.mirrors)) == ("PooledGATr", 3, 0)


def test_every_command_has_the_options():
    for config in (TrainConfig, CompareConfig, ChooseConfig, PredictConfig):
        assert {"large", "anchors", "neighbours", "pooled"} <= set(config.__dataclass_fields__)


def test_recipes_without_it_are_written_as_before():
    assert not {"large", "anchors", "neighbours", "pooled"} & set(of().to_json())


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: build(TASK, of(anchors=4)), "anchors=4 is an option of large='anchors', but large=None"),
        (lambda: build(TASK, of("iP,large=pooled,anchors=4")), "anchors=4 is an option of large='anchors'"),
        (lambda: build(TASK, of("iP,large=pooled,pooled=few")), "pooled='few' is not a number of tokens"),
        (lambda: check_names(["iP,large=hash"]), "large='hash' is unknown"),
        (lambda: of(large="hash"), "large='hash' is unknown"),
        (lambda: build(TASK, recipe("laptop", "transformer", large="pooled")), "large='pooled': transformer has none"),
        (lambda: attending(of(), PredictConfig("r", "d", large="pooled")), "trained with exact attention, whose weights"),
        (lambda: attending(of(large="pooled"), PredictConfig("r", "d", large="anchors")), "trained with pooled"),
    ],
)
def test_what_is_refused(made, message):
    with pytest.raises(ValueError, match=message):
        made()


def test_weights_of_exact_attention_predict_with_anchors(tmp_path):
    data = str(drift(tmp_path / "drift.npz"))
    train(TrainConfig(data=data, out=str(tmp_path / "run"), model="iP", steps=3, batch=8, threads=1, **TINY, **DRIFT))

    def predicted(**options):
        out = str(tmp_path / "out.npz")
        return predict_fields(PredictConfig(str(tmp_path / "run"), data, out, force=True, **options))[1]["final"]

    exact, same, other = predicted(), predicted(large="anchors"), predicted(large="anchors", anchors=1, neighbours=0)
    torch.testing.assert_close(same, exact, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(other, exact, atol=1e-4)


def test_pooled_runs_are_kept_and_predict(tmp_path):
    data, out = str(drift(tmp_path / "drift.npz", tokens=12)), tmp_path / "run"
    config = TrainConfig(
        data=data, out=str(out), model="iP,large=pooled,pooled=2", steps=3, batch=8, threads=1, **TINY, **DRIFT
    )
    row = train(config)
    assert np.isfinite(row["metrics"]["val"]["mse"])
    run = TrainingRun.open(out)
    assert large_options(run.recipe) == {"large": "pooled", "pooled": 2}
    assert predict_fields(PredictConfig(str(out), data, str(tmp_path / "p.npz")))[1]["final"].isfinite().all()


def test_costs_of_samples_are_those_of_their_attention():
    counts = torch.tensor([10_000, 20_000, 40_000])
    of_exact, of_anchors, of_pooled = (
        sample_costs(build(TASK, of(large=large)), counts) for large in (None, "anchors", "pooled")
    )
    assert of_exact[2] > 3 * of_exact[1]
    torch.testing.assert_close(of_anchors / counts, (of_anchors / counts)[:1].expand(3))
    assert of_pooled[2] < 2.1 * of_pooled[1]


def test_the_cost_of_exact_attention_is_foretold():
    made = of()
    assert exact_cost.exact_cost(lambda: build(TASK, made), exact_cost.TOLD - 1, True) is None
    assert exact_cost.exact_cost(lambda: build(TASK, of(large="pooled")), 10**6, True) is None
    before = torch.get_rng_state()
    found = exact_cost.exact_cost(lambda: build(TASK, made), 8_000, False)
    assert (torch.get_rng_state() == before).all()
    net = build(TASK, made).net
    with torch.no_grad():
        measured = peak_bytes(lambda: net(*net.example(8_000)))
    assert 0.5 < found.bytes / measured < 2
    ten = exact_cost.exact_cost(lambda: build(TASK, made), 80_000, False)
    assert 50 < ten.flops / found.flops < 100
    assert "--large" not in str(found)
    assert exact_cost.exact_cost(lambda: build(TASK, made), 10**7, True).is_much


@pytest.mark.parametrize("large", [None, "anchors"])
def test_training_and_prediction_say_it_and_name_the_remedy(tmp_path, monkeypatch, capsys, large):
    monkeypatch.setattr(exact_cost, "TOLD", 4)
    monkeypatch.setattr(exact_cost, "SECONDS", 0.0)
    data, out = str(drift(tmp_path / "drift.npz")), str(tmp_path / "run")
    train(TrainConfig(data=data, out=out, model="iP", steps=1, batch=8, threads=1, large=large, **TINY, **DRIFT))
    predict_fields(PredictConfig(out, data, str(tmp_path / "p.npz")))
    said = [line for line in capsys.readouterr().out.splitlines() if "attend to each other" in line]
    assert len(said) == (0 if large else 2)
    assert all("4 tokens" in line and "GB" in line and "--large anchors and --large pooled" in line for line in said)
