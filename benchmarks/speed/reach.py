"""What reachable grades save: multiply-adds counted on the programs, and interleaved training steps, narrowed over whole.

    python -m benchmarks.speed.reach [--repetitions 15] [--out results/reach.json] [--no-times]

Samples of 16 tokens, 16 multivector and 128 scalar channels, 8 heads; a training step is one of 64 samples, float32, one
thread, judged by processor time. The narrowed network is compared with the whole one first: its outputs are the same bits.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import copy
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anygatr.interface.model import Model, model
from benchmarks.harness.files import RESULTS, SNIPPETS, put, put_json
from benchmarks.harness.timing import interleaved, load, ratio

GEOMETRIES = ("E", "P", "iP", "C")
BLOCKS = (1, 2, 4, 10)
TIMED = (1, 4)  # blocks
SAMPLES, TOKENS = 64, 16
TASKS = {
    "points": {"position": "point"},
    "bodies": {"position": "point", "velocity": "vector", "mass": "scalar"},
}


def network(geometry: str, task: str, blocks: int) -> Model:
    torch.manual_seed(0)
    size = {"hidden": (16, 128), "blocks": blocks, "heads": 8}
    return model(geometry, TASKS[task], {"final": "point"}, **size, invariants=False, init="paper")


def count(geometry: str, task: str, blocks: int) -> dict[str, Any]:
    """The multiply-adds per token of a forward pass."""
    report = network(geometry, task, blocks).narrow(tokens=TOKENS)
    return {"geometry": geometry, "task": task, "blocks": blocks, "before": report.before, "after": report.after}


def times(geometry: str, task: str, blocks: int, repetitions: int) -> dict[str, Any]:
    """Seconds of a training step, both networks once per round."""
    whole = network(geometry, task, blocks)
    thin = copy.deepcopy(whole)
    thin.narrow()
    fields = {name: torch.randn(SAMPLES, TOKENS, *((3,) if kind != "scalar" else ())) for name, kind in TASKS[task].items()}
    with torch.no_grad():
        if not torch.equal(whole(**fields)["final"], thin(**fields)["final"]):
            raise RuntimeError(f"{geometry}, {task}, {blocks} blocks: the narrowed network predicts something else")
    calls = {"whole": lambda: step(whole, fields), "narrowed": lambda: step(thin, fields)}
    interleaved(calls, 2)  # builds the kernels, warms the caches
    found = interleaved(calls, repetitions)
    return {
        "geometry": geometry, "task": task, "blocks": blocks, "load": load(),
        "whole": found["whole"].cpu, "narrowed": found["narrowed"].cpu,
    }  # fmt: skip


def step(net: Model, fields: dict[str, Tensor]) -> None:
    net.zero_grad()
    net(**fields)["final"].square().mean().backward()


def page(stored: dict[str, Any]) -> str:
    """The table of the documentation."""
    lines = ["| from | geometry | " + " | ".join(f"{b} block{'s' * (b > 1)}" for b in BLOCKS) + " | "]
    lines[0] += " | ".join(f"step, {b} block{'s' * (b > 1)}" for b in TIMED) + " |"
    lines += ["|---|---|" + "---:|" * (len(BLOCKS) + len(TIMED))]
    for task, geometry in product(TASKS, GEOMETRIES):
        mine = {"task": task, "geometry": geometry}
        counts = {row["blocks"]: row for row in stored["counts"] if mine.items() <= row.items()}
        steps = {row["blocks"]: row for row in stored["times"] if mine.items() <= row.items()}
        cells = [f"{100 * (1 - counts[b]['after'] / counts[b]['before']):.1f} %" for b in BLOCKS]
        cells += [str(ratio(steps[b]["narrowed"], steps[b]["whole"])) if b in steps else "" for b in TIMED]
        lines += [f"| {', '.join(TASKS[task].values())} | {geometry} | {' | '.join(cells)} |"]
    busiest = max((row["load"] for row in stored["times"]), default=0.0)
    rounds = min((len(row["whole"]) for row in stored["times"]), default=0)
    return (
        "\n".join(lines) + f"\n\ntorch {stored['torch']}, {rounds} rounds, load up to {busiest} on {os.cpu_count()} cores.\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="What reachable grades save.")
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--out", type=Path, default=RESULTS / "reach.json")
    parser.add_argument("--times", action=argparse.BooleanOptionalAction, default=True, help="--no-times only counts")
    args = parser.parse_args()
    torch.set_num_threads(1)

    from rich.progress import track

    counts = [count(*which) for which in track(list(product(GEOMETRIES, TASKS, BLOCKS)), "counting")]
    timed = list(product(GEOMETRIES, TASKS, TIMED)) if args.times else []
    steps = [times(*which, args.repetitions) for which in track(timed, "timing")]
    stored = {"torch": torch.__version__, "counts": counts, "times": steps}
    put_json(args.out, stored)
    put(SNIPPETS / "reach.md", page(stored))
    print(page(stored) + f"rows in {args.out}")


if __name__ == "__main__":
    main()
