"""Budgets: what every model of a comparison gets the same of."""

from collections.abc import Sequence
from dataclasses import replace

from anygatr.lab.config.commands import Match
from anygatr.lab.config.recipe import Recipe
from anygatr.lab.data.dataset import Dataset
from anygatr.lab.data.task import Task
from anygatr.lab.training.models import build, parameters, with_parameters
from anygatr.lab.training.rehearsal import step_seconds


def matched(recipes: Sequence[Recipe], match: Match, minutes: float, train: Dataset) -> list[Recipe]:
    """The recipes with equal steps, equal training time, or equal numbers of parameters: those of the first."""
    task = Task.of(train)
    if match == "params":
        count = parameters(build(task, recipes[0]))
        return [recipes[0], *(with_parameters(task, recipe, count) for recipe in recipes[1:])]
    if match == "time":
        costs = [step_seconds(recipe, train) for recipe in recipes]
        return [replace(r, steps=max(1, round(60 * minutes / cost))) for r, cost in zip(recipes, costs, strict=True)]
    return list(recipes)
