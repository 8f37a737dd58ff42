"""Train every n-body model until it is done, all by one rule; one row per finished run in results/nbody-decided/rows.jsonl.

python -m benchmarks.nbody.decide closed
python -m benchmarks.nbody.decide train --models segnn E --sizes 10000 1000 --seeds 0

A run is a function of its configuration and seed in runs/decide; killed and started again it continues where it was.
The learning rate and the unit of length are chosen once per model, by short runs that see training and validation data only.
"""

import argparse
import shlex
import sys
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch

from anygatr.lab.cli import main as anygatr
from anygatr.lab.config.commands import TrainConfig, command_line
from anygatr.lab.data.dataset import Dataset
from anygatr.lab.data.nbody import dataset as nbody
from benchmarks.harness.training import append, has, made_by, rows, train
from benchmarks.nbody import closed_forms

RUNS = Path("runs/decide")
ROWS = Path("results/nbody-decided/rows.jsonl")
CHOICES = Path("results/nbody-decided/choices.jsonl")
FAR = "e3_generalization"
MORE = "object_generalization"
TESTS = "--val 500 --eval 1000 --generalization 500"


@dataclass(frozen=True)
class Rule:
    """How long and how every model is trained."""

    core_hours: float = 0.5
    """The cap: the learning rate falls over as many steps as fit into it."""
    batch: int = 16
    """Samples in a batch."""
    decay: float = 0.01
    """The last learning rate over the first."""
    validations: int = 50
    """In a run of all its steps, evenly."""
    patience: int = 15
    """Validations without a new best after which a run stops early."""
    rates: tuple[float, ...] = (1e-3, 3e-3, 3e-4)
    """Learning rates to choose from; the unit is chosen at the first."""
    units: tuple[float, ...] = (1.0, 0.25)
    """Lengths that are 1 for the network, to choose from."""
    choice: float = 0.05
    """Share of the steps that each of these is trained for, at the size and seed below."""
    choice_validations: int = 10
    """In a run of the choice: it costs as much as ten steps."""
    choice_size: int = 10_000
    choice_seed: int = 0

    def steps(self, model: str) -> int:
        """As many as the cap pays for, to the hundred."""
        return round(3600e3 * self.core_hours / MODELS[model]["milliseconds"] / 100) * 100


RULE = Rule()
GATR = {"blocks": 8, "mv": 16, "s": 64, "heads": 8}
MODELS: dict[str, dict[str, Any]] = {
    "segnn": {"milliseconds": 100, "size": {"blocks": 4, "mv": 0, "s": 64, "heads": 1}},
    "transformer": {"milliseconds": 70, "size": {"blocks": 8, "mv": 0, "s": 192, "heads": 8}},
    "se3_transformer": {"milliseconds": 445, "size": {"blocks": 4, "mv": 0, "s": 8, "heads": 1}},
    "E": {"milliseconds": 38, "size": GATR},
    "P": {"milliseconds": 56, "size": GATR},
    "iP": {"milliseconds": 63, "size": GATR},
    "C": {"milliseconds": 122, "size": GATR},
}
"""Sizes, and the processor time of one step on one core at the rule's batch, which only sets the number of steps.

SEGNN and the SE(3)-Transformer are as published; the Transformer has half its published width, as the GATrs have half the
paper's, and as many blocks as they.
"""


def main() -> None:
    """Make the rows that are not there yet, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["closed", "train"])
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--sizes", nargs="+", type=int, default=[10_000, 1_000, 100])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.what == "closed":
        add_closed_forms(asked.sizes)
        return
    for seed, size, model in product(asked.seeds, asked.sizes, asked.models):
        decide(model, size, seed)


def decide(model: str, size: int, seed: int) -> None:
    """Choose the model's settings if that was not done, train it to the end, append its row."""
    if has(ROWS, model=model, size=size, seed=seed):
        return
    rate, unit = chosen(model)
    config = train_config(
        model, size, seed, rate, unit, RULE.steps(model), RULE.validations, f"{RUNS}/{model}-{size}-{seed}"
    )
    row, hours = train(config, load(size))
    row |= {"model": model, "size": size, "seed": seed, "learning_rate": rate, "unit": unit}
    append(ROWS, _trained_row(row, config, hours))
    print(f"finished {model} with {size} samples, seed {seed}: {row['error'] or row['metrics']['eval']}", flush=True)


def chosen(model: str) -> tuple[float, float]:
    """The unit with the least validation error at the first learning rate, then the learning rate with the least at it."""
    unit = min(RULE.units, key=lambda unit: short_error(model, RULE.rates[0], unit))
    rate = min(RULE.rates, key=lambda rate: short_error(model, rate, unit))
    if short_error(model, rate, unit) == float("inf"):
        raise ValueError(f"model={model!r} diverges at every rate of {RULE.rates}; add smaller ones")
    return rate, unit


