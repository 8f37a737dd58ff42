"""Models trained until they are done, all by one rule; settings chosen on validation data, one row per finished run.

A run is a function of its configuration and seed; killed and started again it continues where it was.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from anygatr.lab.config.commands import TrainConfig, command_line
from anygatr.lab.data.dataset import Dataset
from benchmarks.harness.training import append, has, made_by, rows, train

SAID = ("model", "size", "seed", "learning_rate", "unit", "parameters", "steps", "best_step", "spikes", "equivariance")


@dataclass(frozen=True)
class Rule:
    """How long and how every model is trained."""

    core_hours: float
    """The cap: the learning rate falls over as many steps as fit into it."""
    batch: int
    """Samples in a batch."""
    decay: float = 0.01
    """The last learning rate over the first."""
    validations: int = 50
    """In a run of all its steps, evenly."""
    patience: int = 15
    """Validations without a new best after which a run stops early."""
    rates: tuple[float, ...] = (1e-3, 3e-3, 3e-4)
    """Learning rates to choose from; the unit is chosen at the first."""
    units: tuple[float, ...] = (1.0,)
    """Lengths that are 1 for the network, to choose from."""
    choice: float = 0.05
    """Share of the steps that each of these is trained for, at the size and seed below."""
    choice_validations: int = 10
    """In a run of the choice: it costs as much as ten steps."""
    choice_size: int = 10_000
    choice_seed: int = 0


@dataclass(frozen=True)
class Experiment:
    """A rule, its models and data, and where their runs and rows are kept."""

    rule: Rule
    models: Mapping[str, Mapping[str, Any]]
    """By name: its `size`, and the `milliseconds` of a step on one core, which only set the number of steps."""
    runs: Path
    rows: Path
    choices: Path
    load: Callable[[int], Dataset]
    """The data for so many training samples; all sets share their evaluation samples."""
    settings: Callable[[int], Mapping[str, Any]]
    """What `anygatr train` is told about them, preset included."""
    measures: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    """What a row keeps of the errors by split."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """What else tells its rows from those of others in the same files."""

    def steps(self, model: str) -> int:
        """As many as the cap pays for, to the hundred."""
        return max(1, round(3600e3 * self.rule.core_hours / self.models[model]["milliseconds"] / 100)) * 100

    def decide(self, model: str, size: int, seed: int) -> None:
        """Choose the model's settings if that was not done, train it to the end, append its row."""
        if has(self.rows, model=model, size=size, seed=seed, **self.about):
            return
        rate, unit = self.chosen(model)
        out = f"{self.runs}/{model}-{size}-{seed}"
        config = self.train_config(model, size, seed, rate, unit, self.steps(model), self.rule.validations, out)
        row, hours = train(config, self.load(size))
        row |= {"model": model, "size": size, "seed": seed, "learning_rate": rate, "unit": unit}
        append(self.rows, self._row(row, config, hours))
        print(f"finished {model} with {size} samples, seed {seed}: {row['error'] or row['metrics']['eval']}", flush=True)

    def chosen(self, model: str) -> tuple[float, float]:
        """The unit with the least validation error at the first learning rate, then the rate with the least at that unit."""
        rates, units = self.rule.rates, self.rule.units
        unit = units[0] if len(units) == 1 else min(units, key=lambda unit: self.short_error(model, rates[0], unit))
        rate = min(rates, key=lambda rate: self.short_error(model, rate, unit))
        if self.short_error(model, rate, unit) == float("inf"):
            raise ValueError(f"model={model!r} diverges at every rate of {rates}; add smaller ones")
        return rate, unit

    def short_error(self, model: str, rate: float, unit: float) -> float:
        """The validation error of a short run, which is not shown the evaluation sets; infinite if it diverges."""
        key = {"model": model, "learning_rate": rate, "unit": unit} | dict(self.about)
        if not has(self.choices, **key):
            size, seed, validations = self.rule.choice_size, self.rule.choice_seed, self.rule.choice_validations
            data = self.load(size)
            visible = replace(data, splits={name: data.splits[name] for name in ("train", "val")})
            steps, out = round(self.rule.choice * self.steps(model)), f"{self.runs}/choice/{model}-{rate:g}-{unit:g}"
            config = self.train_config(model, size, seed, rate, unit, steps, validations, out)
            row, hours = train(config, visible)
            validation = row["metrics"]["val"]["mse"] if row["error"] is None else None
            about = {"steps": row["steps"], "validation": validation, "error": row["error"], "core_hours": hours}
            append(self.choices, key | about | {"command": command_line("train", config)} | made_by())
        found = next(rows(self.choices, **key))["validation"]
        return float("inf") if found is None else found

    def train_config(
        self, model: str, size: int, seed: int, rate: float, unit: float, steps: int, validations: int, out: str
    ) -> TrainConfig:
        """What `anygatr train` would be told."""
        return TrainConfig(
            **self.settings(size),
            model=model,
            **self.models[model]["size"],
            size=size,
            seed=seed,
            steps=steps,
            batch=self.rule.batch,
            lr=rate,
            lr_end=self.rule.decay * rate,
            unit=unit,
            validate_every=max(1, steps // validations),
            patience=self.rule.patience,
            threads=1,
            out=out,
        )

    def _row(self, row: dict[str, Any], config: TrainConfig, hours: float) -> dict[str, Any]:
        stopped = "failed" if row["error"] else "patience" if row["steps"] < self.steps(config.model) else "cap"
        about = {name: row[name] for name in SAID} | {"stopped": stopped, "error": row["error"], "core_hours": hours}
        measures = dict(self.measures(row["metrics"])) if row["metrics"] else {}
        command = {"command": command_line("train", config)}
        return dict(self.about) | about | measures | command | made_by() | {"config": row["config"], "curve": row["curve"]}
