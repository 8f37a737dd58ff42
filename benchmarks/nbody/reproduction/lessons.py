"""The text of docs/what-we-learned.md: what to do otherwise than the paper, each sentence from rows."""

import json
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from anygatr.lab.report.spread import spread
from anygatr.lab.report.wording import listing, number, times
from benchmarks.harness.files import ROOT
from benchmarks.nbody.reproduction.claims import Rows, compare, mse, name, of
from benchmarks.nbody.reproduction.results import Results

CHOICES = "results/nbody-decided/choices.jsonl"
DEFAULTS = "results/blindspots/defaults.jsonl"
PAPER_RATE = 3e-4
GATRS = ("E", "P", "iP", "C")


def lessons_page(results: Results, root: Path = ROOT) -> str:
    """The whole page."""
    found = [lesson(results, root) for lesson in LESSONS]
    return "\n\n".join([HEAD.strip(), *(text.strip() for text in found)]) + "\n"


HEAD = """
# What we learned

What we would do otherwise than *Euclidean, Projective, Conformal* on a problem of bodies and points. Every number is
computed from committed rows by `python -m benchmarks.nbody.write_page`; the pages behind the links have the commands. It is
one kind of data, gravitating bodies, and small networks: up to 8 blocks of 16 + 64 channels.
"""


def beat_the_linear_map(results: Results, root: Path) -> str:
    """Short runs end where a linear predictor is."""
    decided, short, size = results.decided, results.rows["figure"], 10_000
    linear = decided.closed_error("linear", size, "mse") or float("nan")
    early = {m: _mean(of(short, m, (size,))) for m in ("E", "transformer")}
    late = {m: _mean(of(decided.rows, m, (size,))) for m in ("E", "transformer", "P")}
    steps = {int(row.value("steps") or 0) for row in of(short, "E", (size,))}
    return f"""
## Know what a linear map reaches, and train past it

The best equivariant linear map has an error of {number(linear)} (closed form, no training). At {size:,} samples and after
{max(steps):,} steps E-GATr is at {number(early["E"])} and the Transformer at {number(early["transformer"])}: they have
learned inertia and little else, and a comparison there compares plateaus. Trained until done E-GATr is at
{number(late["E"])}, the Transformer at {number(late["transformer"])} and P-GATr at {number(late["P"])}.
[Longer](reproduction.md#error-against-training-samples) and [shorter runs](reproduction.md#fewer-steps),
`python -m benchmarks.nbody.decide closed`; `anygatr train` prints the linear map's error beside every result.
"""


def choose_by_samples(results: Results, root: Path) -> str:
    """Which algebra, given the number of samples."""
    rows = results.decided.rows
    lines = []
    for size in results.decided.sizes:
        parts = [
            f"{times(c)}"
            for m in ("C", "E", "segnn")
            if (c := compare(of(rows, m, (size,)), of(rows, "iP", (size,)), "").factor)
        ]
        lines.append(f"{size:,} samples: {listing(parts)}")
    return f"""
## Few samples: iP or C; many: what is cheap

Errors of C-GATr, E-GATr and SEGNN over those of iP-GATr: {"; ".join(lines)}.
The fewer the samples, the more the choice matters.
[Rows and seeds](reproduction.md#error-against-training-samples).
"""


def repair_p(results: Results, root: Path) -> str:
    """What P lacks."""
    rows = results.rows["variants"]
    distances, join = (compare(of(rows, f"P,{what}=iP"), of(rows, "P"), "").factor for what in ("features", "products"))
    return f"""
## Distances in attention are what P-GATr lacks, more than the join

With the distance features of iP-GATr its error is {_times(distances)} that of P-GATr, with the join alone {_times(join)}.
Without either do not use it. [Ablations](reproduction.md#past-the-paper), 800 steps, three seeds.
"""


def unit_of_length(results: Results, root: Path) -> str:
    """The unit in which lengths are given."""
    own, scaled = results.rows["own-unit"], results.rows["short"]
    found = [f"{name(m)} {_times(compare(of(own, m), of(scaled, m), '').factor)}" for m in GATRS]
    return f"""
## Give lengths in the distance between neighbours

The paper takes the simulation's unit. Error in it over that in a unit near the distance of neighbours, after 800 steps:
{listing(found)}. `--unit`, or leave it to the default. [Why](reproduction.md#the-unit-of-length).
"""


def learning_rate(results: Results, root: Path) -> str:
    """Which learning rates short runs chose."""
    rows = _lines(root / CHOICES)
    best: dict[str, dict[str, Any]] = {}
    for row in rows:
        if (
            row["validation"] is not None
            and row["validation"] < best.get(row["model"], row | {"validation": 1e9})["validation"]
        ):
            best[row["model"]] = row
    chosen = {rate: [name(m) for m, r in best.items() if r["learning_rate"] == rate] for rate in (3e-3, 1e-3, PAPER_RATE)}
    said = [f"{rate:g} for {listing(models)}" if models else f"{rate:g} for none" for rate, models in chosen.items()]
    return f"""
## Start with a learning rate of 1e-3 to 3e-3

Least validation error in short runs: {"; ".join(said)}. {PAPER_RATE:g} is the paper's,
for batches of 64; ours are of 16, and runs of a twentieth of the steps favour large rates.
Rows: `{CHOICES}` (`python -m benchmarks.nbody.decide train`).
"""


