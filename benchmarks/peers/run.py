"""Train our models on the peers' benchmarks with the samples, steps and batches of their tables; rows in results/peers.

python -m benchmarks.peers.run --tasks o3 o5 hulls --models E --seeds 0 1 2

A run is a function of its configuration and seed in runs/peers; killed and started again it continues where it was.
The learning rate is chosen for each task, size and model by runs that see training and validation data only.
"""

import argparse
import shlex
import sys
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import torch

from anygatr.lab.cli import main as anygatr
from anygatr.lab.config.commands import TrainConfig, command_line
from anygatr.lab.data.dataset import Dataset
from anygatr.lab.data.registry import spec_of
from benchmarks.harness.training import append, has, made_by, rows, train

RUNS = Path("runs/peers")
ROWS = Path("results/peers/rows.jsonl")
CHOICES = Path("results/peers/choices.jsonl")
RATES = (3e-3, 1e-3)
"""Learning rates to choose from."""
DECAY = 0.01
"""The last learning rate over the first."""
VALIDATIONS = 10
"""In a run, evenly; the weights of the best are kept."""
CHOICE_SEED = 1_000
"""Of the runs that choose the learning rate."""


@dataclass(frozen=True)
class Task:
    """A benchmark: its data, the network for it, and steps and batch by number of training samples."""

    train: int
    network: dict[str, int]
    budgets: dict[int, tuple[int, int]]


SCALARS = {"blocks": 2, "mv": 8, "s": 128, "heads": 4}
CLOUDS = {"blocks": 2, "mv": 8, "s": 64, "heads": 4}
TASKS = {
    "o3": Task(50_000, {"blocks": 2, "mv": 8, "s": 32, "heads": 4}, {50_000: (512, 128)}),
    "o5": Task(30_000, SCALARS, {30: (1_000, 15), 300: (1_000, 15), 3_000: (300, 15), 30_000: (3_000, 15)}),
    "hulls": Task(16_384, CLOUDS, {256: (512, 128), 1_024: (1_024, 128), 4_096: (2_048, 128), 16_384: (2_048, 256)}),
    "charged": Task(3_000, {"blocks": 4, "mv": 16, "s": 64, "heads": 4}, {3_000: (5_000, 100)}),
}


def main() -> None:
    """Make the rows that are not there yet, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--models", nargs="+", default=["E"])
    parser.add_argument("--sizes", nargs="+", type=int, help="default: all of the task")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    asked = parser.parse_args()
    torch.set_num_threads(1)
    for task, model in product(asked.tasks, asked.models):
        sizes = [size for size in TASKS[task].budgets if asked.sizes is None or size in asked.sizes]
        for size, seed in product(sizes, asked.seeds):
            finish(task, model, size, seed)


def finish(task: str, model: str, size: int, seed: int) -> None:
    """Choose the learning rate if that was not done, train, append the row."""
    if has(ROWS, task=task, model=model, size=size, seed=seed):
        return
    rate = min(RATES, key=lambda rate: choice_error(task, model, size, rate))
    config = train_config(task, model, size, seed, rate, f"{RUNS}/{task}-{model}-{size}-{seed}")
    row, hours = train(config, load(task))
    about = {"task": task, "model": model, "size": size, "seed": seed, "learning_rate": rate, "batch": config.batch}
    about |= {name: row[name] for name in ("steps", "best_step", "parameters", "equivariance", "error")}
    measures = {"validation": row["metrics"]["val"], "evaluation": row["metrics"]["eval"]} if row["metrics"] else {}
    kept = {"core_hours": hours, "command": command_line("train", config)} | made_by() | {"config": row["config"]}
    append(ROWS, about | measures | kept | {"curve": row["curve"]})
    print(f"finished {task} {model} {size} seed {seed}: {row['error'] or row['metrics']['eval']['mse']}", flush=True)


def choice_error(task: str, model: str, size: int, rate: float) -> float:
    """The validation error of a run that is not shown the evaluation set; infinite if it diverges."""
    key = {"task": task, "model": model, "size": size, "learning_rate": rate}
    if not has(CHOICES, **key):
        data = load(task)
        visible = replace(data, splits={name: data.splits[name] for name in ("train", "val")})
        out = f"{RUNS}/choice/{task}-{model}-{size}-{rate:g}"
        config = train_config(task, model, size, CHOICE_SEED, rate, out)
        row, hours = train(config, visible)
        validation = row["metrics"]["val"]["mse"] if row["error"] is None else None
        about = {"validation": validation, "error": row["error"], "core_hours": hours}
        append(CHOICES, key | about | {"command": command_line("train", config)} | made_by())
    found = next(rows(CHOICES, **key))["validation"]
    return float("inf") if found is None else found


def train_config(task: str, model: str, size: int, seed: int, rate: float, out: str) -> TrainConfig:
    """What `anygatr train` would be told."""
    steps, batch = TASKS[task].budgets[size]
    return TrainConfig(
        data=f"data/{task}",
        model=model,
        **TASKS[task].network,
        size=size,
        seed=seed,
        steps=steps,
        batch=batch,
        lr=rate,
        lr_end=DECAY * rate,
        validate_every=steps // VALIDATIONS,
        patience=0,
        threads=1,
        preset="laptop",
        out=out,
    )


def load(task: str) -> Dataset:
    """The data, made if they are not there."""
    directory = f"data/{task}"
    if not Path(directory).exists():
        anygatr(shlex.split(f"data {task} --out {directory} --train {TASKS[task].train}"))
    return spec_of(TrainConfig(data=directory)).load()


if __name__ == "__main__":
    sys.exit(main())
