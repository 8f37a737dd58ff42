"""Runs of the laboratory as rows of a file: trained to the end, with the core hours that went into them."""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from anygatr.lab.config.commands import TrainConfig, command_line
from anygatr.lab.config.json_files import read_json, write_json
from anygatr.lab.data.dataset import Dataset
from anygatr.lab.data.registry import spec_of
from anygatr.lab.training.guard import owned
from anygatr.lab.training.run import TrainingRun
from anygatr.lab.training.state import environment
from anygatr.lab.training.train import NonFiniteGradientError, fit


def train(config: TrainConfig, data: Dataset) -> tuple[dict[str, Any], float]:
    """The row of a run and the core hours that went into it; a run whose gradients are not finite has a row as well."""
    source, out = spec_of(config, config.normalise, config.unit), Path(config.out)
    recipe = config.recipe(config.model, config.seed, config.size, source.origin(config.origin), source.kind.preset)
    with owned(out):
        run = TrainingRun.start(out, source, data, recipe, command_line("train", config))
        clock = CoreClock(out / "core_seconds.json", done=run.result is not None)
        try:
            row = fit(run, data, clock)
        except NonFiniteGradientError:
            row = read_json(out / "result.json")
        finally:
            clock.save()
    return row, clock.seconds / 3600


class CoreClock:
    """The processor time of a run over all the processes that worked on it; called after every step."""

    EVERY = 100

    def __init__(self, path: Path, done: bool):
        self.path, self.done = path, done
        self.before = read_json(path) if path.exists() else 0.0
        self.began = time.process_time()

    @property
    def seconds(self) -> float:
        """Until now; loading data is not counted, validation and evaluation are."""
        return self.before if self.done else self.before + time.process_time() - self.began

    def __call__(self, step: int, loss: float) -> None:
        if step % self.EVERY == 0:
            self.save()

    def save(self) -> None:
        """Keep it for the next process."""
        write_json(self.path, self.seconds)


def made_by() -> dict[str, Any]:
    """The commit of the package, marked where it had changes, and what computed."""
    commit, changes = (
        subprocess.run(["git", *words, "--", "src"], capture_output=True, text=True, check=True).stdout.strip()
        for words in (("log", "-1", "--format=%H"), ("status", "--porcelain"))
    )
    return {"commit": commit + ("+changes" if changes else ""), "machine": environment()}


def rows(path: Path, **key: Any) -> Iterator[dict[str, Any]]:
    """The rows of a file that have these values."""
    lines = path.read_text().splitlines() if path.exists() else []
    return (row for row in map(json.loads, lines) if all(row[name] == value for name, value in key.items()))


def has(path: Path, **key: Any) -> bool:
    """Whether a file has such a row."""
    return next(rows(path, **key), None) is not None


def append(path: Path, row: dict[str, Any]) -> None:
    """Add a row to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        file.write(json.dumps(row) + "\n")