def precision(results: Results, root: Path) -> str:
    """bfloat16 and the origin."""
    rows, rounded, origin = results.rows["variants"], results.rows["bf16"], results.rows["origin-none"]
    half = [
        f"{name(m)} {_times(compare(of(rounded, m), of(rows, m), '', lambda r: min(mse(r) or 0.0, results.trivial)).factor)}"
        for m in GATRS
    ]
    far = [f"{name(m)} {_ratio_far(of(origin, m))}" for m in ("E", "iP", "C")]
    return f"""
## Keep C-GATr in float32, and subtract an origin

Error in bfloat16 over that in float32, as the paper says: {listing(half)}. What it does not say: where the centre is not
subtracted, the error on the same kind of systems 200 further away, over that on the evaluation set: {listing(far)}.
E-GATr needs an origin; in exact arithmetic C-GATr does not. `--origin` is on by default.
The rows in bfloat16 are from before the stream of C stayed in float32 under autocast.
[Precision](reproduction.md#precision), [the origin](reproduction.md#the-origin).
"""


def invariants(results: Results, root: Path) -> str:
    """Invariants of a token's own fields, and a balanced start."""
    rows = _lines(root / DEFAULTS)

    def ratio(model: str, variant: str) -> str:
        """Over the seeds that both have."""
        found = [
            {r["seed"]: r["error"] for r in rows if (r["model"], r["variant"]) == (model, v)} for v in (variant, "faithful")
        ]
        shared = found[0].keys() & found[1].keys()
        return f"{name(model)} {number(sum(found[0][s] for s in shared) / sum(found[1][s] for s in shared), 2)}×"

    default, invariants, balanced = (
        listing([ratio(model, variant) for model in GATRS]) for variant in ("default", "invariants", "balanced")
    )
    return f"""
## Give the scalars what is invariant already

Error of the library's default (invariants of a token's own fields as scalars, and a balanced start) over the paper's
network, 300 steps on one or two clusters, means over the same seeds, one to three: {default}.
With the invariants alone: {invariants}; with
the start alone: {balanced}. Some tasks cannot be learned without either:
[what used to fail in silence](what-each-algebra-can-do.md#what-used-to-fail-in-silence). Rows: `{DEFAULTS}`
(`python -m benchmarks.blindspots.defaults`).
"""


def medians(results: Results, root: Path) -> str:
    """What the mean hides."""
    rows, size = results.decided.rows, max(results.decided.sizes, default=0)
    factors = [
        compare(of(rows, "segnn", (size,)), of(rows, "iP", (size,)), "", read).factor
        for read in (mse, lambda row: row.metric("eval", "median"))
    ]
    return f"""
## Report medians beside means

At {size:,} samples SEGNN over iP-GATr is {_times(factors[0])} in the mean and {_times(factors[1])} in the median: a few
close encounters, which nobody predicts, carry the mean. [Both tables](reproduction.md#error-against-training-samples).
"""


def cost(results: Results, root: Path) -> str:
    """What a step costs."""
    rows = results.rows["short"]
    both = []
    for model in ("P", "iP", "C"):
        time, memory = (
            compare(of(rows, model), of(rows, "E"), "", _reader(key)).factor
            for key in ("milliseconds_per_step", "training_memory_mb")
        )
        both.append(
            f"{name(model)} {number(time.value, 2)} and {number(memory.value, 2)}" if time and memory else name(model)
        )
    quickest = sorted(results.decided.models, key=results.decided.hours)
    hours = [f"{name(m)} {number(results.decided.hours(m), 2)}" for m in quickest]
    return f"""
## Count core hours, not steps

Time and memory of a step over those of E-GATr: {listing(both)}. Core hours until done, medians over runs:
{listing(hours)}. Who has the cheapest step is not who is done first.
[Claims](reproduction.md#what-the-paper-says-what-we-measured).
"""


Lesson = Callable[[Results, Path], str]
LESSONS: tuple[Lesson, ...] = (
    beat_the_linear_map,
    choose_by_samples,
    repair_p,
    unit_of_length,
    learning_rate,
    invariants,
    precision,
    medians,
    cost,
)


def _mean(rows: Rows) -> float:
    found = spread(mse(row) for row in rows if row.is_ok)
    return found.mean if found else float("nan")


def _times(factor: Any) -> str:
    return times(factor) if factor is not None else "–"


def _reader(key: str) -> Callable[[Any], float | None]:
    return lambda row: row.value(key)


def _ratio_far(rows: Rows) -> str:
    found = [(row.metric("e3_generalization") or 0.0) / (row.metric("eval") or 1.0) for row in rows if row.is_ok]
    return f"{number(median(found), 2)}×" if found else "–"


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
