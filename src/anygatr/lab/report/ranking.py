"""The measured version of the paper's ranking table: one to three marks per model and criterion, and how they are given."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from anygatr.lab.report.palette import is_algebra
from anygatr.lab.report.rows import ComparisonResults
from anygatr.lab.report.spread import Ratio, Spread, ratio
from anygatr.lab.report.theory import theory
from anygatr.lab.report.wording import count, measured, number

GOOD, FAIR = 1.5, 3.0  # three marks up to the first multiple of the best algebra's cost, two up to the second
RICH = 0.75  # two marks from this share of the richest geometry's kinds
SPIKES = 1e-3  # share of steps with a loss above ten times its running median
COEFFICIENT = 1e4  # where float32 rounds by a thousandth


@dataclass(frozen=True)
class Mark:
    """One cell: what was counted or measured, one to three marks for it, and whether another seed might change them."""

    value: str
    marks: int | None = None
    is_unsure: bool = False


@dataclass(frozen=True)
class Criterion:
    """One row of the table."""

    name: str
    how: str
    """How the marks are given."""
    judge: Callable[[ComparisonResults], dict[str, Mark]]
    paper: dict[str, int]
    """The paper's marks; empty where it gives none."""
    is_measured: bool = True


def rank(experiment: ComparisonResults) -> list[tuple[Criterion, dict[str, Mark]]]:
    """Every criterion that can be judged, with the mark of each model it concerns."""
    judged = [(criterion, criterion.judge(experiment)) for criterion in CRITERIA]
    return [(criterion, marks) for criterion, marks in judged if marks]


def by_error(experiment: ComparisonResults, size: int | None = None) -> list[tuple[str, Spread]]:
    """Models with their evaluation error at a size (the reference), best first; those that are blind are no rivals."""
    at = experiment.reference if size is None else size
    errors = {model: experiment.error(model, at) for model in experiment.models if not experiment.is_blind(model)}
    return sorted(((model, error) for model, error in errors.items() if error), key=lambda pair: pair[1].mean)


def best_algebra(spreads: dict[str, Spread]) -> str:
    """The model others are measured against: the cheapest GATr, or the cheapest model where no GATr took part."""
    return min(spreads, key=lambda model: (not is_algebra(model), spreads[model].mean))


def _simplicity(experiment: ComparisonResults) -> dict[str, Mark]:
    found = {model: theory(model, experiment.data.get("dim", 3)) for model in experiment.algebras}
    fewest = min((t.pieces for t in found.values()), default=1)
    return {
        model: Mark(f"{t.maps} maps × {len(t.products)} product{'s'[: len(t.products) - 1]}", _within(t.pieces / fewest))
        for model, t in found.items()
    }


def _richness(experiment: ComparisonResults) -> dict[str, Mark]:
    kinds = {model: len(theory(model, experiment.data.get("dim", 3)).kinds) for model in experiment.algebras}
    richest = max(kinds.values(), default=1)
    share = {model: n / richest for model, n in kinds.items()}
    return {model: Mark(f"{n} kinds", 3 if n == richest else 2 if share[model] >= RICH else 1) for model, n in kinds.items()}


def _expressivity(experiment: ComparisonResults) -> dict[str, Mark]:
    found = {model: theory(model, experiment.data.get("dim", 3)) for model in experiment.algebras}
    return {
        model: Mark(f"{t.built} of {t.total}", 3 if t.built == t.total else 1)
        for model, t in found.items()
        if t.total is not None
    }


def _stability(experiment: ComparisonResults) -> dict[str, Mark]:
    return {model: _stability_of(experiment, model) for model in experiment.models}


def _stability_of(experiment: ComparisonResults, model: str) -> Mark:
    runs = [row for row in experiment.rows if row.model == model]
    broken = sum(bool(row.record.get("nonfinite")) for row in runs)
    steps = sum(row.value("steps") or 0 for row in runs)
    spikes = sum(row.value("spikes") or 0 for row in runs)
    largest = max((row.value("max_coefficient") or 0 for row in runs), default=0)
    rate = spikes / steps if steps else 0
    text = f"{number(1000 * rate, 2)} spikes per 1,000 steps" + (
        f", coefficients to {number(largest, 2)}" if largest else ""
    )
    text += f", {count(broken, 'run')} diverged" if broken else ""
    return Mark(text, 1 if broken else 3 - (rate > SPIKES) - (largest > COEFFICIENT), len(runs) < 2)


