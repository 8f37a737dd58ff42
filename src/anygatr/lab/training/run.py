"""The directory of a run: what is in it, how it is opened again, and that it is not mistaken for another."""

import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any

from torch import nn

from anygatr.files.reading import UnreadableFileError, reading, shortened
from anygatr.lab.config.json_files import read_json, write_json
from anygatr.lab.config.recipe import Recipe
from anygatr.lab.data.dataset import Dataset, fingerprint
from anygatr.lab.data.normalise import Normaliser
from anygatr.lab.data.range import seen_range
from anygatr.lab.data.registry import stored_spec
from anygatr.lab.data.spec import DataSpec
from anygatr.lab.data.task import Task
from anygatr.lab.distributed.ranks import Ranks
from anygatr.lab.training.guard import contents
from anygatr.lab.training.models import build
from anygatr.lab.training.state import check_weights, environment, load_tensors
from anygatr.lab.training.units import RunUnits

CONFIG, METRICS, STATE, WEIGHTS, RESULT = (
    "config.json", "metrics.jsonl", "state.safetensors", "weights.safetensors", "result.json",
)  # fmt: skip

FIELDS = {str: str}
CONFIG_SHAPE = {
    "source": {"path": str, "inputs": FIELDS, "targets": FIELDS, "dim": {int, None}, "per": {str, None}, "normalise": bool},
    "task": {
        "inputs": FIELDS,
        "targets": FIELDS,
        "dim": int,
        "per": str,
        "reinsert?": [str],
        "vocabulary?": {str: [{str, int}]},
        "token_targets?": [str],
    },
    "recipe": {"model": str},
    "normaliser": {"shift": {str: [float]}, "scale": {str: [float]}},
    **{
        "per_token?": {str: float},
        "per_class?": {str: {str: [float]}},
        "weights?": {str: float},
        "data?": str,
        "range?": {str: Any},
    },
    "command": str,
    "environment": {str: Any},
}
RESULT_SHAPE = {
    "model": str,
    "status": str,
    "error": {str, None},
    "parameters": int,
    "steps": int,
    "metrics": {str: {"mse": float, "median": float, "trimmed": float, "targets?": {str: {str: float}}}},
}


