"""Train every n-body model until it is done, all by one rule; one row per finished run in results/nbody-decided/rows.jsonl.

python -m benchmarks.nbody.decide closed
python -m benchmarks.nbody.decide train --models segnn E --sizes 10000 1000 --seeds 0

A run is a function of its configuration and seed in runs/decide; killed and started again it continues where it was.
The learning rate and the unit of length are chosen once per model, by short runs that see training and validation data only.
"""

import argparse
import shlex
import sys
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import torch

from anygatr.lab.cli import main as anygatr
from anygatr.lab.data.dataset import Dataset
from anygatr.lab.data.nbody import dataset as nbody
from benchmarks.harness.decision import Experiment, Rule
from benchmarks.harness.training import append, has, made_by
from benchmarks.nbody import closed_forms

ROWS = Path("results/nbody-decided/rows.jsonl")
FAR = "e3_generalization"
MORE = "object_generalization"
TESTS = "--val 500 --eval 1000 --generalization 500"
RULE = Rule(core_hours=0.5, batch=16, units=(1.0, 0.25))
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
        EXPERIMENT.decide(model, size, seed)


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


def _closed_row(
    name: str, size: int | None, predict: closed_forms.Displacement, data: Dataset, parameters: int
) -> dict[str, Any]:
    metrics = {split: closed_forms.errors(predict, data.split(split)) for split in ("val", "eval", FAR, MORE)}
    row = {"model": name, "size": size, "seed": None, "parameters": parameters, "stopped": "closed form"}
    command = "python -m benchmarks.nbody.decide closed" + (f" --sizes {size}" if size else "")
    return row | _measures(metrics) | {"command": command} | made_by()


def _measures(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Errors under the names of the rows; those on training samples, of trained models, are of at most a thousand."""
    training = {"training": metrics["train"]} if "train" in metrics else {}
    further = {"far_away": metrics[FAR], "more_bodies": metrics[MORE]}
    return training | {"validation": metrics["val"], "evaluation": metrics["eval"], "generalisation": further}


EXPERIMENT = Experiment(
    rule=RULE,
    models=MODELS,
    runs=Path("runs/decide"),
    rows=ROWS,
    choices=ROWS.with_name("choices.jsonl"),
    load=load,
    settings=lambda size: {"data": _directory(size), "preset": "paper"},
    measures=_measures,
)

if __name__ == "__main__":
    sys.exit(main())
