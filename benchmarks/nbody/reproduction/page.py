"""The text of docs/reproduction.md, from the committed rows; no measured number is typed by hand."""

from typing import Any

from anygatr.lab.report.rows import ResultRow
from anygatr.lab.report.spread import spread
from anygatr.lab.report.wording import number, times
from benchmarks.nbody.reproduction.ablations import ablation_section, past_section
from benchmarks.nbody.reproduction.claims import MATCH, Claim, Rows, claims, compare, name, of
from benchmarks.nbody.reproduction.decided import decided_section
from benchmarks.nbody.reproduction.experiments import EXPERIMENTS, QUICK, UNIT, quick_commands
from benchmarks.nbody.reproduction.results import Results
from benchmarks.nbody.reproduction.tables import error, progress, steps, table, values

FIGURE = "img/reproduction-nbody.svg"
PUBLISHED = {
    **{"iP": 0.0005, "segnn": 0.0006, "se3_transformer": 0.0025},
    **dict.fromkeys(("transformer", "transformer,norm=sample"), 0.0050),
}
"""Evaluation errors in the README of official GATr, to the digits given there."""
OFFICIAL = {"eval": 0.000548, "val": 0.000223}
"""What official GATr 1.4.3 reached on the very files of the quick regression."""


def page(results: Results) -> str:
    """The whole page."""
    parts = [
        _head(),
        _claims(results),
        decided_section(results.decided),
        _figure(results),
        _quick(results),
        ablation_section(results),
        past_section(results),
        _made(results),
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _head() -> str:
    return """
# The paper's n-body results, reproduced

*For readers of the paper and sceptics: each of its claims about n-body systems, measured.*

Every measured number on this page is computed from the rows committed under `results/` by
`python -m benchmarks.nbody.write_page`, the verdicts included. Claims about errors are judged by models that were trained
until they were done, by one rule for all; those about cost, initialisation, norms and precision by shorter runs, minutes of
one core each. Both are far fewer steps than the paper's. Where something is open, what it would take stands beside it.
"""


def _claims(results: Results) -> str:
    judged = claims(results.rows, results.trivial)
    rows = [
        (c.says, "<br>".join(map(str, (*c.comparisons, *c.only_if))), _verdict(c, results), f"[{c.experiment}](#commands)")
        for c in judged
    ]
    return f"""
## What the paper says, what we measured

A factor such as "E-GATr over C-GATr: 1.5× [1.2, 1.9]" divides errors of runs with the same training samples and the same
seed; it is the geometric mean of these quotients with its 95 % interval. A claim is decided by where these intervals lie,
from three quotients on; nothing corrects for how many claims there are. Being ahead with few samples is called sample
efficiency only where the other model's error does fall with more of them, by more than {MATCH}×: where it does not, the
budget and not the data limits it, and the factor tells who learns faster. An error in bfloat16 that is larger than that of a
model that learned nothing counts as that. What an open claim would take are the runs up to three quotients, or those
that would make the interval narrow enough if it narrows as it does for independent runs, at the median core hours of the
runs there are, and at the cap for models that have none.

{table(("the paper says", "measured", "verdict", "experiment"), rows)}
"""


def _verdict(claim: Claim, results: Results) -> str:
    """The verdict and, of an open claim, the runs that would decide it and their core hours."""
    if not claim.runs:
        open_still = claim.verdict == "not yet decided"
        return f"**{claim.verdict}**" + (": data do not limit these models at this budget" if open_still else "")
    hours = sum(number * results.hours(claim.experiment, model) for model, number in claim.runs.items())
    runs = ", ".join(f"{number:,} {name(model)}" for model, number in claim.runs.items())
    return f"**{claim.verdict}**: {hours:,.1f} core hours for runs of {runs}"


def _figure(results: Results) -> str:
    experiment, rows = EXPERIMENTS["figure"], results.rows["figure"]
    errors = [
        (name(model), *(error(of(rows, model, (size,)), "eval", "mse") for size in experiment.sizes))
        for model in experiment.models
    ]
    return f"""
## Fewer steps

Several clusters, 16 bodies, one small budget for all: {steps(rows)}, batches of 16 and one schedule of learning rates,
which was not tuned per model; where steps are fewer, they cost most, and all runs take minutes. The GATrs have 4 blocks, 8
multivector and 32 scalar channels, the Transformer 4 blocks of 128 channels; SE(3)-Transformer and SEGNN have their
published sizes, SEGNN on the complete graph. Unlike the paper's, all models see lengths in a unit of {UNIT}:
[why](#the-unit-of-length). {progress(experiment, rows)}

![Squared error against training samples for all models]({FIGURE})

Mean squared error on the evaluation set; in brackets the range over seeds:

{table(("model", *(f"{size:,}" for size in experiment.sizes)), errors)}

The same with medians per sample, which close encounters do not dominate:

{
        table(
            ("model", *(f"{size:,}" for size in experiment.sizes)),
            [
                (name(m), *(error(of(rows, m, (size,)), "eval", "median") for size in experiment.sizes))
                for m in experiment.models
            ],
        )
    }

What a run costs, and what happens to its error on systems 200 further away and on systems with two more bodies (over the
evaluation error; 1 is no change). Memory is the most that weights, gradients, moments, activations and temporaries take at
once in a step; it is counted by the allocator. Times are medians over runs, by the clock on a machine shared with other work
and with runs that were paused now and then, so small differences between them mean little:

{
        table(
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
        errors = (error(of(rows, m, (size,)), "eval", "mse") for size in experiment.sizes)
        ratio = compare(of(rows, m), of(results.rows["figure"], m), "").factor
        lines.append((name(m), *errors, times(ratio) if ratio else "–"))
    return f"""### A third of these steps

The same with {steps(rows)}: mean squared errors, and how many times those of the longer runs they are.
{progress(experiment, rows)}

{table(heads, lines)}"""


def _cost(model: str, rows: Rows) -> tuple[str, ...]:
    costs = [values(rows, key) for key in ("parameters", "milliseconds_per_step", "training_memory_mb", "seconds")]
    moved = [_ratio(rows, split) for split in ("e3_generalization", "object_generalization")]
    return (name(model), *costs, *moved)


def _relative(row: ResultRow, split: str) -> float | None:
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
step on one core takes (`python -m benchmarks.nbody.run cost`; cost only, nothing was trained to its end):

{table(("model", "parameters", "seconds per step", "memory MB"), rows)}"""


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
prints; its Transformer normalised over tokens and channels at once, a fault that GATr 1.4.2 repaired. Ours is trained both
ways, the second being `norm=sample`.{_transformers(results)}
A few close encounters dominate the means, hence the medians and the means of the best 99 % of samples. The verdict
is agree where the mean is at most what is published, to the digits given, and for iP-GATr at most the two numbers above.
Ours are the weights that were best on the validation set, official GATr's its last. One seed. {unfinished}

{table(heads, rows)}
"""


def _transformers(results: Results) -> str:
    """Whether the norm explains what the Transformer reaches."""
    plain, published = (results.quick.get(model) for model in ("transformer", "transformer,norm=sample"))
    if plain is None or published is None:
        return ""
    ratio = published["metrics"]["eval"]["mse"] / plain["metrics"]["eval"]["mse"]
    explained = "the norm explains a part of it" if ratio < 1 / MATCH else "so the norm does not explain the difference"
    return f" With it the error is {number(ratio)} times that of the repaired one: {explained}."


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


def _made(results: Results) -> str:
    lines = [*dict.fromkeys(experiment.data for experiment in EXPERIMENTS.values()), ""]
    for key, experiment in EXPERIMENTS.items():
        lines += [f"# {key}: {progress(experiment, results.rows[key])}", experiment.command, ""]
    lines += ["# decided: the rows of results/nbody-decided; closed forms first", "python -m benchmarks.nbody.decide closed"]
    lines += ["python -m benchmarks.nbody.decide train", ""]
    lines += ["# the quick regression, with the reference files in data/nbody-quick"]
    lines += [command for model in QUICK for command in quick_commands(model)]
    text = "\n".join(lines)
    return f"""
## Commands

`make reproduce-nbody` runs the first comparison and continues from the committed rows; `python -m benchmarks.nbody.run NAME`
runs any of them. Minutes are the training time of all runs, each on one thread of a busy machine.

```bash
{text}
```
"""
