"""The demonstration: E, P, iP, C and a Transformer on a few clusters of stars and planets, in minutes."""

from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console

from anygatr.lab.budgets import step_seconds
from anygatr.lab.commands import CompareConfig, DemoConfig
from anygatr.lab.compare import compare, cores
from anygatr.lab.data import nbody
from anygatr.lab.data.nbody_config import NBodyConfig
from anygatr.lab.experiment import FILE
from anygatr.lab.state import read_json

MODELS = ("C", "iP", "P", "E", "transformer")  # the slowest first: cores are then busy to the end
MINUTES = 6.0
"""Training time on this machine, estimated from a few steps of each model; loading and validation come on top."""
MOST_STEPS = 2_000


def demo(config: DemoConfig) -> Path:
    """The command: make data, compare, write the report; returns its path. Started again, it continues."""
    out, console = Path(config.out), Console()
    sizes = {"train": 1_000, "val": 100, "eval": 200, "generalization": 100}
    console.print(f"16 bodies in up to four clusters: {sizes['train']} samples to learn from", highlight=False)
    nbody.generate(NBodyConfig(out=str(out / "data"), **sizes))  # type: ignore[arg-type]
    chosen = CompareConfig(data=str(out / "data"), models=MODELS, out=str(out / "compare"), preliminary=True)
    return compare(replace(chosen, steps=_steps(chosen, out)))


def _steps(config: CompareConfig, out: Path) -> int:
    """As many steps for each model as fit into the time; those of the comparison that is there already, if it is."""
    if (out / "compare" / FILE).exists():
        recipes = read_json(out / "compare" / FILE)["recipes"]
        return next(iter(recipes.values()))["steps"]
    torch.set_num_threads(1)
    train = nbody.load(out / "data").split("train")
    costs = [step_seconds(config.recipe(model, 0, None, "mass"), train) for model in config.models]
    # processes side by side share the memory bus: no model finishes before the slowest has had its turn
    seconds = max(sum(costs) / min(cores(), len(costs)), max(costs))
    return min(MOST_STEPS, max(100, int(60 * MINUTES / seconds) // 50 * 50))
