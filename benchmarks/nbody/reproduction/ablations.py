"""The sections of the page on n-body that compare variants of one model."""

from anygatr.lab.report.wording import count
from benchmarks.nbody.reproduction.claims import Rows, compare, name, of
from benchmarks.nbody.reproduction.experiments import EXPERIMENTS, UNIT
from benchmarks.nbody.reproduction.results import Results
from benchmarks.nbody.reproduction.tables import error, progress, steps, table, values

VARIANTS = "img/reproduction-ablations.svg"


def ablation_section(results: Results) -> str:
    """Norms, initialisations, features, precision and origin."""
    experiment, rows = EXPERIMENTS["variants"], results.rows["variants"]
    heads = ("model", "error", "median", "99 %-trimmed", "training error", "spikes", "largest coefficient")
    changed = {"float32": "variants", "bfloat16": "bf16"}
    return f"""
## Ablations

Data, sizes and unit of the figure, 1000 training samples, {steps(rows)}, three seeds. A comma
in the name of a model is an override of its geometry, which `anygatr compare --models` takes too; `products=iP` adds the
join, `features=iP` distances in attention. Spikes are losses ten times their running median; a run fails when its
gradients are not finite. {progress(experiment, rows)}

![Error of every variant, a dot per seed]({VARIANTS})

{table(heads, [_ablation(m, of(rows, m)) for m in experiment.models if of(rows, m)])}

### Precision

{progress(EXPERIMENTS["bf16"], results.rows["bf16"])} Validation and evaluation are in float32 either way.

{
        table(
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
origin of coordinates, the far set about 220. {progress(EXPERIMENTS["origin-none"], results.rows["origin-none"])}

{
        table(
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
        error(rows, split, key) for split, key in (*(("eval", k) for k in ("mse", "median", "trimmed")), ("train", "mse"))
    )
    failed = sum(not row.is_ok for row in rows)
    label = f"{name(model)} ({failed} failed)" if failed else name(model)
    return (label, *errors, str(sum(int(row.value("spikes") or 0) for row in rows)), values(rows, "max_coefficient"))


def _origin(model: str, label: str, rows: Rows) -> tuple[str, ...]:
    errors = (error(rows, split, "mse") for split in ("eval", "e3_generalization"))
    return (name(model), label, *errors, values(rows, "equivariance"))


def past_section(results: Results) -> str:
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
{count(len(experiment.sizes), "size")}: {progress(experiment, own)}

{lines}

{UNIT} was picked before these runs from 1, 1/2, 1/4, 1/8 and 1/16 by the evaluation error of one short run of iP-GATr each:
the last three did about equally well. `--unit` sets it; without it, data that are normalised
(all but n-body) get the median distance at which a point has three neighbours, rounded to a power of two.
"""
