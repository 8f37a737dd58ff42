"""Loggers: each is told what metrics.jsonl holds; one that is not installed is named."""

import json
import sys

import pytest
from samples import DRIFT, drift

from anygatr import lab
from anygatr.lab.training.log import MetricsLog
from anygatr.lab.training.loggers import LOGGERS, open_loggers

TINY = {"blocks": 1, "mv": 4, "s": 8, "heads": 2, "batch": 8, "steps": 20, "validate_every": 10, "threads": 1}


class Kept:
    """A logger of one's own: a class with two methods."""

    def __init__(self, directory, step):
        self.lines, self.is_closed = [], False
        opened.append(self)

    def write(self, step, values):
        self.lines.append({"step": step, **values})

    def close(self):
        self.is_closed = True


opened: list[Kept] = []


def test_a_logger_hears_every_line(tmp_path, monkeypatch):
    monkeypatch.setitem(LOGGERS, "kept", Kept)
    with MetricsLog(tmp_path / "metrics.jsonl", 0, ["kept", "kept"]) as log:
        log.write(10, loss=1.0, lr=0.1)
        log.write(20, val_mse=2.0)
    (kept,) = opened
    assert kept.lines == [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert kept.is_closed


def test_unknown_and_missing_loggers_are_named(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="log='comet' is unknown; choose from tensorboard, mlflow, wandb"):
        open_loggers(["comet"], tmp_path, 0)
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ValueError, match=r"log='wandb' needs the package wandb; pip install 'anygatr\[wandb\]'"):
        open_loggers(["wandb"], tmp_path, 0)


def lines(out) -> list[dict]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def test_mlflow_keeps_the_metrics_of_a_run(tmp_path, monkeypatch):
    tracking = pytest.importorskip("mlflow.tracking")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    out = tmp_path / "run"
    lab.train(data=str(drift(tmp_path / "d.npz")), model="E", out=str(out), log=["mlflow"], **DRIFT, **TINY)
    client = tracking.MlflowClient(tracking_uri=(out / "mlflow").as_uri())
    number = (out / "mlflow-run.txt").read_text()
    found = {m.step: m.value for m in client.get_metric_history(number, "val_mse")}
    assert found == {line["step"]: pytest.approx(line["val_mse"]) for line in lines(out) if "val_mse" in line}
    assert len(found) == 2


def test_wandb_writes_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    out = tmp_path / "run"
    lab.train(data=str(drift(tmp_path / "d.npz")), model="E", out=str(out), log=["wandb"], **DRIFT, **TINY)
    (record,) = (out / "wandb").glob("offline-run-*/run-*.wandb")
    assert b"val_mse" in record.read_bytes()
