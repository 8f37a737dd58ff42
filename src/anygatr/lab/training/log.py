"""The record of a run while it runs: metrics as JSON lines and in other loggers, and a progress bar."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TextIO

from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TimeRemainingColumn
from rich.text import Text

from anygatr.lab.system.terminal import Terminal, description_column
from anygatr.lab.training.loggers import MetricsLogger, open_loggers


class Watch(Protocol):
    """Told about every step."""

    def __call__(self, step: int, loss: float) -> None:
        """After `step` steps the loss was `loss`."""


def unwatched(step: int, loss: float) -> None:
    """Nobody looks."""


class MetricsLog:
    """One JSON object per line, each with its step; lines beyond the step at which a run is resumed are taken back.

    Without a path nothing is written: of several ranks, the first one does it.
    """

    def __init__(self, path: Path | None, step: int, log: Iterable[str] = ()):
        self.loggers: list[MetricsLogger] = []
        self.file: TextIO | None = None
        if path is None:
            return
        self.loggers = open_loggers(log, path.parent, step)
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n") if path.exists() else []
        kept = [line for line in lines if _step(line) <= step]
        self.file = open(path, "w", encoding="utf-8")  # noqa: SIM115  closed by close()
        self.file.writelines(line + "\n" for line in kept)
        self.file.flush()

    def write(self, step: int, **values: Any) -> None:
        """Add a line."""
        if self.file is None:
            return
        self.file.write(json.dumps({"step": step, **values}) + "\n")
        self.file.flush()
        for logger in self.loggers:
            logger.write(step, values)

    def close(self) -> None:
        """Close the files."""
        if self.file is not None:
            self.file.close()
        for logger in self.loggers:
            logger.close()

    def __enter__(self) -> "MetricsLog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def progress_bar(title: str, steps: int, samples_per_step: int, shown: bool = True) -> Iterator[Watch]:
    """A bar on standard error with loss, throughput and the time that is left."""
    columns = (
        description_column(),
        BarColumn(),
        MofNCompleteColumn(),
        _Loss(),
        _Throughput(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Terminal(stderr=True), transient=True, disable=not shown) as bar:
        task = bar.add_task(title, total=steps, loss=float("nan"), each=samples_per_step)
        yield lambda step, loss: bar.update(task, completed=step, loss=loss)


class _Loss(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"loss {task.fields['loss']:.3g}")


class _Throughput(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{(task.speed or 0) * task.fields['each']:.0f} samples/s")


def _step(line: str) -> float:
    """The step of a line; a line cut off by a crash, or damaged, comes after every step."""
    try:
        step = json.loads(line)["step"]
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        return float("inf")
    return step if isinstance(step, int | float) else float("inf")
