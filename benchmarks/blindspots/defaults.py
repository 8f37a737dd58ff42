"""Old against new defaults on the demonstration's n-body data, at equal steps: with and without invariants, both starts.

python -m benchmarks.blindspots.defaults --steps 500 --seeds 3

Rows go to results/blindspots/defaults.jsonl; what has a row is not trained again.
"""

import argparse
import json
import tempfile
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import fmean

import torch

from anygatr.lab.comparison.demo import BODIES
from anygatr.lab.config.commands import TrainConfig
from anygatr.lab.data.nbody import dataset as nbody
from anygatr.lab.data.registry import spec_of
from anygatr.lab.training.run import TrainingRun
from anygatr.lab.training.train import fit
from benchmarks.harness.files import RESULTS

ROWS = RESULTS / "blindspots" / "defaults.jsonl"
VARIANTS = {
    "faithful": {"invariants": False, "init": "paper"},
    "invariants": {"invariants": True, "init": "paper"},
    "balanced": {"invariants": False, "init": "balanced"},
    "default": {"invariants": True, "init": "balanced"},
}


def train(model: str, variant: str, seed: int, steps: int, data: str, out: str) -> float:
    """The evaluation error of a run."""
    config = TrainConfig(data=data, model=model, out=out, steps=steps, seed=seed, **VARIANTS[variant])  # type: ignore[arg-type]
    spec = spec_of(config, config.normalise, config.unit)
    loaded = spec.load()
    recipe = config.recipe(config.model, config.seed, config.size, spec.origin(config.origin), spec.kind.preset)
    return float(fit(TrainingRun.start(Path(out), spec, loaded, recipe, "defaults"), loaded)["metrics"]["eval"]["mse"])


def main(steps: int, seeds: int, models: list[str], variants: list[str]) -> None:
    """Every run without a row, then the means."""
    torch.set_num_threads(1)
    ROWS.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []
    done = {(row["model"], row["variant"], row["seed"], row["steps"]) for row in rows}
    with tempfile.TemporaryDirectory() as scratch:
        nbody.generate(replace(BODIES, out=f"{scratch}/data"))
        for seed, model, variant in product(range(seeds), models, variants):
            if (model, variant, seed, steps) in done:
                continue
            error = train(model, variant, seed, steps, f"{scratch}/data", f"{scratch}/{model}-{variant}-{seed}")
            rows.append({"model": model, "variant": variant, "seed": seed, "steps": steps, "error": float(f"{error:.4g}")})
            with ROWS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(rows[-1]) + "\n")
            print(rows[-1], flush=True)
    for model in models:
        means = {
            v: [r["error"] for r in rows if (r["model"], r["variant"], r["steps"]) == (model, v, steps)] for v in VARIANTS
        }
        print(f"{model:4}", *(f"{v} {fmean(errors):.4g} ({len(errors)})" for v, errors in means.items() if errors), sep="  ")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--models", nargs="+", default=["E", "P", "iP", "C"])
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS)
    arguments = parser.parse_args()
    main(arguments.steps, arguments.seeds, arguments.models, arguments.variants)
