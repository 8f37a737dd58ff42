"""The engines of a comparison: the same rows from all of them, and workers that are killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from samples import DRIFT, drift

from anygatr.lab.config.commands import CompareConfig, command_line
from anygatr.lab.config.json_files import read_json

SMALL = {"blocks": 1, "mv": 4, "s": 8, "heads": 2, "batch": 8, "steps": 20, "models": ("E", "transformer"), "seeds": 2}
TIMES = ("seconds", "milliseconds_per_step", "milliseconds_inference_per_sample")
# runs the array as SLURM does, one task after the other; the first task of the first submission is killed
STUB = """#!{python}
import os, pathlib, signal, subprocess, sys
script, (count,) = sys.argv[-1], [int(a.split("-")[-1]) for a in sys.argv if a.startswith("--array=")]
assert "--partition=gpu" in sys.argv and "--wait" in sys.argv
flag = pathlib.Path(__file__).with_name("submitted")
for task in range(count + 1):
    started = subprocess.Popen(["sh", script], env=os.environ | {{"SLURM_ARRAY_TASK_ID": str(task), "SLURM_JOB_ID": "9"}})
    if not flag.exists():
        flag.touch()
        started.send_signal(signal.SIGKILL)
    started.wait()
"""


def words(data: Path, out: Path, engine: str, **changes) -> list[str]:
    told = {"data": str(data), "out": str(out), "engine": engine, "threads": 1, "jobs": 2} | DRIFT | SMALL | changes
    return [sys.executable, "-m", *command_line("compare", CompareConfig(**told)).split()]


def rows(out: Path) -> dict:
    found = {path.name: read_json(path) for path in sorted((out / "rows").glob("*.json"))}
    return {name: {key: value for key, value in row.items() if key not in TIMES} for name, row in found.items()}


@pytest.fixture(scope="module")
def expected(tmp_path_factory) -> tuple[Path, dict]:
    home = tmp_path_factory.mktemp("local")
    data = drift(home / "drift.npz")
    subprocess.run(words(data, home / "out", "local"), check=True, capture_output=True)
    assert [row["status"] for row in rows(home / "out").values()] == ["ok"] * 4
    return data, rows(home / "out")


@pytest.mark.slow
def test_slurm_gives_the_same_rows_though_a_task_is_killed(expected, tmp_path):
    data, wanted = expected
    stub = tmp_path / "bin" / "sbatch"
    stub.parent.mkdir()
    stub.write_text(STUB.format(python=sys.executable))
    stub.chmod(0o755)
    told = os.environ | {"PATH": f"{stub.parent}:{os.environ['PATH']}"}
    command = words(data, tmp_path / "out", "slurm", sbatch=("partition=gpu",))
    subprocess.run(command, check=True, env=told, capture_output=True)
    assert (stub.parent / "submitted").exists()
    assert rows(tmp_path / "out") == wanted


@pytest.mark.slow
def test_ray_gives_the_same_rows_though_a_worker_is_killed(expected, tmp_path):
    pytest.importorskip("ray")
    data, wanted = expected
    process = subprocess.Popen(words(data, tmp_path / "out", "ray"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    killed, end = False, time.monotonic() + 240
    while not killed and time.monotonic() < end and process.poll() is None:
        for path in Path("/proc").glob("[0-9]*"):
            if not killed and is_worker_of(path, process.pid):
                os.kill(int(path.name), signal.SIGKILL)
                killed = True
        time.sleep(0.02)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said.decode()
    assert killed
    assert rows(tmp_path / "out") == wanted


def is_worker_of(path: Path, pid: int) -> bool:
    """Whether a process is a task of the Ray instance that a process has started."""
    try:
        if b"ray::_work_in" not in (path / "cmdline").read_bytes():
            return False
        while (parent := int((path / "stat").read_text().rsplit(")", 1)[1].split()[1])) not in (0, 1, pid):
            path = Path(f"/proc/{parent}")
        return parent == pid
    except OSError:
        return False


@pytest.mark.slow
def test_a_comparison_that_was_stopped_continues_on_another_engine(expected, tmp_path):
    data, wanted = expected
    subprocess.run(words(data, tmp_path / "out", "local", seeds=1), check=True, capture_output=True)
    assert len(rows(tmp_path / "out")) == 2
    subprocess.run(words(data, tmp_path / "out", "ray"), check=True, capture_output=True)
    assert rows(tmp_path / "out") == wanted


def test_a_missing_engine_is_one_line(tmp_path, monkeypatch):
    from anygatr.lab.comparison.job import Job
    from anygatr.lab.comparison.slurm_engine import run_on_slurm

    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match="needs sbatch"):
        run_on_slurm(tmp_path, [Job(tmp_path, None, None, "", 1)])
