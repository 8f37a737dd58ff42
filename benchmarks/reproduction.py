"""Write docs/reproduction.md and its figures from the committed rows under results/; no measured number is typed by hand.

python benchmarks/reproduction.py
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from statistics import median
from typing import Any

from nbody_experiments import EXPERIMENTS, QUICK, UNIT, Experiment, quick_commands
from reproduction_claims import MATCH, Rows, claims, compare, name, of, rows_of
from reproduction_figures import ablations, error_against_data
from reproduction_memory import complete, complete_paper_size

from anygatr.lab.report.rows import Row, load
from anygatr.lab.report.spread import spread
from anygatr.lab.report.wording import count, measured, number, times

ROOT = Path(__file__).resolve().parent.parent
FIGURE, VARIANTS = "img/reproduction-nbody.svg", "img/reproduction-ablations.svg"
PAPER_SIZE = "results/nbody-paper-size.json"
PUBLISHED = {"iP": 0.0005, "segnn": 0.0006, "se3_transformer": 0.0025, "transformer": 0.0050}
"""Evaluation errors in the README of official GATr, to the digits given there."""
OFFICIAL = {"eval": 0.000548, "val": 0.000223}
"""What official GATr 1.4.3 reached on the very files of the quick regression."""


@dataclass(frozen=True)
class Results:
    """The rows of every experiment by name, and of the quick regression by model."""

    rows: dict[str, Rows]
    quick: dict[str, dict[str, Any]]
    cost: list[dict[str, Any]]
    trivial: float
    """The error of a model that learned nothing."""

    @classmethod
    def read(cls, root: Path) -> "Results":
        """What is there; an experiment that was not started has no rows."""
        found, trivial = {}, []
        for key, experiment in EXPERIMENTS.items():
            directory = root / experiment.out
            loaded = load(directory) if (directory / "experiment.json").exists() else None
            if loaded is not None and loaded.problems:
                raise ValueError(f"{directory}: {loaded.problems[0]}")
            trivial += [loaded.trivial] if loaded is not None and loaded.trivial is not None else []
            found[key] = tuple(row for row in rows_of(loaded) if row.model in experiment.models)
        quick = {path.stem: json.loads(path.read_text()) for path in sorted((root / "results/quick").glob("*.json"))}
        cost = root / PAPER_SIZE
        return cls(found, quick, json.loads(cost.read_text()) if cost.exists() else [], min(trivial, default=float("inf")))


def main() -> None:
    """Write the page and draw its figures, once every row has its memory."""
    for experiment in EXPERIMENTS.values():
        complete(ROOT / experiment.out)
    if (ROOT / PAPER_SIZE).exists():
        complete_paper_size(ROOT / PAPER_SIZE)
    results = Results.read(ROOT)
    docs = ROOT / "docs"
    (docs / "img").mkdir(exist_ok=True)
    error_against_data(results.rows["figure"], EXPERIMENTS["figure"].models, docs / FIGURE)
    ablations(results.rows["variants"], EXPERIMENTS["variants"].models, docs / VARIANTS)
    temporary = docs / ".reproduction.md"
    temporary.write_text(page(results))
    temporary.replace(docs / "reproduction.md")
    print(docs / "reproduction.md")


def page(results: Results) -> str:
    """The whole page."""
    parts = [
        _head(),
        _claims(results),
        _figure(results),
        _quick(results),
        _ablations(results),
        _past(results),
        _made(results),
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _head() -> str:
    return """
# The paper's n-body results, reproduced

Every measured number on this page is computed from the rows committed under `results/` by
`python benchmarks/reproduction.py`, the verdicts included. The budget is small, minutes of one core per run and far fewer
steps than the paper's: agreement says that the effect is already visible here, disagreement that it is not visible *at this
budget*. What is unfinished is said to be.
"""


def _claims(results: Results) -> str:
    judged = claims(results.rows, results.trivial)
    rows = [
        (c.says, "<br>".join(map(str, (*c.comparisons, *c.only_if))), f"**{c.verdict}**", f"[{c.experiment}](#commands)")
        for c in judged
    ]
    return f"""
## What the paper says, what we measured

