"""How C-GATr starts to learn: seeds, starts, norms and bfloat16 on n-body data, all at one small budget.

    python -m benchmarks.numerics.learning [--seeds 10] [--variants C C,init=kaiming] [--precisions 32 bf16] [--start near]

Appends a row for each finished run to results/numerics-learning.jsonl and prints a table; what has a row is not run again.
Models are chosen by validation error; the evaluation set is not looked at. Runs are in runs/numerics.
"""

import argparse
import json
import platform
import statistics
import subprocess
from itertools import product
from pathlib import Path
from typing import Any

import torch

from anygatr import lab
from anygatr.lab.cli import main as anygatr
from anygatr.nn.init import STARTS
from benchmarks.harness.files import RESULTS

ROWS = RESULTS / "numerics-learning.jsonl"
DATA = "data/nbody-learning"
BUDGET = {"steps": 800, "batch": 16, "lr": 3e-3, "lr_end": 1e-4, "blocks": 4, "mv": 8, "s": 32, "heads": 4, "size": 1000}
Row = dict[str, Any]


def rows() -> list[Row]:
    """The rows so far."""
    return [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []


def commit() -> str:
    """The commit that is measured."""
    return subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()


def train(variant: str, precision: str, seed: int, start: str = "paper") -> Row:
    """One run and its row."""
    out = f"runs/numerics/{variant}-{start}-{precision}-{seed}"
    settings = {
        "data": DATA,
        "model": variant,
        "precision": precision,
        "unit": 0.25,
        "threads": 1,
        "seed": seed,
        "init": start,
    }
    key = {"model": variant, "start": start, "precision": precision, "seed": seed, "commit": commit()}
    key |= {"machine": platform.processor()}
    try:
        found = lab.train(**settings, **BUDGET, validate_every=100, preset="figure", out=out)  # type: ignore[arg-type]
    except ValueError as error:
        return key | {"validation": None, "error": str(error)}
    return key | {"validation": found["metrics"]["val"]["mse"], "error": found["error"], "config": found["config"]}


def table(found: list[Row]) -> str:
    """Median over seeds, and the worst seed over it."""
    lines = ["| model | start | precision | seeds | median | worst / median |", "|---|---|---|---|---|---|"]
    for key in dict.fromkeys(map(_kind, found)):
        own = [row["validation"] for row in found if _kind(row) == key]
        errors = [float("inf") if error is None else error for error in own]
        middle = statistics.median(errors)
        lines.append(f"| {' | '.join(key)} | {len(errors)} | {middle:.5f} | {max(errors) / middle:.2f} |")
    return "\n".join(lines)


def _kind(row: Row) -> tuple[str, str, str]:
    """What seeds are compared within; the first rows had one start and do not say so."""
    return row["model"], row.get("start", "paper"), row["precision"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--variants", nargs="+", default=["C", "C,init=kaiming"])
    parser.add_argument("--precisions", nargs="+", default=["32", "bf16"])
    parser.add_argument("--start", default="paper", choices=STARTS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if not Path(DATA).exists():
        anygatr(
            ["data", "nbody", "--out", DATA, "--train", "1000", "--val", "500", "--eval", "100", "--generalization", "10"]
        )
    for seed, variant, precision in product(range(args.seeds), args.variants, args.precisions):
        if any((*_kind(row), row["seed"]) == (variant, args.start, precision, seed) for row in rows()):
            continue
        row = train(variant, precision, seed, args.start)
        with ROWS.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(f"finished {variant} {precision} seed {seed}: {row['validation']}", flush=True)
    print(table(rows()))


if __name__ == "__main__":
    main()
