"""What the page on n-body is made from: the committed rows."""

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from anygatr.lab.report.row_files import ROWS, pack_rows
from anygatr.lab.report.rows import load
from anygatr.lab.training.guard import owned
from benchmarks.nbody.reproduction.claims import DECIDED, Rows, rows_of
from benchmarks.nbody.reproduction.decided import Decided
from benchmarks.nbody.reproduction.experiments import EXPERIMENTS

PAPER_SIZE = "results/nbody-paper-size.json"


@dataclass(frozen=True)
class Results:
    """The rows of every experiment by name, and of the quick regression by model."""

    rows: dict[str, Rows]
    quick: dict[str, dict[str, Any]]
    cost: list[dict[str, Any]]
    trivial: float
    """The error of a model that learned nothing."""
    decided: Decided
    """Models trained until they are done."""

    @classmethod
    def read(cls, root: Path) -> "Results":
        """What is there; an experiment that was not started has no rows."""
        found, trivial = {}, []
        for key, experiment in EXPERIMENTS.items():
            directory = root / experiment.out
            loaded = load(directory) if (directory / "experiment.json").exists() else None
            if loaded is not None and loaded.problems:
                raise ValueError(f"{directory}: {loaded.problems[0]}")
            trivial += [loaded.trivial] if loaded is not None and loaded.trivial is not None else []
            found[key] = tuple(row for row in rows_of(loaded) if row.model in experiment.models)
        quick = {path.stem: json.loads(path.read_text()) for path in sorted((root / "results/quick").glob("*.json"))}
        cost = root / PAPER_SIZE
        decided = Decided.read(root)
        found[DECIDED.experiment] = decided.rows
        costs = json.loads(cost.read_text()) if cost.exists() else []
        return cls(found, quick, costs, min(trivial, default=float("inf")), decided)

    def hours(self, experiment: str, model: str) -> float:
        """The median core hours of a run of a model in an experiment."""
        if experiment == DECIDED.experiment:
            return self.decided.hours(model)
        found = [row.value("seconds") or 0.0 for row in self.rows[experiment] if row.model == model]
        return median(found) / 3600 if found else 0.0


def keep_rows(directory: Path) -> None:
    """Put the rows of finished runs beside the committed ones, into the file from which the experiment continues."""
    if (directory / ROWS).exists():
        with owned(directory):
            pack_rows(directory)
