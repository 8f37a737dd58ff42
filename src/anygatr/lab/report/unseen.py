"""Models that cannot learn a comparison's targets or cannot see some of its inputs, as it recorded before any training."""

from anygatr.lab.report.palette import looks
from anygatr.lab.report.rows import ComparisonResults
from anygatr.lab.report.wording import listing


def unable(experiment: ComparisonResults) -> dict[str, str]:
    """Models that were asked for but not trained, because no weights can fit a target, with the reason."""
    return dict(experiment.asked.get("unable") or {})


def unseen(experiment: ComparisonResults, model: str) -> str:
    """The mark of a model that no prediction of which depends on some inputs: "cannot see position"; else empty."""
    names = (experiment.asked.get("unseen") or {}).get(model, [])
    return f"cannot see {listing(names)}" if names else ""


def unseen_caveats(experiment: ComparisonResults) -> list[str]:
    """One sentence for each model that is not ranked with the others."""
    labels = looks([*experiment.models, *unable(experiment)])
    found = [f"{labels[model].label} was not trained: {reason.rstrip('.')}." for model, reason in unable(experiment).items()]
    marks = {model: unseen(experiment, model) for model in experiment.models}
    return found + [f"{labels[model].label} {mark}, and has no rank." for model, mark in marks.items() if mark]
