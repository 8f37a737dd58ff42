"""Turn a finished run into files to publish: weights as safetensors, what made them, and a model card.

python -m benchmarks.harness.release runs/arteries-decide-1000/iP-800-0 --out release/arteries-iP

What it writes is a run without its training state: `anygatr.load_run("release/arteries-iP")` loads it in one line, and
`anygatr predict release/arteries-iP --data wall.stl` needs nothing else.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import anygatr
from anygatr.lab.config.json_files import read_json
from anygatr.lab.report.wording import number
from anygatr.lab.training.run import CONFIG, WEIGHTS
from anygatr.lab.training.trained import TrainedRun
from benchmarks.harness.files import put
from benchmarks.nbody.reproduction.tables import table

CARD = "README.md"
LIMIT = 8.0
"""Megabytes that the weights may have."""
MEASURES = {"mse": "mean squared error", "median": "median", "approximation": "approximation error", "cosine": "cosine"}


def main() -> None:
    """Write the release of a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="directory of a finished run")
    parser.add_argument("--out", required=True, help="a directory that does not exist")
    parser.add_argument("--about", default="", help="a sentence on the data, for the card")
    asked = parser.parse_args()
    print(release(asked.run, asked.out, asked.about))


def release(directory: str | Path, out: str | Path, about: str = "") -> Path:
    """The directory with the weights, the configuration and the card of a finished run."""
    run = anygatr.load_run(directory)
    if run.row is None or run.row["status"] != "ok":
        raise ValueError(f"run={str(directory)!r} is not finished; continue it: {run.run.command}")
    if Path(run.run.spec.path).is_absolute():
        raise ValueError(
            f"run={str(directory)!r} names its data by the absolute path of this machine; train it with a relative one"
        )
    size = (Path(directory) / WEIGHTS).stat().st_size / 1e6
    if size > LIMIT:
        raise ValueError(
            f"run={str(directory)!r} has {size:.1f} MB of weights; release at most {LIMIT:g} MB, a smaller network"
        )
    path = run.save(out)
    put(path / CARD, card(run, path.name, about))
    return path


def card(run: TrainedRun, name: str, about: str = "") -> str:
    """The model card: data, budget, errors, units, how to load it, licence; all numbers are those of the run."""
    row, recipe, task = run.row or {}, run.run.recipe, run.run.task
    record = read_json(run.run.directory / CONFIG)
    units = run.run.spec.kind.units
    fields = [
        (field, kind, units.get(field, "that of the data"), role)
        for role, side in (("input", task.inputs), ("predicted", task.targets))
        for field, kind in side.items()
    ]
    seen = [(field, found["what"], number(found["low"]), number(found["high"])) for field, found in run.run.range.items()]
    arguments = ", ".join(f"{field}=..." for field in task.inputs)
    return f"""# {name}

{recipe.model}, {recipe.blocks} blocks of {recipe.mv} multivector and {recipe.s} scalar channels,
{row["parameters"]:,} parameters.
{about}

```python
import anygatr

run = anygatr.load_run("{name}")
run.predict({arguments})
```

On the command line: `anygatr predict {name} --data new-file`.

## Fields

{table(("field", "kind", "unit", ""), fields)}

Seen in training; predictions outside are extrapolations:

{table(("input", "what", "from", "to"), seen)}

## Errors

In the units of the data, on each set of samples:

{_errors(row["metrics"])}

Where a sample is moved first, the prediction changes by {number(row["equivariance"])} of itself beyond that, in float32.

## Training

{row["steps"]:,} steps of {recipe.batch}, learning rate {recipe.lr:g} to {recipe.lr_end:g}, seed {recipe.seed},
{recipe.size or "all"} training samples; the weights are those of step {row["best_step"]:,}, the best on validation samples.
{number(row["seconds"] / 3600)} hours on torch {record["environment"].get("torch")}, {record["environment"].get("machine")}.

```bash
{record["command"]}
```

Fingerprint of the training samples: `{record["fingerprint"]}`.

## Licence

MIT, as AnyGATr {anygatr.__version__}.
"""


def _errors(metrics: dict[str, Any]) -> str:
    """A line for each set of samples."""
    shown = [key for key in MEASURES if any(key in found for found in metrics.values())]
    rows = [(split, *(number(found[key]) if key in found else "–" for key in shown)) for split, found in metrics.items()]
    return table(("samples", *(MEASURES[key] for key in shown)), rows)


if __name__ == "__main__":
    sys.exit(main())
