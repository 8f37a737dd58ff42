"""Comparisons: one row per run, continued after any death, failures recorded, other experiments refused."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from samples import DRIFT, drift

from anygatr.lab.comparison.budgets import matched
from anygatr.lab.comparison.compare import compare
from anygatr.lab.config.commands import CompareConfig, TrainConfig
from anygatr.lab.config.json_files import read_json
from anygatr.lab.config.recipe import recipe
from anygatr.lab.data.registry import spec_of
from anygatr.lab.data.task import Task
from anygatr.lab.training.models import build, parameters
from anygatr.lab.training.run import STATE, WEIGHTS
from anygatr.lab.training.state import load_tensors
from anygatr.lab.training.train import train

SMALL = {"blocks": 1, "mv": 4, "s": 8, "heads": 2, "batch": 8, "steps": 8, "lr": 3e-3, "validate_every": 4}
ROW = {
    "model", "size", "seed", "status", "error", "parameters", "steps", "seconds", "milliseconds_per_step",
    "milliseconds_inference_per_sample", "training_memory_mb", "max_coefficient", "spikes", "nonfinite", "metrics", "curve",
    "equivariance", "config",
}  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> str:
    return str(drift(tmp_path_factory.mktemp("data") / "drift.npz"))


def config(data: str, out: Path, /, **changes) -> CompareConfig:
    asked = {"data": data, "out": str(out), "models": ("E", "transformer"), "sizes": (16,), "jobs": 2}
    return CompareConfig(**asked | DRIFT | SMALL | changes)


def test_rows_failures_and_growth(data, tmp_path, capsys):
    """A run that overflows is a row with its error; a comparison that grows leaves what is finished as it is."""
    out = tmp_path / "cmp"
    report = compare(config(data, out, models=("transformer",), lr=1e30, lr_end=1e30))
    row = read_json(out / "rows" / "transformer-16-0.json")
    assert report.exists()
    assert set(row) >= ROW
    assert row["status"] == "failed"
    assert "not finite" in row["error"]
    good = tmp_path / "good"
    compare(config(data, good, models=("E",)))
    first = (good / "rows" / "E-16-0.json").read_bytes()
    compare(config(data, good, models=("E",), seeds=2))
    assert (good / "rows" / "E-16-0.json").read_bytes() == first
    rows = [read_json(path) for path in sorted((good / "rows").iterdir())]
    assert [(row["model"], row["size"], row["seed"]) for row in rows] == [("E", 16, 0), ("E", 16, 1)]
    assert all(set(row) >= ROW and row["status"] == "ok" for row in rows)
    assert rows[0]["curve"] != rows[1]["curve"]
    experiment = read_json(good / "experiment.json")
    assert experiment["seeds"] == [0, 1]
    assert experiment["data"]["trivial_mse"] > 0
    shown = np.load(good / "predictions" / "E.npz")
    assert shown["prediction/final"].shape == shown["target/final"].shape == shown["position"].shape
    assert str(good / "report.html").split("/")[-1] in capsys.readouterr().out


def test_survives_kill_of_worker_and_parent(data, tmp_path):
    """kill -9 a worker: its run continues. kill -9 the parent: its worker ends too, and a restart continues.

    The weights are those of a run that nobody killed, to the bit.
    """
    out = tmp_path / "cmp"
    asked = config(data, out, models=("E",), jobs=1, steps=120, validate_every=10)
    state = out / "runs" / "E-16-0" / STATE
    parent = _started(asked, tmp_path)
    os.kill(_worker(parent.pid, state, 10), signal.SIGKILL)
    second = _worker(parent.pid, state, _step(state) + 10)
    parent.kill()
    parent.wait()
    _until(lambda: not _is_alive(second))
    assert 20 <= _step(state) < 120
    assert not (out / "rows" / "E-16-0.json").exists()
    torch.set_num_threads(1)
    compare(replace(asked, jobs=2))
    row = read_json(out / "rows" / "E-16-0.json")
    assert (row["status"], row["steps"]) == ("ok", 120)
    whole = TrainConfig(**DRIFT | SMALL | {"data": data, "model": "E", "size": 16, "out": str(tmp_path / "whole")})
    undisturbed = train(replace(whole, threads=1, steps=120, validate_every=10))
    assert undisturbed["metrics"] == row["metrics"]
    ours, theirs = (load_tensors(path / WEIGHTS)[0] for path in (tmp_path / "whole", state.parent))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.slow
def test_ctrl_c_leaves_a_resumable_comparison(data, tmp_path):
    out = tmp_path / "cmp"
    asked = config(data, out, models=("E",), jobs=1, steps=200, validate_every=10)
    parent = _started(asked, tmp_path)
    state = out / "runs" / "E-16-0" / STATE
    worker = _worker(parent.pid, state, 10)
    parent.send_signal(signal.SIGINT)
    assert parent.wait(timeout=120) != 0
    assert not _is_alive(worker)
    assert 10 <= _step(state) < 200
    compare(replace(asked, jobs=2))
    assert read_json(out / "rows" / "E-16-0.json")["steps"] == 200


def test_budgets(data, tmp_path):
    spec = spec_of(config(data, tmp_path))
    few = spec.load().split("train")
    recipes = [recipe("laptop", name, blocks=1, batch=8) for name in ("C", "E", "transformer")]
    assert matched(recipes, "steps", 1.0, few) == recipes
    sizes = [parameters(build(Task.of(few), made)) for made in matched(recipes, "params", 1.0, few)]
    assert all(abs(size / sizes[0] - 1) < 0.1 for size in sizes)
    timed = matched(recipes, "time", 0.5, few)
    assert timed[2].steps > timed[0].steps > 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"models": ("E", "transfomer")}, "did you mean transformer"),
        ({"models": ("Cc",)}, "unknown"),
        ({"models": ("E", "C-GATr")}, "did you mean C?"),
        ({"models": ()}, "models is empty"),
        ({"sizes": (16, 1000)}, "sizes contains 1000, but there are 32"),
        ({"sizes": (0,)}, "sizes contains 0"),
        ({"seeds": 0}, "seeds=0"),
        ({"data": "missing.npz"}, "does not exist"),
        ({"inputs": ("place:point",)}, "'place' is missing"),
        ({"inputs": ()}, "inputs is empty"),
        ({"inputs": (), "target": ()}, "declare its fields with --inputs"),
        ({"inputs": ("position:pont",)}, "did you mean point"),
        ({"heads": -1}, "heads=-1"),
        ({"match": "time", "minutes": 0.0}, "minutes=0"),
        ({"origin": "weight"}, "weight"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(data, tmp_path, changes, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        compare(config(data, tmp_path / "cmp", **changes))
    assert not (tmp_path / "cmp" / "runs").exists()


def test_bad_files_are_refused(data, tmp_path):
    good = dict(np.load(data))
    truncated = tmp_path / "truncated.npz"
    truncated.write_bytes(Path(data).read_bytes()[:-300])
    broken = {
        "pickled": {**good, "mass": np.array([{"a": 1}] * 40, dtype=object)},
        "nan": {**good, "position": np.where(np.arange(40)[:, None, None] == 3, np.nan, good["position"])},
    }
    for name, arrays in broken.items():
        np.savez(tmp_path / f"{name}.npz", **arrays)
    for name, message in (("truncated", "truncated"), ("pickled", "pickle"), ("nan", "NaN")):
        with pytest.raises(ValueError, match=message):
            compare(config(str(tmp_path / f"{name}.npz"), tmp_path / "cmp"))
    same = good["position"].copy()
    same[5, 1] = same[5, 0]
    nbody = {"m": good["mass"], "x_initial": same, "v_initial": good["velocity"], "x_final": good["final"]}
    np.savez(tmp_path / "coincident.npz", **nbody)
    with pytest.raises(ValueError, match="two bodies coincide"):
        compare(config(str(tmp_path / "coincident.npz"), tmp_path / "cmp", inputs=(), target=()))
    whole = nbody | {"x_initial": good["position"]}
    for change, message in (({"v_initial": None}, "'v_initial' is missing"), ({"m": -good["mass"]}, "not positive")):
        np.savez(tmp_path / "nbody.npz", **{name: x for name, x in (whole | change).items() if x is not None})
        with pytest.raises(ValueError, match=message):
            compare(config(str(tmp_path / "nbody.npz"), tmp_path / "cmp", inputs=(), target=()))


def test_another_experiment_is_refused(data, tmp_path):
    from anygatr.lab.comparison.plan import ComparisonPlan

    def start(out: Path, **changes) -> None:
        asked = config(data, out, **changes)
        spec = spec_of(asked)
        ComparisonPlan.start(asked, spec, spec.load(), "the command")

    start(tmp_path / "cmp")
    start(tmp_path / "cmp")
    start(tmp_path / "cmp", models=("C",), seeds=3, sizes=(8,))
    for changes in ({"steps": 9}, {"match": "params"}, {"origin": "none"}, {"preset": "paper"}):
        with pytest.raises(ValueError, match=r"another experiment .* the command"):
            start(tmp_path / "cmp", **changes)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("")
    with pytest.raises(ValueError, match=r"holds no comparison but thesis.tex"):
        start(tmp_path / "other")
    with pytest.raises(ValueError, match=r"thesis.tex' is a file; name a directory"):
        compare(config(data, tmp_path / "other" / "thesis.tex"))


def _started(asked: CompareConfig, folder: Path) -> subprocess.Popen:
    """A comparison in a process of its own."""
    imports = "from anygatr.lab.config.commands import CompareConfig\nfrom anygatr.lab.comparison.compare import compare\n"
    script = folder / "script.py"
    script.write_text(f"{imports}if __name__ == '__main__':\n    compare({asked!r})\n")
    return subprocess.Popen([sys.executable, str(script)], start_new_session=True)


def _worker(parent: int, state: Path, step: int) -> int:
    """The process that trains, once it has got to a step."""
    _until(lambda: state.exists() and _step(state) >= step)
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    trainers = [pid for pid in map(int, children) if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()]
    assert len(trainers) == 1
    return trainers[0]


def _step(state: Path) -> int:
    return load_tensors(state)[1]["step"]


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


def _until(condition, patience: float = 300.0) -> None:
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.1)
