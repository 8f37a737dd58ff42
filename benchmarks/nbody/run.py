"""The n-body experiments of docs/reproduction.md by name; each continues from its rows.

python -m benchmarks.nbody.run figure
python -m benchmarks.nbody.run figure --models C iP --seeds 1 --minutes 30
"""

import argparse
import multiprocessing
import shlex
import signal
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from os import getpid, kill
from pathlib import Path
from typing import Any

import torch

from anygatr.lab.cli import main as anygatr
from anygatr.lab.config.json_files import write_json
from anygatr.lab.config.recipe import recipe
from anygatr.lab.data.nbody import dataset as nbody
from anygatr.lab.data.task import Task
from anygatr.lab.training.models import build, parameters
from anygatr.lab.training.rehearsal import step_seconds, training_memory_mb
from benchmarks.nbody.reproduction.experiments import EXPERIMENTS, FIGURE_DATA
from benchmarks.nbody.reproduction.results import PAPER_SIZE, keep_rows


def measure_cost(out: Path) -> None:
    """Time and memory of a step at the paper's size, each model in a process of its own: one alone may take gigabytes."""
    rows = []
    for model in ("E", "P", "iP", "C"):
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            rows.append(pool.submit(_cost, model).result())
        print(rows[-1], flush=True)
        write_json(out, rows)


def _cost(model: str) -> dict[str, Any]:
    torch.set_num_threads(1)
    made = replace(recipe("paper", model), origin="mass")
    train = nbody.load("data/nbody-figure").split("train").subset(made.batch)
    return {
        "model": model,
        "parameters": parameters(build(Task.of(train), made)),
        "seconds_per_step": step_seconds(made, train),
        "training_memory_mb": training_memory_mb(made, train),
    }


def main() -> None:
    """Make the data if they are not there, then run what has no row yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiments", nargs="+", choices=[*EXPERIMENTS, "cost"])
    parser.add_argument("--models", nargs="+", help="only these")
    parser.add_argument("--seeds", type=int, help="only the first of them")
    parser.add_argument("--minutes", type=float, help="stop after this long, at the end of a step")
    asked = parser.parse_args()
    if asked.minutes:
        timer = threading.Timer(60 * asked.minutes, lambda: kill(getpid(), signal.SIGINT))
        timer.daemon = True
        timer.start()
    for name in asked.experiments:
        if name == "cost":
            anygatr(shlex.split(FIGURE_DATA)[1:])
            measure_cost(Path(PAPER_SIZE))
            continue
        experiment = EXPERIMENTS[name]
        models = tuple(asked.models or experiment.models)
        try:
            for command in (experiment.data, experiment.part(models, asked.seeds or experiment.seeds)):
                print(command, flush=True)
                anygatr(shlex.split(command)[1:])
        finally:  # what is finished stays, however it ended
            keep_rows(Path(experiment.out))


if __name__ == "__main__":
    sys.exit(main())
