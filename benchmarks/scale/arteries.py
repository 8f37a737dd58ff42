"""Error and cost of exact attention, anchors and pooled tokens on artery walls; rows in results/scale-arteries.jsonl.

python -m benchmarks.scale.arteries

Ten coarse walls of `anygatr data arteries`, one held out for validation and one for the test; all of their nodes, the same
steps and the same small iP for all, one thread. Processor seconds are of a training step on the first wall, the median of
three. It continues where it stopped; what has a row is not computed again.
"""

import statistics
import time
from itertools import product
from pathlib import Path
from typing import Any

import torch

from anygatr.lab.config.commands import TrainConfig
from anygatr.lab.config.recipe import Recipe
from anygatr.lab.data.arteries.config import ArteryConfig
from anygatr.lab.data.config import DataConfig
from anygatr.lab.data.dataset import Dataset
from anygatr.lab.data.make import make_data
from anygatr.lab.data.registry import spec_of
from anygatr.lab.training.rehearsal import Rehearsal
from benchmarks.harness.files import RESULTS
from benchmarks.harness.training import append, has, made_by, train

DATA, OUT = Path("data/scale-arteries.h5"), Path("runs/scale-arteries")
ROWS = RESULTS / "scale-arteries.jsonl"
COMMAND = "python -m benchmarks.scale.arteries"
MODELS = ("iP", "iP,large=anchors,anchors=64", "iP,large=pooled")
SIZES = {"blocks": 2, "mv": 4, "s": 16, "heads": 2}
STEPS, SEEDS, ARTERIES = 100, 1, 10


def main() -> None:
    """Make the data, train, and keep a row of each run."""
    if not DATA.exists():
        make_data(DataConfig(ArteryConfig(out=DATA, count=ARTERIES, resolution="coarse")))
    torch.set_num_threads(1)
    for seed, name in product(range(SEEDS), MODELS):
        key = {"model": name, "seed": seed}
        if has(ROWS, **key):
            continue
        steps = {"steps": STEPS, "validate_every": STEPS // 2, "batch": 1, "preset": "laptop"}
        out = str(OUT / f"{name}-{seed}")
        config = TrainConfig(data=str(DATA), wall="all", model=name, seed=seed, out=out, **steps, **SIZES)
        data = spec_of(config).load()
        row, _ = train(config, data)
        step = {"cpu_seconds": step_seconds(Recipe.from_json(row["config"]), data.split("train"))}
        append(ROWS, key | found(row, data.split("train")) | step | {"command": COMMAND} | made_by())


def found(row: dict[str, Any], train: Dataset) -> dict[str, Any]:
    """What a run has learned and what it took: errors of the wall that was held out, memory of a step."""
    test = row["metrics"].get("test") or row["metrics"]["eval"]
    return {
        "nodes": [int(train.counts.min()), int(train.counts.max())],
        "steps": row["steps"],
        "parameters": row["parameters"],
        "approximation": test["approximation"],
        "cosine": test["cosine"],
        "memory_mb": round(row["training_memory_mb"], 1),
    }


def step_seconds(recipe: Recipe, train: Dataset) -> float:
    """Processor seconds of a training step."""
    rehearsal, seconds = Rehearsal(recipe, train), []
    for _ in range(4):
        began = time.process_time()
        rehearsal.step()
        seconds.append(time.process_time() - began)
    return round(statistics.median(seconds[1:]), 4)


if __name__ == "__main__":
    main()
