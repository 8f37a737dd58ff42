"""Models trained by one rule until they are done, beside predictors in closed form: rows, and what two pages say of them."""

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from anygatr.lab.report.palette import is_algebra
from anygatr.lab.report.rows import ResultRow
from anygatr.lab.report.spread import spread
from anygatr.lab.report.wording import count, listing, number
from benchmarks.harness.decision import Rule
from benchmarks.nbody.decide import FAR, MODELS, MORE, RULE
from benchmarks.nbody.reproduction.claims import Rows, name, of
from benchmarks.nbody.reproduction.tables import error, table, values

FILE = "results/nbody-decided/rows.jsonl"
FIGURE = "img/reproduction-decided.svg"
CLOSED = {"stay": "nothing moves", "inertia": "x + 0.1 v", "linear": "best equivariant linear map"}
"""Predictors in closed form, and what they are called."""
README_ROWS = {"n-body, 100 samples": 100, "n-body, 10 000 samples": 10_000}
"""Rows of the README's table, by how they start."""
SPLITS = {"train": "training", "val": "validation", "eval": "evaluation"}


@dataclass(frozen=True)
class Decided:
    """The rows of trained models, and those of predictors in closed form."""

    rows: Rows = ()
    closed: tuple[dict[str, Any], ...] = ()
    rule: Rule = RULE

    @classmethod
    def read(cls, root: Path) -> "Decided":
        """What is there."""
        path = root / FILE
        records = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        trained = sorted((r for r in records if r["model"] not in CLOSED), key=lambda r: (r["model"], r["size"], r["seed"]))
        return cls(tuple(map(_row, trained)), tuple(r for r in records if r["model"] in CLOSED))

    @property
    def models(self) -> list[str]:
        """Those that have rows, the best first at the most samples that all have."""
        found = [model for model in MODELS if of(self.rows, model)]
        return sorted(found, key=lambda model: self._error(model))

    @property
    def sizes(self) -> list[int]:
        """Numbers of training samples."""
        return sorted({row.size for row in self.rows})

    def hours(self, model: str) -> float:
        """The median core hours of a run; the cap where there is none."""
        found = [row.record["core_hours"] for row in of(self.rows, model)]
        return median(found) if found else self.rule.core_hours

    def closed_error(self, model: str, size: int | None, metric: str) -> float | None:
        """The evaluation error of a predictor in closed form; those that see no data have the same at every size."""
        found = [r for r in self.closed if r["model"] == model and r["size"] in (None, size)]
        return found[0]["evaluation"][metric] if found else None

    def lines(self, metric: str) -> dict[str, float]:
        """Errors of the predictors in closed form at the most samples, by what they are called."""
        errors = {said: self.closed_error(model, max(self.sizes, default=0), metric) for model, said in CLOSED.items()}
        return {said: found for said, found in errors.items() if found is not None}

    def _error(self, model: str) -> float:
        found = spread(row.metric("eval") for row in of(self.rows, model, (min(self.sizes),)))
        return found.mean if found else float("inf")


def decided_section(decided: Decided) -> str:
    """The section on the page on n-body."""
    rule, rows = decided.rule, decided.rows
    if not rows:
        return "## Error against training samples\n\nNo model has been trained to its end yet."
    hours = sum(row.record["core_hours"] for row in rows)
    missing = [name(model) for model in MODELS if not of(rows, model)]
    waits = f" Without a row yet: {', '.join(missing)}." if missing else ""
    return f"""## Error against training samples

Several clusters, 16 bodies. Every model is trained by one rule until it is done (`python -m benchmarks.nbody.decide train`):
batches of {rule.batch}, {rule.validations} validations, stopped after {
        rule.patience
    } of them without a new best or at the cap, as
many steps as about {rule.core_hours} core hours pay for; learning rate ({
        ", ".join(f"{rate:g}" for rate in sorted(rule.rates))
    })
and unit of length ({" or ".join(f"{unit:g}" for unit in rule.units)}) chosen per model by short runs on validation data. The
GATrs have 8 blocks, 16 multivector and 64 scalar channels, the Transformer 8 blocks of 192 channels; SEGNN and
SE(3)-Transformer have their published sizes. {count(len(rows), "run")} took {hours:.1f} core hours, choices not counted.{
        waits
    }

![Squared error against training samples for all models, with three lines for predictors in closed form]({FIGURE})

Mean squared error on new samples; in brackets the range over seeds where there are several:

{error_table(decided, "mse")}

Medians over samples, which close encounters do not dominate:

{error_table(decided, "median")}

{stopped(decided)}

What they cost, and what happens to the error on systems 200 further away and on systems with two more bodies (over the
evaluation error; 1 is no change). Core hours are medians over runs, validations included:

{
        table(
            ("model", "parameters", "steps", "core hours", "learning rate", "unit", "far away", "more bodies"),
            [_cost(decided, model) for model in decided.models],
        )
    }"""


