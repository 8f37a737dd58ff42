"""The demonstration: E, P, iP, C and a Transformer on one or two clusters of stars and planets, in minutes."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from anygatr.lab.comparison.compare import compare, cores
from anygatr.lab.comparison.plan import FILE
from anygatr.lab.config.commands import CompareConfig, DemoConfig
from anygatr.lab.config.json_files import read_json
from anygatr.lab.data.nbody import dataset as nbody
from anygatr.lab.data.nbody.config import NBodyConfig
from anygatr.lab.system.terminal import Terminal
from anygatr.lab.training.rehearsal import step_seconds

# Few bodies in clusters close together: E-GATr then finds within minutes which star a planet belongs to. In the paper's
# sixteen bodies, scattered five times as far, it takes longer, and its error stays with that of P-GATr for as long.
BODIES = NBodyConfig(bodies=8, max_clusters=2, cluster_position_std=1.0, train=3_000, val=200, eval=400, generalization=200)
MODELS = ("C", "iP", "P", "E", "transformer")  # the slowest first: cores are then busy to the end
MINUTES = 6.0
"""Training time on this machine, estimated from a few steps of each model; loading and validation come on top."""
MOST_STEPS = 3_000


def demo(config: DemoConfig) -> Path:
    """The command: make data, compare, write the report; returns its path. Started again, it continues."""
    out, console = Path(config.out), Terminal()
    bodies = replace(BODIES, out=str(out / "data"))
    console.print(
        f"{bodies.bodies} bodies in one or two clusters, {bodies.train} samples to learn from: about {MINUTES:g} minutes",
        highlight=False,
    )
    nbody.generate(bodies)
    chosen = CompareConfig(data=str(out / "data"), models=MODELS, out=str(out / "compare"), preliminary=True)
    return compare(replace(chosen, steps=_steps(chosen, out)))


def makespan(costs: Sequence[float], workers: int) -> float:
    """When the last of some jobs is done, each started in turn by the first worker to be free."""
    ends = [0.0] * workers
    for cost in costs:
        ends[ends.index(min(ends))] += cost
    return max(ends)


def _steps(config: CompareConfig, out: Path) -> int:
    """As many steps for each model as fit into the time; those of the comparison that is there already, if it is."""
    if (out / "compare" / FILE).exists():
        recipes = read_json(out / "compare" / FILE, {"recipes": {str: {"steps": int}}})["recipes"]
        return next(iter(recipes.values()))["steps"]
    torch.set_num_threads(1)
    train = nbody.load(out / "data").split("train")
    costs = [step_seconds(config.recipe(model, 0, None, "mass"), train) for model in config.models]
    return min(MOST_STEPS, max(100, int(60 * MINUTES / makespan(costs, cores())) // 50 * 50))
