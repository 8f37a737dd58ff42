"""Runs whose files were damaged or forged: one line that names the file and the place, and nothing taken on their word."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, safe_open, save_file
from samples import DRIFT, drift

from anygatr.lab.cli import main
from anygatr.lab.config.recipe import recipe
from anygatr.lab.config.schema import mismatch
from anygatr.lab.report.rows import load
from anygatr.lab.system import effort, memory
from anygatr.lab.training.run import TrainingRun

FIELDS = ["--inputs", *DRIFT["inputs"], "--target", *DRIFT["target"]]
TINY = ["--model", "E", "--steps", "4", "--blocks", "1", "--mv", "2", "--s", "4", "--heads", "2", "--threads", "1"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    drift(folder / "drift.npz")
    main(["train", "--data", str(folder / "drift.npz"), "--out", str(folder / "run"), *FIELDS, *TINY])
    return folder / "run"


@pytest.fixture
def run(finished, tmp_path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def line(*arguments: object) -> str:
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    said = str(end.value.code)
    assert said.startswith("anygatr: ")
    assert "\n" not in said
    assert len(said) < 3000
    return said


def put(record: dict, value: object, *keys: str) -> None:
    for key in keys[:-1]:
        record = record[key]
    record[keys[-1]] = value


CONFIGS = {
    "list": (lambda r: [r], "should be an object"),
    "no source": (lambda r: r.pop("source") and r, "source is missing"),
    "dim 9": (lambda r: put(r, 40, "task", "dim") or r, "smaller dimension"),
    "blocks": (lambda r: put(r, 10**7, "recipe", "blocks") or r, "blocks=10000000 must be at most 1,000"),
    "text": (lambda r: put(r, "many", "recipe", "steps") or r, "steps='many' should be"),
    "true": (lambda r: put(r, True, "recipe", "heads") or r, "heads='True' should be"),
    "no scale": (lambda r: put(r, {}, "normaliser", "scale") or r, "normaliser has 3 shifts and the scales"),
    "scale": (lambda r: put(r, 3, "normaliser", "scale") or r, "normaliser.scale=3 should be an object"),
    "kind": (lambda r: put(r, {"position": "poind"}, "task", "inputs") or r, "poind|position"),
    "unknown": (lambda r: put(r, 1, "task", "colour") or r, "colour"),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_configurations_are_checked(name, run):
    change, words = CONFIGS[name]
    path = run / "config.json"
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    assert re.search(words, line("evaluate", run))


def test_a_path_of_thousands_of_characters_is_quoted_in_part(run):
    record = json.loads((run / "config.json").read_text())
    record["source"]["path"] = record["data"] = "x" * 5000
    (run / "config.json").write_text(json.dumps(record))
    with pytest.raises(ValueError, match="File name too long") as refused:
        TrainingRun.open(run)
    assert len(str(refused.value)) < 1000


def test_a_nest_of_brackets_is_no_configuration(run):
    for name in ("result.json", "config.json"):
        (run / name).write_text("[" * 100_000)
        assert name in line("evaluate", run, "--out", run / "row.json")


def restate(run: Path, change) -> None:
    path = run / "state.safetensors"
    with safe_open(path, "pt") as file:
        record = json.loads(file.metadata()["record"])
    tensors = load_file(path)
    change(record, tensors)
    save_file(tensors, path, metadata={"record": json.dumps(record)})


STATES = {
    "step 1e9": (lambda r, t: put(r, 10**9, "step"), "claims step 1000000000 of 4"),
    "best": (lambda r, t: put(r, 5, "best_step"), "the best one 5"),
    "negative": (lambda r, t: put(r, -1, "step"), "claims step -1"),
    "history": (lambda r, t: r.pop("curve"), "curve is missing"),
    "curve": (lambda r, t: put(r, [[1, 2]], "curve"), r"curve\[0\]"),
    "losses": (lambda r, t: put(r, [0.5] * 1000, "recent"), "more losses"),
    "weights": (lambda r, t: t.pop(next(k for k in t if k.startswith("module/"))), "missing in the file"),
    "shape": (lambda r, t: put(t, torch.zeros(1), next(k for k in t if k.startswith("best/"))), r"\(1,\) in the file"),
    "type": (lambda r, t: put(t, t["module/net.linear_out.bias_s"].long(), "module/net.linear_out.bias_s"), "int64"),
    "moment": (lambda r, t: put(t, torch.zeros(7), "optimiser/0/exp_avg"), "optimiser/0/exp_avg has the shape"),
    "moments": (lambda r, t: t.pop("optimiser/0/exp_avg"), "not complete"),
    "number": (lambda r, t: put(t, torch.zeros(7), "optimiser/x/exp_avg"), "invalid literal"),
    "random": (lambda r, t: t.pop("random"), "'random' is missing"),
    "random size": (lambda r, t: put(t, torch.zeros(5, dtype=torch.uint8), "random"), "damaged"),
}


@pytest.mark.parametrize("name", STATES)
def test_states_are_checked(name, run, finished):
    change, words = STATES[name]
    restate(run, change)
    (run / "result.json").unlink()
    said = line("train", "--data", finished.parent / "drift.npz", "--out", run, *FIELDS, *TINY)
    assert "state.safetensors" in said
    assert re.search(words, said), said
    assert "delete it to start" in said


ROWS = [
    {"metrics": []},
    {"metrics": {"eval": 3}},
    {"metrics": {"eval": {"mse": "low"}}},
    {"curve": 3},
    {"curve": [[1, 2]]},
    {"config": []},
    {"model": ["E"]},
    {"size": True},
    {"error": {}},
]


@pytest.mark.parametrize("change", ROWS, ids=str)
def test_rows_of_another_shape_are_skipped(change, tmp_path):
    row = {"model": "E", "size": 10, "seed": 0, "status": "ok", "metrics": {"eval": {"mse": 1.0}}}
    (tmp_path / "experiment.json").write_text(json.dumps({"version": 1, "data": {}}))
    (tmp_path / "rows.jsonl").write_text(json.dumps(row | change) + "\n" + "[" * 100_000 + "\n" + json.dumps(row) + "\n")
    found = load(tmp_path)
    assert len(found.rows) == 1
    assert len(found.problems) == 2


@pytest.mark.parametrize(
    ("value", "shape", "problem"),
    [
        (1, float, ""),
        (True, int, "the record=true should be an integer"),
        ([1, "a"], [int], '[1]="a" should be an integer'),
        ({"a": {"b": None}}, {"a": {"b": {str, None}}}, ""),
        ({}, {"a?": int}, ""),
        ({"a": 1.5}, {str: int}, "a=1.5 should be an integer"),
    ],
)
def test_shapes(value, shape, problem):
    assert mismatch(value, shape) == problem


def test_recipes_have_limits():
    with pytest.raises(ValueError, match="blocks=10000000 must be at most 1,000"):
        recipe("laptop", "C", blocks=10**7)
    with pytest.raises(ValueError, match="50,000 characters; at most 1000") as error:
        recipe("laptop", "C", origin="x" * 50_000)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize(
    "arguments", [["maps", "12,0,0"], ["maps", "C", "--order", "7"], ["advise", "--dim", "20"]], ids=str
)
def test_what_cannot_be_solved_here_is_refused(arguments, monkeypatch):
    monkeypatch.setattr(memory, "free", lambda: 16 * 10**9)
    assert "GB may be used here" in line(*arguments)


def test_what_takes_long_says_so(monkeypatch):
    monkeypatch.setattr(memory, "free", lambda: 10**12)
    with pytest.warns(UserWarning, match="takes about 23 minutes"):
        effort.check_effort("order 6 of C", 32, 6)
    for arguments in (["advise", "--tokens", "0"], ["advise", "--dim", "0"], ["maps", "C", "--order", "0"]):
        assert "=0 must be at least 1" in line(*arguments)