def error_table(decided: Decided, metric: str) -> str:
    """Errors of models and of predictors in closed form against training samples."""
    lines = [(name(m), *(error(of(decided.rows, m, (n,)), "eval", metric) for n in decided.sizes)) for m in decided.models]
    for model, said in reversed(CLOSED.items()):
        found = [decided.closed_error(model, size, metric) for size in decided.sizes]
        lines.append((f"*{said}*", *(number(x) if x is not None else "–" for x in found)))
    return table(("model", *(f"{size:,}" for size in decided.sizes)), lines)


def algebra_table(decided: Decided) -> str:
    """The table on the page on which algebra to choose: means over seeds, with medians over samples in brackets."""
    models = [*decided.models, "linear"]
    lines = [(f"{size:,}", *(_both(decided, model, size) for model in models)) for size in decided.sizes]
    seeds = []
    for size in decided.sizes:
        found = sorted({len(of(decided.rows, model, (size,))) for model in decided.models})
        seeds.append(f"{' to '.join(map(str, dict.fromkeys((found[0], found[-1]))))} at {size:,} samples")
    return f"{table(('samples', *map(short, models)), lines)}\n\nSeeds: {'; '.join(seeds)}. {stopped(decided)}"


def with_errors(readme: str, decided: Decided) -> str:
    """The table of the README with the errors of these rows, the best in bold."""
    head = next(line for line in readme.splitlines() if line.startswith("| what |"))
    names = {short(model): model for model in (*decided.models, "linear")}
    models = [names.get(cell.strip()) for cell in head.strip("|").split("|")[1:]]
    for said, size in README_ROWS.items():
        errors = [None if model is None else _both(decided, model, size).split(" ")[0] for model in models]
        best = min((error for error in errors if error not in (None, "–")), default=None)
        cells = ["" if error is None else f"**{error}**" if error == best else error for error in errors]
        old = next(line for line in readme.splitlines() if line.startswith(f"| {said}"))
        readme = readme.replace(old, " | ".join([old.split(" | ")[0], *cells]).rstrip() + " |")
    return readme.replace("|  |", "| |").replace("|  |", "| |")


def short(model: str) -> str:
    """How a table with many columns calls a model."""
    return CLOSED.get(model) or (model if is_algebra(model) else name(model))


def stopped(decided: Decided) -> str:
    """Which runs ended at the cap: they may not be done."""
    capped: dict[str, list[str]] = {}
    for row in decided.rows:
        if row.record["stopped"] == "cap" and f"{row.size:,}" not in capped.setdefault(name(row.model), []):
            capped[name(row.model)].append(f"{row.size:,}")
    if not any(capped.values()):
        return "All runs ended by patience."
    found = "; ".join(f"{model} at {listing(sizes)} samples" for model, sizes in capped.items() if sizes)
    return f"Ended at the cap and not by patience, so that they may not be done: {found}."


def _both(decided: Decided, model: str, size: int) -> str:
    if model in CLOSED:
        mean, middle = (decided.closed_error(model, size, metric) for metric in ("mse", "median"))
    else:
        found = [spread(row.metric("eval", key) for row in of(decided.rows, model, (size,))) for key in ("mse", "median")]
        mean, middle = (x.mean if x else None for x in found)
    return "–" if mean is None or middle is None else f"{mean:.5f} ({middle:.1e})"


def _cost(decided: Decided, model: str) -> tuple[str, ...]:
    rows = of(decided.rows, model)
    moved = []
    for split in (FAR, MORE):
        found = spread((row.metric(split) or 0) / (row.metric("eval") or 1) for row in rows if row.is_ok)
        moved.append(f"{number(found.mean, 2)}×" if found else "–")
    rate, unit = (f"{rows[0].record[key]:g}" for key in ("learning_rate", "unit"))
    return (
        name(model),
        values(rows, "parameters"),
        values(rows, "steps"),
        number(decided.hours(model), 2),
        rate,
        unit,
        *moved,
    )


def _row(record: dict[str, Any]) -> ResultRow:
    """A row as comparisons have them."""
    metrics = {split: record[said] for split, said in SPLITS.items() if said in record}
    moved = record.get("generalisation", {})
    metrics |= {split: moved[said] for split, said in ((FAR, "far_away"), (MORE, "more_bodies")) if said in moved}
    is_ok = record["error"] is None
    return ResultRow(record["model"], record["size"], record["seed"], is_ok, record["error"], record | {"metrics": metrics})
