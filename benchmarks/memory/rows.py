"""Measure the memory of a training step for rows that lack it: older ones hold the peak of the whole process instead.

python -m benchmarks.memory.rows results/arteries --data data/arteries.h5

Memory depends on shapes, not on numbers: for samples of equally many tokens random ones stand in, and no data are needed.
"""

import argparse
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from anygatr.lab.config.json_files import read_json, write_json
from anygatr.lab.config.recipe import Recipe, recipe
from anygatr.lab.data.dataset import Dataset
from anygatr.lab.data.kinds import columns
from anygatr.lab.data.registry import stored_spec
from anygatr.lab.report.row_files import PACKED, pack_rows, read_rows, row_path
from anygatr.lab.training.rehearsal import training_memory_mb

KEY, OLD = "training_memory_mb", "peak_memory_mb"
BODIES = {
    "dim": 3,
    "tokens": 16,
    "fields": {"position": "point", "velocity": "vector", "mass": "scalar"},
    "targets": {"final": "point"},
    "per": "token",
}
"""The n-body task as the description of an experiment states it."""


def complete(directory: Path, data: str | None = None, again: bool = False) -> int:
    """Give every row of a comparison that lacks it its memory, and return how many these were.

    `data` says where its data are now; `again` measures all rows, for kernels that have changed.
    """
    rows, problems = read_rows(directory)
    if problems:
        raise ValueError(f"{directory}: {problems[0]}")
    lacking = {place: row for place, row in rows.items() if again or KEY not in row}
    if not lacking:
        return 0
    asked = read_json(directory / "experiment.json")
    spec = stored_spec(asked["source"]).at(data)
    is_arteries = spec.kind.name == "arteries"
    if not Path(spec.path).exists() and is_arteries:
        raise ValueError(f"data={spec.path!r} does not exist; say where the arteries of {directory} are with --data")
    walls = spec.load().split("train") if is_arteries else None

    @cache
    def measured(made: Recipe) -> float:
        return training_memory_mb(made, walls or stand_in(asked["data"], min(made.batch, made.size or made.batch)))

    for place, row in lacking.items():
        row.pop(OLD, None)
        made = replace(Recipe.from_json(row["config"]), seed=0)
        path = row_path(directory, row) if place.startswith(PACKED) else directory / place
        write_json(path, row | {KEY: measured(made) if row["status"] == "ok" else None})
    if (directory / PACKED).exists():
        pack_rows(directory)
    return len(lacking)


def complete_paper_size(path: Path) -> None:
    """The same for the table of costs at the paper's size."""
    rows = read_json(path)
    if all(KEY in row for row in rows):
        return
    for row in rows:
        row.pop(OLD, None)
        made = replace(recipe("paper", row["model"]), origin="mass")
        row[KEY] = training_memory_mb(made, stand_in(BODIES, made.batch))
    write_json(path, rows)


def stand_in(described: dict[str, Any], samples: int) -> Dataset:
    """Random samples with the fields and the number of tokens of an experiment's data."""
    kinds = described["fields"] | described["targets"]
    per_sample = described["targets"] if described["per"] == "sample" else {}
    fields = {
        name: torch.rand(samples, *(() if name in per_sample else (described["tokens"],)), columns(kind, described["dim"]))
        for name, kind in kinds.items()
    }
    # float64, as data sets are
    fields = {name: (x.squeeze(-1) if x.shape[-1] == 1 else x).double() for name, x in fields.items()}
    return Dataset(fields, kinds, tuple(described["targets"]), described["dim"], described["per"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directories", nargs="+", type=Path, help="comparisons: directories with experiment.json and rows")
    parser.add_argument("--data", help="where the data are, if not where they were")
    parser.add_argument("--again", action="store_true", help="measure rows that have it too: the kernels have changed")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    for directory in asked.directories:
        print(f"{directory}: {complete(directory, asked.data, asked.again)} rows measured")


if __name__ == "__main__":
    main()
