"""RMSE, MAE and R2 of every model and target, above those of predictors without training."""

from typing import Any

from anygatr.lab.report.palette import looks
from anygatr.lab.report.ranking import by_error
from anygatr.lab.report.rows import ComparisonResults
from anygatr.lab.report.wording import number

NAMES = {"rmse": "RMSE", "mae": "MAE", "r2": "R²"}


def numbers_table(experiment: ComparisonResults) -> list[list[str]]:
    """A table, head first: one row per model, the mean over seeds at the reference size, then one per closed form."""
    targets = list(experiment.data.get("targets") or {})
    rows = {looks(experiment.models)[model].label: _of_model(experiment, model) for model, _ in by_error(experiment)}
    rows |= {f"({name})": _of_targets(numbers) for name, numbers in experiment.baselines().items()}
    rows = {label: found for label, found in rows.items() if found}
    if not rows:
        return []
    several = len(targets) > 1
    columns = [(target, key) for target in (targets if several else [""]) for key in NAMES]
    units = experiment.data.get("units") or {}
    head = ["", *(_head(target or targets[0], NAMES[key], units, several) for target, key in columns)]
    body = [[label, *(_cell(found.get(target, {}).get(key)) for target, key in columns)] for label, found in rows.items()]
    return [head, *body]


def _head(target: str, name: str, units: dict[str, str], several: bool) -> str:
    unit = f" [{units[target]}]" if target in units and name != NAMES["r2"] else ""
    return (f"{target} {name}" if several else name) + unit


def _of_model(experiment: ComparisonResults, model: str) -> dict[str, dict[str, float]]:
    rows = [row.record["metrics"]["eval"] for row in experiment.select(model, experiment.reference)]
    found = [_of_targets(row) for row in rows]
    found = [targets for targets in found if targets]
    if not found:
        return {}
    return {t: {key: sum(one[t][key] for one in found) / len(found) for key in found[0][t]} for t in found[0]}


def _of_targets(numbers: dict[str, Any]) -> dict[str, dict[str, float]]:
    """The numbers of each target; those of a single one under an empty name. Rows from before they were kept have none."""
    if "targets" in numbers:
        return dict(numbers["targets"])
    return {"": {key: numbers[key] for key in NAMES if key in numbers}} if "rmse" in numbers else {}


def _cell(value: float | None) -> str:
    return "" if value is None else number(value) if value >= 0 else f"−{number(-value)}"