def _cost(name: str, unit: str) -> Callable[[ComparisonResults], dict[str, Mark]]:
    return lambda experiment: _against_best({model: experiment.measure(model, name) for model in experiment.models}, unit)


def _memory(experiment: ComparisonResults) -> dict[str, Mark]:
    """Sure even from one seed: it is counted, and depends on shapes alone."""
    found = _cost("training_memory_mb", "MB")(experiment)
    return {model: replace(mark, is_unsure=False) for model, mark in found.items()}


def _performance(experiment: ComparisonResults) -> dict[str, Mark]:
    return _against_best({model: experiment.error(model, experiment.reference) for model in _seeing(experiment)})


def _data_efficiency(experiment: ComparisonResults) -> dict[str, Mark]:
    smallest = experiment.sizes[:1] if len(experiment.sizes) > 1 else ()
    return _against_best({model: experiment.error(model, n) for n in smallest for model in _seeing(experiment)})


def _seeing(experiment: ComparisonResults) -> list[str]:
    """The models that are not blind."""
    return [model for model in experiment.models if not experiment.is_blind(model)]


def _against_best(spreads: dict[str, Spread | None], unit: str = "") -> dict[str, Mark]:
    known = {model: values for model, values in spreads.items() if values}
    if not known:
        return {}
    best = known[best_algebra(known)]
    return {model: _graded(values, ratio(values, best), values is best, unit) for model, values in known.items()}


def _graded(values: Spread, against: Ratio, is_best: bool, unit: str) -> Mark:
    ends = (against.low, against.high)
    unsure = not is_best and (None in ends or len({_within(end) for end in ends if end is not None}) > 1)
    return Mark(measured(values, unit), _within(against.value), unsure)


def _within(multiple: float) -> int:
    return 3 if multiple <= GOOD else 2 if multiple <= FAIR else 1


def _of_paper(marks: str) -> dict[str, int]:
    return {model: int(mark) for model, mark in zip(("E", "P", "iP", "C"), marks, strict=True)}


MULTIPLES = f"three marks up to {GOOD:g}× the best algebra, two up to {FAIR:g}×, one beyond"
CRITERIA = (
    Criterion(
        "Simplicity",
        "Equivariant linear maps of a multivector, counted by the solver, times the products a layer uses; "
        f"{MULTIPLES}. The paper judged by hand and asked mostly for how few products suffice.",
        _simplicity,
        _of_paper("3212"),
        is_measured=False,
    ),
    Criterion(
        "Richness",
        "Kinds of objects embedded without loss; three marks for the richest geometry, "
        f"two from {RICH:.0%} of its kinds, one below.",
        _richness,
        _of_paper("1223"),
        is_measured=False,
    ),
    Criterion(
        "Expressivity",
        "Bilinear equivariant maps that products and linear maps build, out of all that exist (solved for at order 2; "
        "iP under proper motions, because the join is odd under mirrors); three marks if all, one if any is missing.",
        _expressivity,
        _of_paper("3133"),
        is_measured=False,
    ),
    Criterion(
        "Memory",
        f"The most that weights, gradients, moments and activations take at once in a training step; {MULTIPLES}.",
        _memory,
        _of_paper("3221"),
    ),
    Criterion("Speed", f"Time of a training step; {MULTIPLES}.", _cost("milliseconds_per_step", "ms"), {}),
    Criterion(
        "Stability",
        "One mark if any run became non-finite; otherwise three, less one if the loss spiked (ten times its running median) "
        f"in more than one step of {1 / SPIKES:,.0f}, less one if a coefficient exceeded {COEFFICIENT:,.0f}.",
        _stability,
        _of_paper("3331"),
    ),
    Criterion("Performance", f"Evaluation error at the largest common size; {MULTIPLES}.", _performance, _of_paper("2133")),
    Criterion("Few samples", f"Evaluation error at the smallest size; {MULTIPLES}.", _data_efficiency, {}),
)
