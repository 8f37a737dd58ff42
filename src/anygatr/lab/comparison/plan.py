"""The directory of a comparison: what is compared with what, and that it is not mistaken for another."""

import json
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from anygatr.interface.sight import UnreachableError
from anygatr.lab.comparison.budgets import matched
from anygatr.lab.config.commands import CompareConfig
from anygatr.lab.config.json_files import read_json, write_json
from anygatr.lab.config.recipe import Recipe
from anygatr.lab.data.dataset import Dataset, fingerprint
from anygatr.lab.data.registry import stored_spec
from anygatr.lab.data.spec import DataSpec
from anygatr.lab.data.task import Task
from anygatr.lab.report.row_files import EXPERIMENT_SHAPE, read_rows, unpack_rows
from anygatr.lab.training.blindness import blind_to, unable
from anygatr.lab.training.guard import contents
from anygatr.lab.training.metrics import baseline_metrics, target_weights
from anygatr.lab.training.mirrors import mirror_bound
from anygatr.lab.training.models import check_names
from anygatr.lab.training.predict import predictions
from anygatr.lab.training.run import WEIGHTS, TrainingRun, training_set
from anygatr.lab.training.state import environment
from anygatr.lab.training.write import write_arrays

FILE = "experiment.json"
SHOWN = 4
"""Samples of the evaluation split whose predictions are kept for the report."""


@dataclass(frozen=True)
class ComparisonPlan:
    """A comparison as its file describes it. Models, sizes and seeds may be added later; nothing else may change."""

    directory: Path
    record: dict[str, Any]

    @classmethod
    def start(cls, config: CompareConfig, spec: DataSpec, data: Dataset, command: str) -> "ComparisonPlan":
        """A new comparison, or the one that is there already if it compares the same way on the same data."""
        directory = Path(config.out)
        _check(config, data)
        there = _existing(directory) or {"models": [], "sizes": [], "seeds": [], "recipes": {}, "settings": {}}
        sizes = list(config.sizes or (len(data.splits["train"]),))
        origin = spec.origin(config.origin)
        most, preset = max(sizes), spec.kind.preset
        recipes = [config.recipe(model, 0, most, origin, preset, most) for model in dict.fromkeys(config.models)]
        task = Task.of(data)
        hopeless = unable(recipes, task)  # what cannot be built at all is refused now, not recorded as a failure later
        recipes = [recipe for recipe in recipes if recipe.model not in hopeless]
        if not recipes:
            raise UnreachableError(next(iter(hopeless.values())))
        for reason in hopeless.values():
            warnings.warn(f"left out: {reason}", stacklevel=2)
        asked = _identity(config, spec, data, recipes)
        _check_same(there, asked, config.out)
        reference = [Recipe.from_json(there["recipes"][model]) for model in there["models"][:1]]
        new = [recipe for recipe in recipes if recipe.model not in there["recipes"]]
        found = matched([*reference, *new], config.match, config.minutes, training_set(data, max(sizes)))
        record = {"version": 1, "command": command, "data": _describe(spec, data)} | asked
        record["settings"] = there["settings"] | asked["settings"]
        record["models"] = _union(there["models"], [recipe.model for recipe in recipes])
        record["sizes"], record["seeds"] = _union(there["sizes"], sizes), _union(there["seeds"], range(config.seeds))
        record["recipes"] = {recipe.model: recipe.to_json() for recipe in found} | there["recipes"]
        record |= {"environment": environment(), "preliminary": config.preliminary}
        unseen = {recipe.model: blind_to(recipe, task) for recipe in recipes}
        record["unable"] = there.get("unable", {}) | hopeless
        record["unseen"] = there.get("unseen", {}) | {model: names for model, names in unseen.items() if names}
        write_json(directory / FILE, record)
        unpack_rows(directory)
        return cls(directory, record)

    @property
    def command(self) -> str:
        """The command that started or continued it."""
        return self.record["command"]

    def recipes(self) -> list[Recipe]:
        """The recipe of every run, ordered so that whatever is finished first can be compared."""
        models, sizes, seeds = (self.record[key] for key in ("models", "sizes", "seeds"))
        starts = {model: Recipe.from_json(self.record["recipes"][model]) for model in models}
        return [starts[model].of(size, seed, size) for seed in seeds for size in sizes for model in models]

    def write_predictions(self, data: Dataset) -> None:
        """For each model, a few samples with the predictions of its best run at the largest size."""
        splits = stored_spec(self.record["source"]).kind.shown
        shown = data.split(next(name for name in splits if name in data.splits))
        shown = shown.subset(min(SHOWN, len(shown)))
        shown = shown.dense() if shown.faces is None else shown.packed()
        finished = read_rows(self.directory)[0].values()
        for model in self.record["models"]:
            rows = [row for row in finished if (row.get("model"), row.get("size")) == (model, max(self.record["sizes"]))]
            # committed rows outlive the weights they were measured with
            weights = [self.directory / "runs" / f"{model}-{row['size']}-{row['seed']}" / WEIGHTS for row in rows]
            rows = [row for row, path in zip(rows, weights, strict=True) if row["status"] == "ok" and path.exists()]
            if not rows:
                continue
            best = min(rows, key=lambda row: row["metrics"]["val"]["mse"])
            run = TrainingRun.open(self.directory / "runs" / f"{model}-{best['size']}-{best['seed']}")
            arrays = {name: x for name, x in shown.batch().items() if name not in run.task.targets}
            arrays |= {f"target/{name}": shown.fields[name] for name in run.task.targets}
            said = predictions(run, run.module(), shown, run.recipe.batch)
            arrays |= {f"prediction/{name}": x for name, x in said.items()} | _triangles(shown)
            path = self.directory / "predictions" / f"{model}.npz"
            write_arrays(path, arrays)


