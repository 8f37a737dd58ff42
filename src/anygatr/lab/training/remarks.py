"""Remarks on a finished run: what its curve and its errors say about the budget that it had."""

from typing import Any

from anygatr.lab.config.recipe import Recipe

RISEN = 1.1
"""A validation error that ends this much above its lowest has risen."""
EARLY = 0.5
"""A best step before this share of the last one is early."""


def remarks(row: dict[str, Any], recipe: Recipe) -> list[str]:
    """Sentences on a run that stopped early, whose validation error rose, or that learned nothing."""
    found = [*_blind(row), *_learned_nothing(row)]
    best, last = row["best_step"], row["steps"]
    if last < recipe.steps:
        found.append(
            f"stopped at step {last} of {recipe.steps}: no better validation since step {best} (--patience 0 trains on)"
        )
    errors = [error for _, _, error in row["curve"]]
    if errors and min(errors) > 0 and errors[-1] > RISEN * min(errors) and best < EARLY * last:
        found.append(
            f"validation was best at step {best} of {last} and is {errors[-1] / min(errors):.1f} times that since: the "
            "network learns its training samples by heart; bring more samples, or try --weight-decay 0.01, --dropout 0.1 or "
            "fewer channels"
        )
    return found


def _blind(row: dict[str, Any]) -> list[str]:
    if not row.get("blind"):
        return []
    return [f"{row['model']} is blind to these inputs: it predicts the same whatever they are; choose another model"]


def _learned_nothing(row: dict[str, Any]) -> list[str]:
    split = "eval" if "eval" in row["metrics"] else "val"
    baselines = row.get("baselines", {}).get(split, {})
    if not baselines or row.get("blind"):
        return []
    error = row["metrics"][split]["mse"]
    better = {name: numbers["mse"] for name, numbers in baselines.items() if numbers["mse"] <= error}
    if not better:
        return []
    best = min(better, key=lambda name: better[name])
    return [f"no better than without training: '{best}' has {better[best]:.4g} on {split}, the network {error:.4g}"]
