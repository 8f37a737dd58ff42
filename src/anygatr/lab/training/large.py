"""Which attention over samples of many tokens a recipe, or the name of its model, asks for."""

from dataclasses import replace
from typing import Any

from anygatr.interface.model import check_large
from anygatr.lab.config.commands import LargeOptions
from anygatr.lab.config.model_names import large_overrides, without_large
from anygatr.lab.config.recipe import LARGE, Recipe


def large_options(recipe: Recipe) -> dict[str, Any]:
    """How `model` is told of a recipe's attention; what the name of the model says counts."""
    asked = {name: getattr(recipe, name) for name in LARGE} | large_overrides(recipe.model)
    found = {name: value for name, value in asked.items() if value is not None}
    check_large(found.get("large"), {name: value for name, value in found.items() if name != "large"})
    return found


def attending(recipe: Recipe, options: LargeOptions) -> Recipe:
    """The recipe of a trained model that is to predict with other attention: its weights have to fit."""
    trained, asked = large_options(recipe), {name: getattr(options, name) for name in LARGE}
    asked = {name: value for name, value in asked.items() if value is not None}
    if not asked:
        return recipe
    large, before = asked.get("large", trained.get("large")), trained.get("large")
    if "pooled" in (large, before) and large != before:
        raise ValueError(
            f"large={large!r}, but the run was trained with {before or 'exact attention'}, whose weights are others; "
            f"leave it out, or train with --large {large}"
        )
    return replace(recipe, model=without_large(recipe.model), **trained | asked)
