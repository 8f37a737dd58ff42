"""Time and memory of the solver on one core, each measurement in a fresh process, against its targets.

    python -m benchmarks.solver.times [--only C] [--out results/solver.json]
    python -m benchmarks.solver.times --past      # orders 5 and 6, past the paper's; results/solver-past.json

Imports are not timed. Targets are held against processor seconds of the single thread, which equal wall-clock seconds on an
idle machine and stay meaningful on a busy one; both are recorded. Peak memory is that of the whole process, torch included.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.files import RESULTS, ROOT, SNIPPETS, put, put_json
from benchmarks.harness.machine import machine
from benchmarks.harness.timing import load

GIB = 2**30


@dataclass(frozen=True)
class Task:
    """One measurement: the counts of an order, the explicit basis of one block, or which maps the geometric product builds.

    Targets are in seconds and bytes.
    """

    space: str
    group: str
    order: int
    block: tuple[int, ...] | None
    target_seconds: float | None
    target_bytes: int | None = None
    expressivity: bool = False

    @property
    def label(self) -> str:
        if self.expressivity:
            return "expressivity"
        return "counts" if self.block is None else f"block {''.join(map(str, self.block))}"


def tasks() -> list[Task]:
    targets = {
        (1, "E"): 0.5, (1, "P"): 0.5, (1, "C"): 0.5,
        (2, "E"): 5, (2, "P"): 5, (2, "C"): 5,
        (3, "C"): 15, (4, "P"): 10, (4, "C"): 60,
    }  # fmt: skip
    out = []
    for order in (1, 2, 3, 4):
        for space in ("E", "P", "C"):
            for group in ("E(3)", "SE(3)"):
                memory = GIB if (space, order, group) == ("C", 4, "E(3)") else None
                out.append(Task(space, group, order, None, targets.get((order, space)), memory))
    out.append(Task("P", "E(3)", 4, (2, 2, 2, 2, 2), 10))
    out.append(Task("C", "E(3)", 4, (2, 2, 2, 2, 2), 60, GIB))
    out += [Task(space, "E(3)", order, None, None, expressivity=True) for space in ("E", "P") for order in (2, 3, 4)]
    out += [Task("C", "E(3)", order, None, limit, expressivity=True) for order, limit in ((2, None), (3, 30), (4, 300))]
    return out


def past() -> list[Task]:
    """Orders past those that the paper looked at; for C at order 5 the solver takes more than eight minutes and 0.9 GB."""
    orders = {"E": (5, 6), "P": (5,)}
    spaces = [(space, order) for space, several in orders.items() for order in several]
    counts = [Task(space, "E(3)", order, None, None) for space, order in spaces]
    return counts + [Task(space, "E(3)", order, None, None, expressivity=True) for space, order in spaces]


def measure(task: Task) -> dict[str, float | int]:
    """Solve in this process; called in a fresh one."""
    import torch

    from anygatr import Algebra, euclidean, expressivity, linear_maps, multilinear_maps

    torch.set_num_threads(1)
    start, started = time.process_time(), time.perf_counter()
    algebra = {"E": Algebra(3), "P": Algebra(3, 0, 1), "C": Algebra(4, 1, 0, ("e1", "e2", "e3", "e+", "e-"))}[task.space]
    infinity = {"E": lambda: None, "P": lambda: -algebra["e0"], "C": lambda: algebra["e-"] - algebra["e+"]}[task.space]()
    symmetry = euclidean(algebra, infinity, mirrors=task.group == "E(3)")
    if task.expressivity:
        maps = expressivity(symmetry, task.order).rank
    else:
        basis = linear_maps(symmetry) if task.order == 1 else multilinear_maps(symmetry, task.order)
        maps = len(basis if task.block is None else basis.block(task.block))
    seconds, wall = time.process_time() - start, time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {"maps": maps, "seconds": round(seconds, 4), "wall_seconds": round(wall, 4), "peak_bytes": peak}


def run(task: Task) -> dict[str, Any]:
    """The measurement of a task, made by a new interpreter restricted to one thread."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.solver.times", "--measure", json.dumps(asdict(task))],
        cwd=ROOT, env={**os.environ, **threads}, check=True, capture_output=True, text=True,
    )  # fmt: skip
    found = json.loads(done.stdout.splitlines()[-1])
    in_time = task.target_seconds is None or found["seconds"] < task.target_seconds
    in_memory = task.target_bytes is None or found["peak_bytes"] < task.target_bytes
    return {**asdict(task), **found, "met": in_time and in_memory}


def page(rows: list[dict[str, Any]], chosen: list[Task], host: dict[str, object]) -> str:
    """The table of the documentation."""
    lines = ["| algebra | group | order | what | maps | seconds | target | peak MiB |", "|---|---|---|---|---|---|---|---|"]
    for task, row in zip(chosen, rows, strict=True):
        target = "" if task.target_seconds is None else f"{task.target_seconds:g}"
        memory = f"{row['peak_bytes'] / 2**20:.0f}"
        cells = (task.space, task.group, task.order, task.label, row["maps"], f"{row['seconds']:.2f}", target, memory)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    about = f"{host['cpu']}, one thread, torch {host['torch']}, load average {host['load_average']} while measuring"
    return "\n".join([*lines, "", f"Processor seconds. {about}.", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the solver against its targets, on one core.")
    parser.add_argument("--only", choices=["E", "P", "C"], help="one algebra instead of all three")
    parser.add_argument("--past", action="store_true", help="orders 5 and 6 instead of 1 to 4")
    parser.add_argument("--out", type=Path, help="default: results/solver.json, or solver-past.json")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        given = json.loads(args.measure)
        print(json.dumps(measure(Task(**{**given, "block": given["block"] and tuple(given["block"])}))))
        return

    from rich.box import SIMPLE
    from rich.console import Console
    from rich.progress import track
    from rich.table import Table

    console = Console(width=100)
    host = {**machine(), "threads": 1, "load_average": load()}
    chosen = [task for task in (past() if args.past else tasks()) if args.only in (None, task.space)]
    name = "solver-past" if args.past else "solver"
    out = args.out or RESULTS / f"{name}.json"
    rows = [run(task) for task in track(chosen, "solving", console=console, transient=True)]
    table = Table(
        "algebra", "group", "order", "what", "maps", "CPU s", "target", "wall s", "MiB", "limit", "met", box=SIMPLE
    )
    for task, row in zip(chosen, rows, strict=True):
        table.add_row(
            task.space, task.group, str(task.order), task.label, str(row["maps"]), f"{row['seconds']:.2f}",
            "" if task.target_seconds is None else f"{task.target_seconds:g}",
            f"{row['wall_seconds']:.2f}", f"{row['peak_bytes'] / 2**20:.0f}",
            "" if task.target_bytes is None else f"{task.target_bytes / 2**20:.0f}", "yes" if row["met"] else "NO",
        )  # fmt: skip
    console.print(table)
    put_json(out, {"machine": host, "rows": rows})
    if args.only is None:
        put(SNIPPETS / ("solver-past.md" if args.past else "solver-times.md"), page(rows, chosen, host))
    console.print(f"{host['cpu']}, one thread, load {host['load_average']}; rows in {out}")
    sys.exit(not all(row["met"] for row in rows))


if __name__ == "__main__":
    main()
