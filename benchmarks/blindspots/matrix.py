"""What each algebra can do: train every geometry on every task of `tasks` for the same steps, and make one table of it.

python -m benchmarks.blindspots.matrix run                # what has no row yet; one thread, stopped and started at will
python -m benchmarks.blindspots.matrix run --tasks length --geometries iP C-
python -m benchmarks.blindspots.matrix page               # docs/what-each-algebra-can-do.md, from the rows

A geometry without mirrors is written with a minus: C-. Rows go to results/blindspots/rows.jsonl.
"""

import argparse
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

import anygatr
from anygatr import geometry, sight
from benchmarks.blindspots.page import write_page
from benchmarks.blindspots.tasks import TASKS
from benchmarks.blindspots.training import Budget, cell, follows_mirrors, mirror_bound
from benchmarks.harness.files import RESULTS

ROWS = RESULTS / "blindspots" / "rows.jsonl"
DEFAULTS = RESULTS / "blindspots" / "defaults.jsonl"
MIRRORED = ("E", "P", "iP", "C")
PROPER = tuple(f"{name}-" for name in MIRRORED)


class Cell(NamedTuple):
    """A task in one dimension, for one geometry."""

    task: str
    dim: int
    geometry: str


def cells() -> Iterator[Cell]:
    """All of them: the groups with mirrors and three dimensions first, five dimensions last."""
    for geometries, dim in ((MIRRORED, 3), (PROPER, 3), (MIRRORED, 2), (PROPER, 2), (MIRRORED, 5)):
        for name, task in TASKS.items():
            yield from (Cell(name, dim, geo) for geo in geometries if dim in task.dims)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """All rows of a file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def run_cell(asked: Cell, budget: Budget) -> dict[str, Any]:
    """What is said of a cell before training, then what came of it."""
    task, name, mirrors = TASKS[asked.task], asked.geometry.rstrip("-"), not asked.geometry.endswith("-")
    row: dict[str, Any] = asked._asdict()
    try:
        said = sight(geometry(name, asked.dim, mirrors), task.inputs, {"y": task.target})["y"]
        row["said"] = str(said)
    except ValueError as reason:
        return row | {"said": str(reason), "refused": str(reason)}
    with anygatr.backend("torch" if asked.dim > 3 else "auto"):
        if said.learnable and follows_mirrors(task, name, asked.dim, mirrors):
            row["bound"] = float(f"{mirror_bound(task, asked.dim):.3g}")
        return row | cell(task, name, asked.dim, mirrors, budget)


def run(tasks: list[str], geometries: list[str], budget: Budget) -> None:
    """Every cell that has no row; a row is one line, appended when it is known."""
    done = {(row["task"], row["dim"], row["geometry"]) for row in read_rows(ROWS)}
    ROWS.parent.mkdir(parents=True, exist_ok=True)
    for asked in cells():
        if asked in done or (tasks and asked.task not in tasks) or (geometries and asked.geometry not in geometries):
            continue
        row = run_cell(asked, budget)
        with ROWS.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())
        print(f"{asked.task:28}{asked.dim}  {asked.geometry:4}", row.get("error", row["said"]), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("run", "page"))
    parser.add_argument("--tasks", nargs="*", default=[], choices=TASKS)
    parser.add_argument("--geometries", nargs="*", default=[], choices=(*MIRRORED, *PROPER))
    parser.add_argument("--steps", type=int, default=Budget.steps)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.command == "run":
        run(arguments.tasks, arguments.geometries, Budget(steps=arguments.steps))
    write_page(read_rows(ROWS), list(cells()), read_rows(DEFAULTS))