@dataclass(frozen=True)
class TrainingRun:
    """A directory and the configuration it was started with."""

    directory: Path
    spec: DataSpec
    task: Task
    recipe: Recipe
    units: RunUnits
    command: str

    @classmethod
    def of(cls, directory: Path, spec: DataSpec, data: Dataset, recipe: Recipe, command: str) -> "TrainingRun":
        """A run of this recipe on these data, of which nothing is written yet."""
        train = training_set(data, recipe.size)
        return cls(directory, spec, Task.of(data), recipe, RunUnits.fit(spec, train, recipe), command)

    @classmethod
    def start(cls, directory: Path, spec: DataSpec, data: Dataset, recipe: Recipe, command: str) -> "TrainingRun":
        """A new run, or the one that is there already if it has the same recipe and data."""
        run = cls.of(directory, spec, data, recipe, command)
        run.enter(training_set(data, recipe.size))
        return run

    def enter(self, train: Dataset, execution: Mapping[str, int] | None = None) -> None:
        """Write the configuration, or check that the one in the directory is of the same recipe and data.

        execution   how steps are computed: ranks and pieces, 1 where it does not say
        """
        directory = self.directory
        record = json.loads(json.dumps(self.to_json() | {"fingerprint": fingerprint(train)}))
        if (directory / CONFIG).exists():
            self._check_same(record)
        elif held := contents(directory):
            raise ValueError(f"out={str(directory)!r} holds no run but {', '.join(held[:3])}; choose another directory")
        else:
            several = {name: count for name, count in (execution or {}).items() if count > 1}
            beside = {"environment": environment() | several, "data": os.path.relpath(self.spec.path, directory)}
            write_json(directory / CONFIG, record | {"command": self.command, "range": seen_range(train)} | beside)

    @classmethod
    def open(cls, directory: str | Path) -> "TrainingRun":
        """A run that was started before."""
        directory = Path(directory)
        if not (directory / CONFIG).exists() and (runs := sorted((directory / "runs").glob(f"*/{CONFIG}"))):
            some = ", ".join(str(path.parent) for path in runs[:3])
            raise ValueError(f"run={str(directory)!r} is a comparison of {len(runs)} runs; name one of them: {some}, ...")
        path = directory / CONFIG
        record = read_json(path, CONFIG_SHAPE)
        with reading(path, "the configuration of a run"):
            task = Task.from_json(record["task"])
            spec = replace(stored_spec(record["source"]), vocabulary=task.vocabulary)
            units, recipe = RunUnits.from_json(record), Recipe.from_json(record["recipe"])
            _check_units(task, units.normaliser)
        beside = directory / record["data"] if "data" in record else Path(spec.path)
        spec = spec.at(os.path.normpath(beside)) if _exists(beside, path) and not Path(spec.path).is_absolute() else spec
        return cls(directory, spec, task, recipe, units, record["command"])

    def module(self) -> nn.Module:
        """The model with the best weights, ready to predict."""
        module = build(self.task, self.recipe)
        weights, _ = load_tensors(self.directory / WEIGHTS)
        check_weights(self.directory / WEIGHTS, weights, module)
        module.load_state_dict(weights)
        return module.eval()

    @property
    def result(self) -> dict[str, Any] | None:
        """The row of a finished run."""
        path = self.directory / RESULT
        return read_json(path, RESULT_SHAPE) if path.exists() else None

    def to_json(self) -> dict[str, Any]:
        """What makes this run this run."""
        return {
            "version": 1,
            "source": self.spec.to_json(),
            "task": self.task.to_json(),
            "recipe": self.recipe.to_json(),
        } | self.units.to_json()

    @property
    def range(self) -> dict[str, Any]:
        """What training has seen of each input, as `seen_range` describes it; empty in runs from before it was kept."""
        return read_json(self.directory / CONFIG).get("range", {})

    def check_environment(self, execution: Mapping[str, int]) -> None:
        """Warn if resuming here cannot give the bits of an uninterrupted run."""
        then, now = read_json(self.directory / CONFIG, CONFIG_SHAPE)["environment"], environment() | dict(execution)
        then = dict.fromkeys(execution, 1) | then
        other = [f"{key} {then.get(key)} -> {now[key]}" for key in now if then.get(key) != now[key]]
        if other:
            warnings.warn(
                f"{self.directory} was started with another environment ({', '.join(other)}): it continues, but not to the "
                "bits of an uninterrupted run",
                stacklevel=2,
            )

    def _check_same(self, record: dict[str, Any]) -> None:
        there = read_json(self.directory / CONFIG, {})
        for part, ours in record.items():
            theirs = there.get(part)
            if theirs == ours:
                continue
            keys = [key for key in ours if theirs.get(key) != ours[key]] if isinstance(theirs, dict) else []
            what = ", ".join(f"{key}={theirs[key]!r}" for key in keys if key in theirs) or f"another {part}"
            raise ValueError(
                f"out={str(self.directory)!r} holds another run ({what}); choose another directory, or delete that one"
            )


def _exists(data: Path, config: Path) -> bool:
    """Whether data that a configuration names are there."""
    try:
        return data.exists()
    except OSError as error:  # a name of thousands of characters, a directory that is closed to us
        place = shortened(repr(str(data)), 100)
        raise UnreadableFileError(f"{str(config)!r} names the data {place}: {error.strerror}; restore it") from None


def _check_units(task: Task, normaliser: Normaliser) -> None:
    """Raise unless every field of the task has a unit for each of its columns, and none of them is zero."""
    for name, kind in (task.inputs | task.targets).items():
        shift, scale = normaliser.shift.get(name, ()), normaliser.scale.get(name, ())
        if not scale or len(shift) != len(scale) or not all(isfinite(unit) and unit for unit in scale):
            raise ValueError(f"normaliser has {len(shift)} shifts and the scales {list(scale)} for {name}, a {kind}")


def loaded(spec: DataSpec, ranks: Ranks) -> Dataset:
    """The data of a run, made by the first rank if they are ours and not there; all ranks must have the same."""
    if ranks.count == 1:
        return spec.load()
    ranks.first(lambda: spec.load() and None)
    data = spec.load()
    theirs = ranks.first(lambda: fingerprint(data))
    if fingerprint(data) != theirs:
        raise ValueError(f"rank {ranks.rank}: {spec.path} holds other data here than on rank 0; copy the same file there")
    return data


def training_set(data: Dataset, size: int | None) -> Dataset:
    """The first `size` training samples, all by default."""
    train = data.split("train")
    if size is not None and size > len(train):
        raise ValueError(f"size={size} is larger than the {len(train)} training samples; ask for less or bring more data")
    return train if size is None else train.subset(size)
