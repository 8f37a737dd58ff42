"""Configuration as the reader needs it: what all runs share, and what differs from model to model."""

from typing import Any

from anygatr.lab.report.palette import looks
from anygatr.lab.report.rows import ComparisonResults


def shared_settings(experiment: ComparisonResults) -> list[list[str]]:
    """[setting, value] of every setting that has one value in all runs."""
    return [[key, next(iter(values))] for key, values in sorted(_values(experiment).items()) if len(values) == 1]


def differing_settings(experiment: ComparisonResults) -> list[list[str]]:
    """A table, head first: settings that differ, and their values for each model. Empty if none does."""
    differing = [key for key, values in sorted(_values(experiment).items()) if len(values) > 1]
    names = looks(experiment.models)
    rows = [[key, *(_of_model(experiment, model, key) for model in experiment.models)] for key in differing]
    return [["setting", *(names[model].label for model in experiment.models)], *rows] if rows else []


def environment(experiment: ComparisonResults) -> list[list[str]]:
    """[what, value] of the machine and the versions."""
    return [[key, str(value)] for key, value in (experiment.asked.get("environment") or {}).items()]


def _values(experiment: ComparisonResults) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for row in experiment.finished:
        for key, value in _flat(row.record.get("config") or {}).items():
            found.setdefault(key, set()).add(value)
    # these name the run, they do not configure it
    return {key: values for key, values in found.items() if key not in ("model", "size", "seed", "out")}


def _of_model(experiment: ComparisonResults, model: str, key: str) -> str:
    rows = [row for row in experiment.finished if row.model == model]
    values = {_flat(row.record.get("config") or {}).get(key, "") for row in rows}
    return ", ".join(sorted(values))


def _flat(config: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested settings with dotted names."""
    flat: dict[str, str] = {}
    for key, value in config.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": str(value)}
    return flat