def short_error(model: str, rate: float, unit: float) -> float:
    """The validation error of a short run, which is not shown the evaluation sets; infinite if it diverges."""
    key = {"model": model, "learning_rate": rate, "unit": unit}
    if not has(CHOICES, **key):
        data = load(RULE.choice_size)
        visible = replace(data, splits={name: data.splits[name] for name in ("train", "val")})
        steps, seed, out = (
            round(RULE.choice * RULE.steps(model)),
            RULE.choice_seed,
            f"{RUNS}/choice/{model}-{rate:g}-{unit:g}",
        )
        config = train_config(model, RULE.choice_size, seed, rate, unit, steps, RULE.choice_validations, out)
        row, hours = train(config, visible)
        validation = row["metrics"]["val"]["mse"] if row["error"] is None else None
        about = {"steps": row["steps"], "validation": validation, "error": row["error"], "core_hours": hours}
        append(CHOICES, key | about | {"command": command_line("train", config)} | made_by())
    found = next(rows(CHOICES, **key))["validation"]
    return float("inf") if found is None else found


def train_config(
    model: str, size: int, seed: int, rate: float, unit: float, steps: int, validations: int, out: str
) -> TrainConfig:
    """What `anygatr train` would be told."""
    return TrainConfig(
        data=_directory(size),
        model=model,
        **MODELS[model]["size"],
        size=size,
        seed=seed,
        steps=steps,
        batch=RULE.batch,
        lr=rate,
        lr_end=RULE.decay * rate,
        unit=unit,
        validate_every=max(1, steps // validations),
        patience=RULE.patience,
        threads=1,
        preset="paper",
        out=out,
    )


def add_closed_forms(sizes: list[int]) -> None:
    """Rows of the predictors that are not trained; the linear one is fitted to each number of training samples."""
    for name, predict in closed_forms.predictors().items():
        if not has(ROWS, model=name):
            append(ROWS, _closed_row(name, None, predict, load(RULE.choice_size), 0))
    for size in sizes:
        if not has(ROWS, model="linear", size=size):
            data = load(size)
            fitted = closed_forms.Linear.fit(data.split("train").subset(size))
            row = _closed_row("linear", size, fitted, data, len(fitted.coefficients))
            append(ROWS, row | {"coefficients": fitted.coefficients})


def load(size: int) -> Dataset:
    """The data whose first `size` training samples are used, made if they are not there; all sets share their samples."""
    directory = _directory(size)
    if not Path(directory).exists():
        train = 100_000 if size > 10_000 else 10_000
        anygatr(shlex.split(f"data nbody --out {directory} --train {train} {TESTS}"))
    return nbody.load(directory)


def _directory(size: int) -> str:
    return "data/nbody-large" if size > 10_000 else "data/nbody-figure"


def _trained_row(row: dict[str, Any], config: TrainConfig, hours: float) -> dict[str, Any]:
    said = ("model", "size", "seed", "learning_rate", "unit", "parameters", "steps", "best_step", "spikes", "equivariance")
    stopped = "failed" if row["error"] else "patience" if row["steps"] < RULE.steps(config.model) else "cap"
    about = {name: row[name] for name in said} | {"stopped": stopped, "error": row["error"], "core_hours": hours}
    measures = _measures(row["metrics"]) if row["metrics"] else {}
    command = {"command": command_line("train", config)}
    return about | measures | command | made_by() | {"config": row["config"], "curve": row["curve"]}


def _closed_row(
    name: str, size: int | None, predict: closed_forms.Displacement, data: Dataset, parameters: int
) -> dict[str, Any]:
    metrics = {split: closed_forms.errors(predict, data.split(split)) for split in ("val", "eval", FAR, MORE)}
    row = {"model": name, "size": size, "seed": None, "parameters": parameters, "stopped": "closed form"}
    command = "python -m benchmarks.nbody.decide closed" + (f" --sizes {size}" if size else "")
    return row | _measures(metrics) | {"command": command} | made_by()


def _measures(metrics: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Errors under the names of the rows; those on training samples, of trained models, are of at most a thousand."""
    training = {"training": metrics["train"]} if "train" in metrics else {}
    further = {"far_away": metrics[FAR], "more_bodies": metrics[MORE]}
    return training | {"validation": metrics["val"], "evaluation": metrics["eval"], "generalisation": further}


if __name__ == "__main__":
    sys.exit(main())
