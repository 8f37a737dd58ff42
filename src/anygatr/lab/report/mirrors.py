"""What a comparison says about mirrors: models that cannot tell left from right, on data that ask for it."""

from anygatr.lab.report.palette import looks
from anygatr.lab.report.rows import ComparisonResults
from anygatr.lab.report.wording import listing, number

NEAR = 1.5
"""A model whose error is less than this times the bound sits at it."""
FOLLOWS = 1e-2
"""A mirror error below this is rounding: predictions follow mirrors."""
ROUNDING = 1e-12
"""A bound below this share of a target's variance is rounding."""
MATTERS = 0.01
"""A bound below this share of the error without learning is rounding, or noise of the data."""


def mirror_caveats(experiment: ComparisonResults) -> list[str]:
    """Sentences on a target that changes under mirrors, and on the models that cannot follow it."""
    bound = (experiment.data.get("mirror_bound") or {}).get("mse")
    least = max(MATTERS * (experiment.trivial or 0), ROUNDING * experiment.baselines().get("mean", {}).get("mse", 0.0))
    if not isinstance(bound, float) or not experiment.trivial or bound <= least:
        return []
    names, stuck = looks(experiment.models), []
    for model in experiment.models:
        error, mirrored = experiment.error(model, experiment.reference), experiment.measure(model, "mirror_error")
        if error and mirrored and mirrored.mean < FOLLOWS and error.mean < NEAR * bound:
            stuck.append(names[model].label)
    text = (
        f"The target changes under mirrors: the best mirror-symmetric prediction has error {number(bound)} or more, and "
        "only models without mirrors can do better (E,mirrors=false)."
    )
    if not stuck:
        return [text]
    return [text, f"{listing(stuck)} {'sits' if len(stuck) == 1 else 'sit'} at that bound: more training will not help."]
