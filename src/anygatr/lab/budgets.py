"""Budgets: what every model of a comparison gets the same of, and what a step costs."""

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from anygatr.lab.commands import Match
from anygatr.lab.data.dataset import Dataset
from anygatr.lab.models import build, parameters, with_parameters
from anygatr.lab.objective import Objective
from anygatr.lab.recipe import Recipe
from anygatr.lab.task import Task

TIMED = 5
"""Steps of which the median is taken, after one that warms up."""


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


def step_seconds(recipe: Recipe, train: Dataset) -> float:
    """How long one step of training takes here and now."""
    task = Task.of(train)
    module = build(task, recipe)
    objective = Objective(module, task, recipe.regulariser)
    optimiser = torch.optim.Adam(module.parameters(), lr=recipe.lr, foreach=True)
    batch = train.subset(min(recipe.batch, len(train))).batch()
    return statistics.median([_timed_step(module, objective, optimiser, batch) for _ in range(TIMED + 1)][1:])


def _timed_step(
    module: torch.nn.Module, objective: Objective, optimiser: torch.optim.Optimizer, batch: Mapping[str, torch.Tensor]
) -> float:
    began = time.perf_counter()
    loss, _ = objective(module, batch)
    loss.backward()
    optimiser.step()
    optimiser.zero_grad()
    return time.perf_counter() - began
