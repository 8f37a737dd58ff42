"""One sentence of advice per criterion, with its uncertainty over seeds."""

from anygatr.lab.report.palette import Look, is_algebra, looks
from anygatr.lab.report.ranking import by_error
from anygatr.lab.report.rows import ComparisonResults, ResultRow
from anygatr.lab.report.spread import interval, ratio
from anygatr.lab.report.theory import theory
from anygatr.lab.report.wording import listing, measured, times

FAR = "e3_generalization"
MORE = "object_generalization"


def advice(experiment: ComparisonResults) -> list[tuple[str, str]]:
    """(criterion, one sentence) for everything that can be said."""
    names = looks(experiment.models)
    found = [
        ("Simplicity", _simplicity(experiment, names)),
        ("Richness", _richness(experiment, names)),
        ("Expressivity", _expressivity(experiment, names)),
        ("Memory", _frugal(experiment, names, "training_memory_mb", "MB", "needs the least memory")),
        ("Speed", _frugal(experiment, names, "milliseconds_per_step", "ms per step", "is the fastest to train")),
        ("Stability", _stability(experiment, names)),
        ("Performance", _accuracy(experiment, names, experiment.reference)),
        ("Few samples", _accuracy(experiment, names, experiment.sizes[0]) if len(experiment.sizes) > 1 else None),
        ("Far away", _shift(experiment, names, FAR, "moved far away")),
        ("More objects", _shift(experiment, names, MORE, "with more objects than in training")),
    ]
    return [(criterion, sentence) for criterion, sentence in found if sentence]


def _simplicity(experiment: ComparisonResults, names: dict[str, Look]) -> str | None:
    found = {model: theory(model, experiment.data.get("dim", 3)) for model in experiment.algebras}
    if not found:
        return None
    least, most = (pick(found, key=lambda model: found[model].pieces) for pick in (min, max))
    made_of = {model: f"{t.maps} linear maps and {_products(t.products)}" for model, t in found.items()}
    text = f"{names[least].label} is the simplest: {made_of[least]}"
    return f"{text}; {names[most].label} the least so: {made_of[most]}." if most != least else f"{text}."


def _richness(experiment: ComparisonResults, names: dict[str, Look]) -> str | None:
    kinds = {model: set(theory(model, experiment.data.get("dim", 3)).kinds) for model in experiment.algebras}
    if not kinds:
        return None
    used = {*(experiment.data.get("fields") or {}).values(), *(experiment.data.get("targets") or {}).values()}
    lacking = {model: sorted(used - known) for model, known in kinds.items() if used - known}
    richest = max(kinds, key=lambda model: len(kinds[model]))
    others = set().union(*(known for model, known in kinds.items() if model != richest))
    alone = sorted(f"{kind}s".replace("_", " ") for kind in kinds[richest] - others)
    text = f"{names[richest].label} embeds the most kinds ({len(kinds[richest])})"
    text += f" and is alone with {listing(alone)}" if alone and len(kinds) > 1 else ""
    if lacking:
        gaps = [f"{names[model].label} has only a substitute for {listing(missing)}" for model, missing in lacking.items()]
        return f"{text}. Of the kinds in these data, {listing(gaps)}."
    return f"{text}; every kind in these data ({listing(sorted(used))}) exists in all of them." if used else f"{text}."


def _expressivity(experiment: ComparisonResults, names: dict[str, Look]) -> str | None:
    found = {model: theory(model, experiment.data.get("dim", 3)) for model in experiment.algebras}
    solved = {model: t for model, t in found.items() if t.built is not None and t.total is not None}
    if not solved:
        return None
    short = [
        f"{names[model].label} cannot build {t.total - t.built} of its {t.total} bilinear equivariant maps"
        for model, t in solved.items()
        if t.built is not None and t.total is not None and t.built < t.total
    ]
    full = [names[model].label for model, t in solved.items() if t.built == t.total]
    return "; ".join([*short, *([f"{listing(full)} build{'s' * (len(full) == 1)} all"] if full else [])]) + "."


def _frugal(experiment: ComparisonResults, names: dict[str, Look], name: str, unit: str, says: str) -> str | None:
    spreads = {model: experiment.measure(model, name) for model in experiment.algebras}
    known = {model: values for model, values in spreads.items() if values}
    if not known:
        return None
    order = sorted(known, key=lambda model: known[model].mean)
    least, most = order[0], order[-1]
    text = f"{names[least].label} {says}: {measured(known[least], unit)}"
    return f"{text}; {names[most].label} {times(ratio(known[most], known[least]))}." if most != least else f"{text}."


def _stability(experiment: ComparisonResults, names: dict[str, Look]) -> str | None:
    if not experiment.models:
        return None
    diverged = {row.model for row in experiment.rows if row.record.get("nonfinite")}
    broken = listing([names[model].label for model in experiment.models if model in diverged])
    spikes = {m: sum(r.value("spikes") or 0 for r in experiment.finished if r.model == m) for m in experiment.models}
    spiky = [f"{names[model].label} ({int(n)})" for model, n in spikes.items() if n]
    text = f"{broken} became non-finite at least once" if broken else "No run became non-finite"
    return f"{text}; loss spikes: {listing(spiky) if spiky else 'none'}."


def _accuracy(experiment: ComparisonResults, names: dict[str, Look], size: int) -> str | None:
    ranked = [(model, error) for model, error in by_error(experiment, size) if is_algebra(model)]
    if not ranked:
        return None
    best, error = ranked[0]
    text = f"{names[best].label} with {measured(error)} at {size:,} samples"
    if len(ranked) == 1:
        return f"{text}."
    second, r = ranked[1][0], ratio(ranked[1][1], error)
    known = "a clear difference" if r.is_clear else "within seed noise"
    few = "one seed" if min(len(error), len(ranked[1][1])) == 1 else "two seeds"
    verdict = known if r.low is not None else f"{few} cannot tell whether by chance"
    return f"{text}; next {names[second].label}, {times(r)} that: {verdict}."


def _shift(experiment: ComparisonResults, names: dict[str, Look], split: str, where: str) -> str | None:
    n, factors = experiment.reference, {}
    for model in experiment.models:
        growth = experiment.spread(model, n, lambda row: _growth(row, split))
        if growth:
            factors[model] = interval(growth)
    if not factors:
        return None
    best, worst = (pick(factors, key=lambda model: factors[model].value) for pick in (min, max))
    text = f"On systems {where} the error of {names[best].label} is {times(factors[best])} what it is otherwise"
    return f"{text}; that of {names[worst].label}, the most, {times(factors[worst])}." if best != worst else f"{text}."


def _growth(row: ResultRow, split: str) -> float | None:
    moved, here = row.metric(split), row.metric("eval")
    return moved / here if moved is not None and here else None


def _products(products: tuple[str, ...]) -> str:
    return f"the {listing(products)} product" + "s" * (len(products) > 1)
