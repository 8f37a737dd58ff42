"""Cells and tables of the page on n-body, from rows."""

from collections.abc import Iterable, Sequence
from math import isfinite
from statistics import median

from anygatr.lab.report.rows import ResultRow
from anygatr.lab.report.spread import spread
from anygatr.lab.report.wording import count, measured, number
from benchmarks.nbody.reproduction.claims import Rows, name
from benchmarks.nbody.reproduction.experiments import Experiment


def progress(experiment: Experiment, rows: Rows) -> str:
    """How many runs are finished, and how long they took."""
    done, failed = sum(row.is_ok for row in rows), sum(not row.is_ok for row in rows)
    minutes = sum(row.value("seconds") or 0 for row in rows) / 60
    broken = f", {count(failed, 'run')} failed" if failed else ""
    return f"{done} of {count(experiment.runs, 'run')} finished in {minutes:.0f} minutes{broken}."


def error(rows: Iterable[ResultRow], split: str, key: str) -> str:
    """The mean over the finished runs, with its range."""
    found = spread(row.metric(split, key) for row in rows if row.is_ok)
    return measured(found) if found else "–"


def values(rows: Iterable[ResultRow], key: str) -> str:
    """The median over runs."""
    found = spread(value for row in rows if row.is_ok and (value := row.value(key)) is not None and isfinite(value))
    return number(median(found.values)) if found else "–"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def steps(rows: Rows) -> str:
    """How many steps the models were trained for, the exceptions named."""
    by_model = {row.model: int(row.value("steps") or 0) for row in rows if row.is_ok}
    most = max(by_model.values(), default=0)
    fewer = [f"{name(model)} {steps}" for model, steps in by_model.items() if steps < most]
    return f"{most} steps" + (f" ({', '.join(fewer)})" if fewer else "")
