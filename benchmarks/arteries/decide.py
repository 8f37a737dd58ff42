"""Train every artery model until it is done, all by one rule; one row per run in results/arteries-decided/rows.jsonl.

python -m benchmarks.arteries.decide data --arteries 1000      # makes them, or continues
python -m benchmarks.arteries.decide train --models iP C E --sizes 800 200 --seeds 0

A run is a function of its configuration and seed in runs/arteries-decide; killed and started again it continues where it
was. The learning rate and the unit of length are chosen once per model, by short runs that see training and validation data
only. A tenth of the arteries are to validate and a tenth to test, the same ones whatever the size.
"""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import torch

from anygatr.lab.data.arteries.config import ArteryConfig
from anygatr.lab.data.arteries.fields import load
from anygatr.lab.data.arteries.names import FULL
from anygatr.lab.data.config import DataConfig
from anygatr.lab.data.dataset import Dataset
from anygatr.lab.data.make import make_data
from benchmarks.harness.decision import Experiment, Rule

ROWS = Path("results/arteries-decided/rows.jsonl")
ARTERIES = 1_000
TOLERANCE = 1e-5
"""Of the flow: its error of discretisation is far above that, and 1e-8 takes one more of six to nine nonlinear steps."""
RULE = Rule(core_hours=1.0, batch=1, validations=25, patience=8, units=(0.125, 0.25), choice_validations=2)
GATR = {"blocks": 6, "mv": 16, "s": 64, "heads": 4}
MODELS: dict[str, dict[str, Any]] = {
    "iP": {"milliseconds": 90, "size": GATR},
    "C": {"milliseconds": 160, "size": GATR},
    "E": {"milliseconds": 60, "size": GATR},
    "P": {"milliseconds": 80, "size": GATR},
    "transformer": {"milliseconds": 70, "size": {"blocks": 10, "mv": 0, "s": 160, "heads": 4}},
    "pointnet2": {"milliseconds": 20, "size": {"blocks": 5, "mv": 0, "s": 32, "heads": 1}},
    "gem_cnn": {"milliseconds": 280, "size": {"blocks": 2, "mv": 0, "s": 26, "heads": 1}},
}
"""Sizes, and the processor time of one step on one core with one artery, which only sets the number of steps.

The baselines are as published; the GATrs have six blocks of 16 + 64 channels instead of ten of 8 + 32.
"""


def main() -> None:
    """Make the rows that are not there yet, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["data", "train"])
    parser.add_argument("--arteries", type=int, default=ARTERIES, help="in the file that is made; other numbers, other rows")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--sizes", nargs="+", type=int, help="training arteries; default: eight tenths of all")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    asked = parser.parse_args()
    torch.set_num_threads(1)
    make(asked.arteries)
    if asked.what == "data":
        return
    found = experiment(asked.arteries)
    for seed, size, model in product(asked.seeds, asked.sizes or [found.rule.choice_size], asked.models):
        found.decide(model, size, seed)


def make(arteries: int) -> None:
    """The file of so many arteries, if it is not there; a run that was stopped continues with those it has."""
    if not _path(arteries).exists():
        config = ArteryConfig(out=_path(arteries), count=arteries, resolution="coarse", tolerance=TOLERANCE)
        make_data(DataConfig(config))


def experiment(arteries: int) -> Experiment:
    """The experiment on a file of so many arteries, of which eight tenths are to train."""
    data = _load(_path(arteries))
    return Experiment(
        rule=replace(RULE, choice_size=len(data.splits["train"])),
        models=MODELS,
        runs=Path(f"runs/arteries-decide-{arteries}"),
        rows=ROWS,
        choices=ROWS.with_name("choices.jsonl"),
        load=lambda size: data,
        settings=lambda size: {"data": str(_path(arteries)), "preset": "arteries"},
        measures=_measures,
        about={"arteries": arteries},
    )


def _measures(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Errors under the names of the rows; those of full resolution are of the test arteries with all their nodes."""
    names = {"training": "train", "validation": "val", "evaluation": "eval", "full_resolution": FULL}
    return {name: metrics[split] for name, split in names.items() if split in metrics}


def _path(arteries: int) -> Path:
    return Path(f"data/arteries-{arteries}.h5")


@lru_cache(maxsize=1)
def _load(path: Path) -> Dataset:
    return load(path, "corners")


if __name__ == "__main__":
    sys.exit(main())