A factor such as "E-GATr over C-GATr: 1.5× [1.2, 1.9]" divides errors of runs with the same training samples and the same
seed; it is the geometric mean of these quotients with its 95 % interval. A claim is decided by where these intervals lie,
from three quotients on; nothing corrects for how many claims there are. Being ahead with few samples is called sample
efficiency only where the other model's error does fall with more of them, by more than {MATCH}×: where it does not, the
budget and not the data limits it, and the factor tells who learns faster. An error in bfloat16 that is larger than that of a
model that learned nothing counts as that.

{_table(("the paper says", "measured", "verdict", "experiment"), rows)}
"""


def _figure(results: Results) -> str:
    experiment, rows = EXPERIMENTS["figure"], results.rows["figure"]
    errors = [
        (name(model), *(_measured(of(rows, model, (size,)), "eval", "mse") for size in experiment.sizes))
        for model in experiment.models
    ]
    return f"""
## Error against training samples

Several clusters, 16 bodies, one small budget for all: {_steps(rows)}, batches of 16 and one schedule of learning rates,
which was not tuned per model; where steps are fewer, they cost most, and all runs take minutes. The GATrs have 4 blocks, 8
multivector and 32 scalar channels, the Transformer 4 blocks of 128 channels; SE(3)-Transformer and SEGNN have their
published sizes, SEGNN on the complete graph. Unlike the paper's, all models see lengths in a unit of {UNIT}:
[why](#the-unit-of-length). {_progress(experiment, rows)}

![Squared error against training samples for all models]({FIGURE})

Mean squared error on the evaluation set; in brackets the range over seeds:

{_table(("model", *(f"{size:,}" for size in experiment.sizes)), errors)}

The same with medians per sample, which close encounters do not dominate:

{
        _table(
            ("model", *(f"{size:,}" for size in experiment.sizes)),
            [
                (name(m), *(_measured(of(rows, m, (size,)), "eval", "median") for size in experiment.sizes))
                for m in experiment.models
            ],
        )
    }

What a run costs, and what happens to its error on systems 200 further away and on systems with two more bodies (over the
evaluation error; 1 is no change). Memory is the most that weights, gradients, moments, activations and temporaries take at
once in a step; it is counted by the allocator. Times are medians over runs, by the clock on a machine shared with other work
and with runs that were paused now and then, so small differences between them mean little:

{
        _table(
            ("model", "parameters", "ms per step", "memory MB", "seconds per run", "far away", "more bodies"),
            [_cost(m, of(rows, m)) for m in experiment.models if of(rows, m)],
        )
    }

{_paper_size(results)}

{_short(results)}
"""


def _short(results: Results) -> str:
    """What a part of the steps reaches."""
    experiment, rows = EXPERIMENTS["short"], results.rows["short"]
    heads = ("model", *(f"{size:,}" for size in experiment.sizes), "over the errors above")
    lines = []
    for m in experiment.models:
        errors = (_measured(of(rows, m, (size,)), "eval", "mse") for size in experiment.sizes)
        ratio = compare(of(rows, m), of(results.rows["figure"], m), "").factor
        lines.append((name(m), *errors, times(ratio) if ratio else "–"))
    return f"""### Fewer steps

The same with {_steps(rows)}: mean squared errors, and how many times those of the longer runs they are.
{_progress(experiment, rows)}

{_table(heads, lines)}"""


def _steps(rows: Rows) -> str:
    """How many steps the models were trained for, the exceptions named."""
    by_model = {row.model: int(row.value("steps") or 0) for row in rows if row.is_ok}
    most = max(by_model.values(), default=0)
    fewer = [f"{name(model)} {steps}" for model, steps in by_model.items() if steps < most]
    return f"{most} steps" + (f" ({', '.join(fewer)})" if fewer else "")


def _cost(model: str, rows: Rows) -> tuple[str, ...]:
    values = [_values(rows, key) for key in ("parameters", "milliseconds_per_step", "training_memory_mb", "seconds")]
    moved = [_ratio(rows, split) for split in ("e3_generalization", "object_generalization")]
    return (name(model), *values, *moved)


def _relative(row: Row, split: str) -> float | None:
    there, here = row.metric(split), row.metric("eval")
    return there / here if there is not None and here else None


def _ratio(rows: Rows, split: str) -> str:
    found = spread(_relative(row, split) for row in rows if row.is_ok)
    return f"{number(found.mean, 2)}×" if found else "–"


def _paper_size(results: Results) -> str:
    if not results.cost:
        return "The cost at the paper's size has not been measured yet."
    rows = [
        (name(row["model"]), f"{row['parameters']:,}", number(row["seconds_per_step"]), f"{row['training_memory_mb']:,.0f}")
        for row in results.cost
    ]
    return f"""At the paper's size, 20 blocks, 32 multivector and 128 scalar channels, batches of 64 samples of 16 bodies, a
step on one core takes (`python benchmarks/nbody_experiments.py cost`; cost only, nothing was trained to its end):

{_table(("model", "parameters", "seconds per step", "memory MB"), rows)}"""


def _quick(results: Results) -> str:
    rows = [_quick_row(model, results.quick[model]) for model in QUICK if model in results.quick]
    waiting = [name(model) for model in QUICK if model not in results.quick]
    unfinished = f"Not finished yet: {', '.join(waiting)}." if waiting else ""
    heads = ("model", "published", "mean", "median", "99 %-trimmed", "validation mean", "verdict", "minutes")
    return f"""
## The quick regression of official GATr

One star and three planets, 1000 training samples, 5000 steps, batches of 64; the GATrs with 10 blocks, 16 multivector and
128 scalar channels. The files are those of the released generator (seed 42), on which official GATr 1.4.3 reaches a mean of
{OFFICIAL["eval"]} on the evaluation set and {OFFICIAL["val"]} on the validation set. *Published* is what its README
prints; its Transformer normalised over tokens and channels at once, a fault that GATr 1.4.2 repaired and ours does not have.
A few close encounters dominate the means, hence the medians and the means of the best 99 % of samples. The verdict
is agree where the mean is at most what is published, to the digits given, and for iP-GATr at most the two numbers above.
Ours are the weights that were best on the validation set, official GATr's its last. One seed. {unfinished}

{_table(heads, rows)}
"""


def _quick_row(model: str, row: dict[str, Any]) -> tuple[str, ...]:
    found, val = row["metrics"]["eval"], row["metrics"]["val"]["mse"]
    published = PUBLISHED.get(model)
    reached = published is not None and round(found["mse"], 4) <= published
    if model == "iP":
        reached = reached and found["mse"] <= OFFICIAL["eval"] and val <= OFFICIAL["val"]
    verdict = "–" if published is None else "**agree**" if reached else "**disagree**"
    numbers = (number(found[key]) for key in ("mse", "median", "trimmed"))
    return (
        name(model),
        f"{published:.4f}" if published else "–",
        *numbers,
        number(val),
        verdict,
        f"{row['seconds'] / 60:.0f}",
    )


def _ablations(results: Results) -> str:
    experiment, rows = EXPERIMENTS["variants"], results.rows["variants"]
    heads = ("model", "error", "median", "99 %-trimmed", "training error", "spikes", "largest coefficient")
    changed = {"float32": "variants", "bfloat16": "bf16"}
    return f"""
## Ablations

Data, sizes and unit of the figure, 1000 training samples, {_steps(rows)}, three seeds. A comma
in the name of a model is an override of its geometry, which `anygatr compare --models` takes too; `products=iP` adds the
join, `features=iP` distances in attention. Spikes are losses ten times their running median; a run fails when its
gradients are not finite. {_progress(experiment, rows)}

![Error of every variant, a dot per seed]({VARIANTS})

{_table(heads, [_ablation(m, of(rows, m)) for m in experiment.models if of(rows, m)])}

### Precision

{_progress(EXPERIMENTS["bf16"], results.rows["bf16"])} Validation and evaluation are in float32 either way.

{
        _table(
            ("model", "training in", *heads[1:]),
            [
                (name(m), label, *_ablation(m, of(results.rows[key], m))[1:])
                for m in EXPERIMENTS["bf16"].models
                for label, key in changed.items()
                if of(results.rows[key], m)
            ],
        )
    }

### The origin

Subtracting the centre of mass is exact in exact arithmetic for P, iP and C, and E needs it. Samples lie about 20 from the
origin of coordinates, the far set about 220. {_progress(EXPERIMENTS["origin-none"], results.rows["origin-none"])}

{
        _table(
            ("model", "origin", "error at 20", "error at 220", "equivariance error in float32"),
            [
                _origin(m, label, of(results.rows[key], m))
                for m in EXPERIMENTS["origin-none"].models
                for label, key in (("centre of mass", "variants"), ("none", "origin-none"))
                if of(results.rows[key], m)
            ],
        )
    }
"""


def _ablation(model: str, rows: Rows) -> tuple[str, ...]:
    errors = (
        _measured(rows, split, key)
        for split, key in (*(("eval", k) for k in ("mse", "median", "trimmed")), ("train", "mse"))
    )
    failed = sum(not row.is_ok for row in rows)
    label = f"{name(model)} ({failed} failed)" if failed else name(model)
    return (label, *errors, str(sum(int(row.value("spikes") or 0) for row in rows)), _values(rows, "max_coefficient"))


def _origin(model: str, label: str, rows: Rows) -> tuple[str, ...]:
    errors = (_measured(rows, split, "mse") for split in ("eval", "e3_generalization"))
    return (name(model), label, *errors, _values(rows, "equivariance"))


def _past(results: Results) -> str:
    """Variants of the paper's four that are clearly better at the same budget, found among the ablations."""
    rows = results.rows["variants"]
    tried = [(m, m.split(",")[0]) for m in EXPERIMENTS["variants"].models if "," in m]
    compared = [compare(of(rows, m), of(rows, base), f"{name(m)} over {name(base)}", low=0.0, high=1.0) for m, base in tried]
    better = [c for c in compared if c.verdict == "agree"]
    judged = sum(c.factor is not None for c in compared)
    lines = "\n".join(f"- {c}" for c in better) or "- none"
    return f"""
## Past the paper

What is better than the paper's choice at the same budget, its interval below 1, of the {count(judged, "change")} that
the ablations tried: picked afterwards and on the evaluation set, so hints rather than findings. The faithful variants above
stay as they are.

{lines}

{_unit(results)}
"""


def _unit(results: Results) -> str:
    """What the unit of length does to the same runs."""
    experiment, own = EXPERIMENTS["own-unit"], results.rows["own-unit"]
    found = [
        compare(of(own, m), of(results.rows["short"], m), f"{name(m)} in the data's own unit over a unit of {UNIT}")
        for m in experiment.models
    ]
    lines = "\n".join(f"- {c}" for c in found)
    return f"""
### The unit of length

Motions do not change lengths, so nothing in an equivariant network fixes their unit; the paper takes the simulation's. But
attention tells neighbours apart only where its logits, products of coordinates or squared distances, differ by about one:
weights have to grow until they do, and that takes much of a short run. Measured in a unit near the distance between
neighbours, those networks that use distances well learn faster. Errors of short runs without and with it, one seed at
{count(len(experiment.sizes), "size")}: {_progress(experiment, own)}

{lines}

{UNIT} was picked before these runs from 1, 1/2, 1/4, 1/8 and 1/16 by the evaluation error of one short run of iP-GATr each:
the last three did about equally well. `--unit` sets it; without it, data that are normalised
(all but n-body) get the median distance at which a point has three neighbours, rounded to a power of two.
"""


def _made(results: Results) -> str:
    lines = [*dict.fromkeys(experiment.data for experiment in EXPERIMENTS.values()), ""]
    for key, experiment in EXPERIMENTS.items():
        lines += [f"# {key}: {_progress(experiment, results.rows[key])}", experiment.command, ""]
    lines += ["# the quick regression, with the reference files in data/nbody-quick"]
    lines += [command for model in QUICK for command in quick_commands(model)]
    text = "\n".join(lines)
    return f"""
## Commands

`make reproduce-nbody` runs the first comparison and continues from the committed rows; `benchmarks/nbody_experiments.py`
runs any of them by name. Minutes are the training time of all runs, each on one thread of a busy machine.

```bash
{text}
```
"""


def _progress(experiment: Experiment, rows: Rows) -> str:
    done, failed = sum(row.is_ok for row in rows), sum(not row.is_ok for row in rows)
    minutes = sum(row.value("seconds") or 0 for row in rows) / 60
    broken = f", {count(failed, 'run')} failed" if failed else ""
    return f"{done} of {count(experiment.runs, 'run')} finished in {minutes:.0f} minutes{broken}."


def _measured(rows: Iterable[Row], split: str, key: str) -> str:
    found = spread(row.metric(split, key) for row in rows if row.is_ok)
    return measured(found) if found else "–"


def _values(rows: Iterable[Row], key: str) -> str:
    """The median over runs."""
    found = spread(value for row in rows if row.is_ok and (value := row.value(key)) is not None and isfinite(value))
    return number(median(found.values)) if found else "–"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    main()
