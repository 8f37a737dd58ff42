"""What a GATr cannot see of a task, said before it is trained."""

import warnings
from collections.abc import Iterable

from anygatr.interface.sight import TargetSight, UnreachableError, sight
from anygatr.lab.config.recipe import Recipe
from anygatr.lab.data.task import Task
from anygatr.lab.training.models import build, geometry_of
from anygatr.spaces.presets import PRESETS


def seen_by(recipe: Recipe, task: Task) -> dict[str, TargetSight]:
    """What the targets of a task can depend on; empty for baselines."""
    if recipe.model.split(",")[0] not in PRESETS:
        return {}
    geo = geometry_of(recipe.model, task.dim)
    return sight(geo, task.inputs, task.targets, recipe.invariants, recipe.origin, recipe.blocks)


def blind_to(recipe: Recipe, task: Task) -> list[str]:
    """The inputs without influence on any target, of models that can learn at all."""
    seen = seen_by(recipe, task).values()
    learns = bool(seen) and all(target.learnable for target in seen)
    return [name for name in task.inputs if learns and all(name in target.blind for target in seen)]


def warn_of_blindness(recipe: Recipe, task: Task) -> None:
    """Warn of inputs that no prediction can depend on; targets that nothing can fit are refused when a model is built."""
    if blind := blind_to(recipe, task):
        warnings.warn(f"{recipe.model} cannot see {', '.join(blind)}: no prediction depends on it", stacklevel=2)


def unable(recipes: Iterable[Recipe], task: Task) -> dict[str, str]:
    """The models that cannot learn a target whatever their weights, and why; other refusals are raised."""
    found = {}
    for recipe in recipes:
        try:
            build(task, recipe)
        except UnreachableError as reason:
            found[recipe.model] = str(reason)
    return found
