"""Name -> constructor: the only registry of models."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import gcd

from torch import nn

from anygatr.lab.baselines.transformer import Transformer
from anygatr.lab.data.kinds import nearest
from anygatr.lab.recipe import Recipe
from anygatr.lab.task import Task
from anygatr.model import model
from anygatr.nn.width import Width
from anygatr.presets import geometry


def build(task: Task, recipe: Recipe) -> nn.Module:
    """The model of a recipe for a task, with weights drawn from torch's global generator."""
    check_names([recipe.model])
    return MODELS[recipe.model](task, recipe)


def check_names(names: Iterable[str]) -> None:
    """Raise for a name that no model has."""
    for name in names:
        if name not in MODELS:
            raise ValueError(f"model={name!r} is unknown; {nearest(name, MODELS)}")


def parameters(module: nn.Module) -> int:
    """How many numbers a model learns."""
    return sum(p.numel() for p in module.parameters())


def with_parameters(task: Task, recipe: Recipe, count: int) -> Recipe:
    """The recipe with channels scaled so that the model has as nearly `count` parameters as can be.

    Channels keep their proportion, in steps that leave heads whole; what is then missing is made up by scalar channels.
    """
    heads = recipe.heads

    def scaled(factor: int) -> Recipe:
        half = heads // gcd(heads, 2)  # the heads have twice the hidden channels between them
        mv = half * max(1, round(recipe.mv / recipe.s * heads * factor / half)) if recipe.mv else 0
        return replace(recipe, s=heads * factor, mv=mv)

    def size(candidate: Recipe) -> int:
        return parameters(build(task, candidate))

    low, high = 1, 2
    while size(scaled(high)) < count:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if size(scaled(middle)) < count else (low, middle)
    candidates = [scaled(high), scaled(low)]
    while size(candidates[-1]) < count:
        candidates.append(replace(candidates[-1], s=candidates[-1].s + heads))
    return min(candidates, key=lambda candidate: abs(size(candidate) - count))


def _gatr(task: Task, recipe: Recipe) -> nn.Module:
    return model(
        geometry(recipe.model, dim=task.dim),
        inputs=task.inputs,
        targets=task.targets,
        hidden=Width(recipe.mv, recipe.s),
        blocks=recipe.blocks,
        heads=recipe.heads,
        per=task.per,
        origin=recipe.origin,
    )


def _transformer(task: Task, recipe: Recipe) -> nn.Module:
    return Transformer(task, channels=recipe.s, blocks=recipe.blocks, heads=recipe.heads)


MODELS: dict[str, Callable[[Task, Recipe], nn.Module]] = {
    **dict.fromkeys(("E", "P", "iP", "C", "L"), _gatr),
    "transformer": _transformer,
}