def _triangles(data: Dataset) -> dict[str, torch.Tensor]:
    """The triangles of each sample, one after the other, where samples are surfaces."""
    if data.faces is None:
        return {}
    ends = torch.tensor([0, *(len(face) for face in data.faces)]).cumsum(0)
    return {"triangles": torch.cat(data.faces), "triangle_offsets": ends}


def _check(config: CompareConfig, data: Dataset) -> None:
    if not config.models:
        raise ValueError("models is empty; name at least one, for example --models C transformer")
    check_names(config.models)
    if config.seeds < 1:
        raise ValueError(f"seeds={config.seeds} must be at least 1")
    if config.minutes <= 0:
        raise ValueError(f"minutes={config.minutes} must be positive")
    have = len(data.splits["train"])
    for size in config.sizes:
        if not 0 < size <= have:
            raise ValueError(
                f"sizes contains {size}, but there are {have} training samples; ask for 1..{have} or bring more"
            )


def _existing(directory: Path) -> dict[str, Any] | None:
    if (directory / FILE).exists():
        return read_json(directory / FILE, EXPERIMENT_SHAPE)
    if held := contents(directory):
        raise ValueError(f"out={str(directory)!r} holds no comparison but {', '.join(held[:3])}; choose another directory")
    return None


def _identity(config: CompareConfig, spec: DataSpec, data: Dataset, recipes: list[Recipe]) -> dict[str, Any]:
    """What must stay the same when a comparison is continued or extended."""
    identity = {
        "source": spec.to_json(),
        "fingerprint": fingerprint(data),
        "match": config.match,
        "minutes": config.minutes if config.match == "time" else None,
        "preset": config.preset or spec.kind.preset,
        "origin": spec.origin(config.origin),
        "settings": {recipe.model: replace(recipe, size=None).to_json() for recipe in recipes},
    }
    return json.loads(json.dumps(identity))


def _check_same(there: dict[str, Any], asked: dict[str, Any], out: str) -> None:
    """Raise if a directory holds a comparison made in another way."""
    if "command" not in there:
        return
    different = [key for key in asked if key != "settings" and there[key] != asked[key]]
    different += [
        f"{model} with {name}={theirs[name]!r}"
        for model, theirs in there["settings"].items()
        for name, value in asked["settings"].get(model, {}).items()
        if theirs.get(name) != value
    ]
    if different:
        raise ValueError(
            f"out={out!r} holds another experiment (it differs in {', '.join(different[:3])}); choose another directory, "
            f"or repeat its own command: {there['command']}"
        )


def _union(first: list[Any], second: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys([*first, *second]))


def _describe(spec: DataSpec, data: Dataset) -> dict[str, Any]:
    low, high = int(data.counts.min()), int(data.counts.max())
    train = data.split("train")
    evaluated = "eval" if "eval" in data.splits else "val"
    parts = {name: data.split(name) for name in dict.fromkeys((evaluated, "val"))}
    baselines = baseline_metrics(train, parts, target_weights(train))
    bound = mirror_bound(parts[evaluated], target_weights(train))
    return (
        spec.describe()
        | {
            "dim": data.dim,
            "tokens": int(torch.median(data.counts)) if low != high else low,
            "fields": data.input_kinds,
            "targets": data.target_kinds,
            "per": data.per,
            "trivial_mse": min(
                baselines[evaluated][name]["mse"] for name in ("mean", "stay") if name in baselines[evaluated]
            ),
            "baselines": {"eval" if name == evaluated else name: numbers for name, numbers in baselines.items()},
        }
        | ({} if bound is None else {"mirror_bound": bound})
    )
