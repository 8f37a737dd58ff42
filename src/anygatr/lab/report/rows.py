"""Reading a comparison directory: what was asked, one row per run, predictions; what is broken is named and skipped."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from anygatr.files.reading import shortened
from anygatr.lab.config.json_files import read_json
from anygatr.lab.report.palette import is_algebra
from anygatr.lab.report.row_files import EXPERIMENT_SHAPE, read_rows
from anygatr.lab.report.spread import Spread, spread
from anygatr.lab.system.memory import Budget
from anygatr.lab.system.npz import read_npz

VERSION = 1
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class ResultRow:
    """One finished or failed run."""

    model: str
    size: int
    seed: int
    is_ok: bool
    error: str | None
    record: dict[str, Any]
    """Everything the run measured, as written."""

    def value(self, name: str) -> float | None:
        """A measured number; None where the run did not record it."""
        return _finite(self.record.get(name))

    def metric(self, split: str, name: str = "mse") -> float | None:
        """An error on one of the sets; None where there is no such set."""
        return _finite((self.record.get("metrics") or {}).get(split, {}).get(name))

    @property
    def curve(self) -> list[tuple[float, float | None, float | None]]:
        """(step, training loss, validation error), in order of steps."""
        points = [(_finite(step), _finite(loss), _finite(error)) for step, loss, error in self.record.get("curve") or []]
        return sorted((step, loss, error) for step, loss, error in points if step is not None)


@dataclass(frozen=True)
class ComparisonResults:
    """A comparison: what was asked, what came back, and what could not be read."""

    directory: Path
    asked: dict[str, Any]
    """The contents of experiment.json."""
    rows: tuple[ResultRow, ...]
    predictions: dict[str, Arrays]
    problems: tuple[str, ...] = field(default=())
    """One sentence per file that had to be skipped."""

    @cached_property
    def data(self) -> dict[str, Any]:
        """What the data are: name, dim, fields, targets, ..."""
        return self.asked["data"]

    @cached_property
    def finished(self) -> tuple[ResultRow, ...]:
        """The runs that ended with a finite error."""
        return tuple(row for row in self.rows if row.is_ok)

    @cached_property
    def failed(self) -> tuple[ResultRow, ...]:
        """The runs that did not."""
        return tuple(row for row in self.rows if not row.is_ok)

    @cached_property
    def pending(self) -> int:
        """How many runs were asked for that have no row yet."""
        keys = [self.asked.get(key) or [] for key in ("models", "sizes", "seeds")]
        done = {(row.model, row.size, row.seed) for row in self.rows}
        return sum((m, n, s) not in done for m in keys[0] for n in keys[1] for s in keys[2])

    @cached_property
    def models(self) -> tuple[str, ...]:
        """Models with a finished run, in the order they were asked for."""
        asked = [*self.asked.get("models", []), *(row.model for row in self.rows)]
        return tuple(model for model in dict.fromkeys(asked) if any(row.model == model for row in self.finished))

    @cached_property
    def algebras(self) -> tuple[str, ...]:
        """Those of the models that are GATrs."""
        return tuple(filter(is_algebra, self.models))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Training set sizes with a finished run, ascending."""
        return tuple(sorted({row.size for row in self.finished}))

    @cached_property
    def seeds(self) -> int:
        """The largest number of seeds that any model finished at the reference size."""
        return max((len(self.select(model, self.reference)) for model in self.models), default=0)

    @cached_property
    def reference(self) -> int:
        """The size at which models are ranked: the largest that most models finished."""
        return max(self.sizes, key=lambda n: (len({row.model for row in self.finished if row.size == n}), n), default=0)

    @cached_property
    def trivial(self) -> float | None:
        """The error of a predictor that learned nothing."""
        return _finite(self.data.get("trivial_mse"))

    def baselines(self, split: str = "eval") -> dict[str, dict[str, Any]]:
        """What predictors without training achieve on a split, by name: mse, rmse, ...; empty where it was not recorded."""
        return (self.data.get("baselines") or {}).get(split, {})

    def no_learning(self, split: str) -> float | None:
        """The error on a split of the best predictor that learned nothing: the mean or staying."""
        found = [_finite(numbers.get("mse")) for name, numbers in self.baselines(split).items() if name in ("mean", "stay")]
        known = [value for value in found if value is not None]
        return min(known) if known else self.trivial if split == "eval" else None

    def is_blind(self, model: str) -> bool:
        """Whether predictions of a model depend on nothing, in all its finished runs at the reference size."""
        rows = self.select(model, self.reference)
        return bool(rows) and all(bool(row.record.get("blind")) for row in rows)

    def select(self, model: str, size: int) -> tuple[ResultRow, ...]:
        """The finished runs of a model at a size, by seed."""
        return tuple(row for row in self.finished if (row.model, row.size) == (model, size))

    def spread(self, model: str, size: int, read: Callable[[ResultRow], float | None]) -> Spread | None:
        """What `read` finds in the seeds of a model at a size."""
        return spread(read(row) for row in self.select(model, size))

    def error(self, model: str, size: int, split: str = "eval", metric: str = "mse") -> Spread | None:
        """The error of a model trained on `size` samples."""
        return self.spread(model, size, lambda row: row.metric(split, metric))

    def measure(self, model: str, name: str) -> Spread | None:
        """A cost of a model at the reference size."""
        return self.spread(model, self.reference, lambda row: row.value(name))


def load(directory: Path) -> ComparisonResults:
    """Read a comparison directory. Raises only if it is not one; single unreadable files become `problems`."""
    directory = Path(directory)
    asked = _experiment(directory)
    records, problems = read_rows(directory)
    rows = []
    for place, record in records.items():
        try:
            rows.append(_row(record))
        except ValueError as problem:
            problems.append(f"{place} was skipped: {problem}")
    predictions = {}
    for path in sorted((directory / "predictions").glob("*.npz")):
        try:
            predictions[path.stem] = read_npz(path, lambda name: True, Budget())
        except (ValueError, OSError) as problem:
            problems.append(f"predictions/{path.name} was skipped: {problem}")
    order = sorted(rows, key=lambda row: (row.model, row.size, row.seed))
    return ComparisonResults(directory, asked, tuple(order), predictions, tuple(problems))


def _experiment(directory: Path) -> dict[str, Any]:
    path = directory / "experiment.json"
    if not path.is_file():
        raise ValueError(f"directory={str(directory)!r} holds no experiment.json; give what `anygatr compare --out` wrote")
    asked = read_json(path, EXPERIMENT_SHAPE)
    if asked.get("version") != VERSION:
        found = shortened(repr(asked.get("version")), 80)
        raise ValueError(f"{path} has version {found}, this report reads {VERSION}; use the anygatr it names")
    return asked


def _row(record: dict[str, Any]) -> ResultRow:
    for key, kind in (("model", str), ("size", int), ("seed", int), ("status", str)):
        if not isinstance(record.get(key), kind):
            raise ValueError(f"{key}={record.get(key)!r} should be of type {kind.__name__}")
    row = ResultRow(record["model"], record["size"], record["seed"], record["status"] == "ok", record.get("error"), record)
    if row.is_ok and row.metric("eval") is None:
        return ResultRow(row.model, row.size, row.seed, False, "its evaluation error is missing or not finite", record)
    return row


def _finite(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and isfinite(value) else None
