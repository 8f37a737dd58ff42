"""Name -> constructor: the only registry of models."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import gcd
from typing import Any

from torch import nn

from anygatr.interface.conservative import ConservativeModel
from anygatr.interface.model import Model, check_large, model
from anygatr.lab.baselines.gem_cnn import GemCNN
from anygatr.lab.baselines.pointnet2 import PointNet2
from anygatr.lab.baselines.segnn import SEGNN
from anygatr.lab.baselines.transformer import NORMS, Transformer
from anygatr.lab.config.model_names import base_name, has_mirrors, large_overrides, overrides, without_large
from anygatr.lab.config.recipe import Recipe
from anygatr.lab.data.kinds import nearest
from anygatr.lab.data.task import Task
from anygatr.lab.system.effort import check_effort
from anygatr.lab.training.large import large_options
from anygatr.nn.width import Width
from anygatr.spaces.geometry import Geometry
from anygatr.spaces.presets import PRESETS, geometry


def build(task: Task, recipe: Recipe) -> nn.Module:
    """The model of a recipe for a task, with weights drawn from torch's global generator."""
    check_names([recipe.model])
    if MODELS[base_name(recipe.model)] is not _gatr and (recipe.conservative or task.token_targets):
        raise ValueError(
            f"model={recipe.model!r} predicts for tokens or for samples, not for both, as {', '.join(task.targets)} ask; "
            "choose a GATr"
        )
    if recipe.dropout and MODELS[base_name(recipe.model)] is not _gatr:
        raise ValueError(f"dropout={recipe.dropout}: {base_name(recipe.model)} has none; leave it out, or choose a GATr")
    if recipe.large and MODELS[base_name(recipe.model)] is not _gatr:
        raise ValueError(
            f"large={recipe.large!r}: {base_name(recipe.model)} has none; leave it out, or name it with the GATrs alone, as "
            f"in iP,large={recipe.large}"
        )
    check_effort(f"a model in {task.dim} dimensions", 2 ** min(task.dim + 2, 100))
    return MODELS[base_name(recipe.model)](task, recipe)


def check_names(names: Iterable[str]) -> None:
    """Raise for a name that no model has, or for overrides that its geometry does not take."""
    for name in names:
        base = base_name(name)
        if base not in MODELS:
            letter = base.lower().removesuffix("gatr").rstrip("-_ ")  # C-GATr, as reports call it, is C here
            hint, every = nearest(letter or base, MODELS), ", ".join(MODELS)
            hint = hint if hint.startswith("known") else f"{hint} All models: {every}"
            raise ValueError(f"model={name!r} is unknown; {hint}")
        if base == name:
            continue
        if MODELS[base] is _gatr:
            geometry_of(name)
            check_large(large_overrides(name).get("large"), {})
        else:
            _options(name)


def geometry_of(name: str, dim: int = 3) -> Geometry:
    """The geometry of a model's name: a preset, perhaps with overrides, such as "C,norm=abs,norm_eps=1".

    An override that names another preset takes what that one has: "P,products=iP" is P with the join. "iP,mirrors=false"
    is equivariant under rotations and translations alone, and can tell left from right.
    """
    changed: dict[str, Any] = {}
    for key, value in overrides(without_large(name)).items():
        if key == "mirrors":
            changed[key] = has_mirrors(name)
        elif value in PRESETS:
            changed[key] = getattr(geometry(value, dim=dim), key, value)
        else:
            changed[key] = float(value) if key == "norm_eps" else value
    return geometry(base_name(name), dim=dim, **changed)


def _options(name: str) -> dict[str, str]:
    """The overrides of a baseline, of which few have any."""
    base, found = base_name(name), overrides(name)
    known = OPTIONS.get(base, {})
    for key, value in found.items():
        if key not in known:
            told = f"it takes {', '.join(known)}" if known else f"write {base}"
            raise ValueError(f"model={name!r}: {base} has no geometry and no {key!r} to change; {told}")
        if value not in known[key]:
            raise ValueError(f"model={name!r}: {key}={value!r} is none of {', '.join(known[key])}")
    return found


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


def conservative_fields(task: Task) -> tuple[str, str, str]:
    """The position, the energy and the forces of a task that shall be conservative."""
    places = [name for name, kind in task.inputs.items() if kind == "point"]
    energies = [name for name, kind in task.targets.items() if kind == "scalar" and task.per_target(name) == "sample"]
    forces = [name for name, kind in task.targets.items() if kind == "vector" and task.per_target(name) == "token"]
    if len(places) != 1 or len(energies) != 1 or len(forces) != 1 or len(task.targets) != 2:
        raise ValueError(
            "conservative=True needs one point among the inputs and two targets, an energy of each sample and the forces on "
            f"its tokens, as in --target energy:scalar forces:vector; the task has {task.inputs} -> {task.targets}"
        )
    return places[0], energies[0], forces[0]


def _gatr(task: Task, recipe: Recipe) -> nn.Module:
    if recipe.conservative:
        place, energy, forces = conservative_fields(task)
        alone = replace(task, targets={energy: task.targets[energy]}, token_targets=())
        return ConservativeModel(_plain_gatr(alone, recipe), place, energy, forces)
    return _plain_gatr(task, recipe)


def _plain_gatr(task: Task, recipe: Recipe) -> Model:
    return model(
        geometry_of(recipe.model, task.dim),
        inputs=task.inputs,
        targets=task.targets,
        hidden=Width(recipe.mv, recipe.s),
        blocks=recipe.blocks,
        heads=recipe.heads,
        per={name: task.per_target(name) for name in task.targets},
        origin=recipe.origin,
        reinsert=task.reinsert,
        pool=recipe.pool,
        dropout=recipe.dropout,
        invariants=recipe.invariants,
        init=recipe.init,
        unit=None,  # the normaliser of a run has brought its fields to order one
        **large_options(recipe),
    )


def _transformer(task: Task, recipe: Recipe) -> nn.Module:
    norm = _options(recipe.model).get("norm", NORMS[0])
    return Transformer(task, recipe.s, recipe.blocks, recipe.heads, norm, recipe.pool)


def _segnn(task: Task, recipe: Recipe) -> nn.Module:
    return SEGNN(task, channels=recipe.s, layers=recipe.blocks)


def _se3_transformer(task: Task, recipe: Recipe) -> nn.Module:
    try:
        from anygatr.lab.baselines.se3_transformer import SE3Transformer  # e3nn takes seconds, and may not be there
    except ModuleNotFoundError as missing:
        raise ValueError(
            f"model='se3_transformer' needs {missing.name}; pip install 'anygatr[baselines]', or leave it out"
        ) from None
    return SE3Transformer(task, channels=recipe.s, layers=recipe.blocks)


OPTIONS = {"transformer": {"norm": NORMS}}
"""Overrides that baselines take, and their values."""
MODELS: dict[str, Callable[[Task, Recipe], nn.Module]] = {
    **dict.fromkeys(("E", "P", "iP", "C", "L"), _gatr),
    "transformer": _transformer,
    "se3_transformer": _se3_transformer,
    "segnn": _segnn,
    "pointnet2": lambda task, recipe: PointNet2(task, channels=recipe.s, levels=recipe.blocks),
    "gem_cnn": lambda task, recipe: GemCNN(task, channels=recipe.s, blocks=recipe.blocks),
}
