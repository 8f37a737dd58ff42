"""Measurements on a trained network: the largest coefficient inside, and its equivariance error."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from anygatr.lab.data.kinds import base_kind
from anygatr.lab.data.mirrors import moved_field
from anygatr.lab.data.task import Task
from anygatr.lab.training.metrics import residuals
from anygatr.spaces import kinds
from anygatr.spaces.geometry import Geometry
from anygatr.spaces.presets import geometry

BLIND = 1e-6
"""Predictions that scatter by less than this share of the targets depend on nothing."""
SAMPLES = 64
"""Samples on which equivariance and coefficients are measured."""


@torch.no_grad()
def max_coefficient(network: nn.Module, batch: Mapping[str, Tensor], task: Task) -> float | None:
    """The largest multivector coefficient that any layer puts out; None for networks without multivectors."""
    found: list[float] = []

    def watch(module: nn.Module, arguments: object, out: object) -> None:
        x = out[0] if isinstance(out, tuple) else out
        if isinstance(x, Tensor) and x.numel():
            found.append(float(x.detach().abs().max()))

    layers = [layer for layer in network.modules() if getattr(layer, "layout", None) in ("blades", "tokens")]
    handles = [layer.register_forward_hook(watch) for layer in layers]
    try:
        network(**{name: batch[name] for name in task.inputs}, offsets=batch.get("offsets"))
    finally:
        for handle in handles:
            handle.remove()
    return max(found, default=None)


@torch.no_grad()
def is_blind(network: nn.Module, batch: Mapping[str, Tensor], task: Task) -> bool:
    """Whether predictions do not depend on the inputs: numbers and vectors the same for all, points all in the centre.

    Judged by how far predictions scatter, against how far the targets do.
    """
    out = network(**{name: batch[name] for name in task.inputs}, offsets=batch.get("offsets"))
    scatter = {name: [_rms([_scatter(y, task, batch)]) for y in (x, batch[name])] for name, x in out.items()}
    return all(ours < BLIND * max(theirs, 1e-30) for ours, theirs in scatter.values())


@torch.no_grad()
def mirror_error(network: nn.Module, batch: Mapping[str, Tensor], task: Task) -> float | None:
    """As `equivariance_error`, for the mirror at x = 0: near rounding if predictions follow mirrors, else of order one."""
    geo = _mover(network, task)
    if geo is None:
        return None
    matrix = torch.eye(len(geo.axes), dtype=torch.float64)
    matrix[-1, -1] = -1
    return _moved_error(network, batch, task, geo, matrix, matrix.new_zeros(len(geo.axes)))


@torch.no_grad()
def equivariance_error(network: nn.Module, batch: Mapping[str, Tensor], task: Task, seed: int = 0) -> float | None:
    """|f(g x) - g f(x)| / |f(x) - mean|, root mean squares, for a random rotation and translation g, all in float32.

    The translation is as large as the coordinates are. None for kinds of fields that the group does not move.
    """
    geo = _mover(network, task)
    if geo is None:
        return None
    draw = torch.Generator().manual_seed(seed)
    axes = len(geo.axes)
    matrix, _ = torch.linalg.qr(torch.randn(geo.dim, geo.dim, generator=draw, dtype=torch.float64))
    matrix[-1] *= torch.linalg.det(matrix).sign()
    matrix = torch.block_diag(torch.eye(axes - geo.dim, dtype=torch.float64), matrix)
    size = max((float(batch[k].square().mean().sqrt()) for k, v in task.inputs.items() if v == "point"), default=1.0)
    shift = size * torch.randn(axes, generator=draw, dtype=torch.float64)
    return _moved_error(network, batch, task, geo, matrix, shift)


def _moved_error(
    network: nn.Module, batch: Mapping[str, Tensor], task: Task, geo: Geometry, matrix: Tensor, shift: Tensor
) -> float | None:
    """|f(g x) - g f(x)| / |f(x) - mean|; None where predictions do not scatter, so that there is nothing to compare with."""

    def moved(fields: Mapping[str, Tensor], of: Mapping[str, str]) -> dict[str, Tensor]:
        return {name: moved_field(geo, kind, fields[name], matrix, shift).float() for name, kind in of.items()}

    inputs, offsets = {name: batch[name].float() for name in task.inputs}, batch.get("offsets")
    before = network(**inputs, offsets=offsets)
    after = network(**moved(inputs, task.inputs), offsets=offsets)
    difference = residuals(after, moved(before, task.targets), task)
    spread = _rms([_scatter(x, task, batch) for x in before.values()])
    size = _rms([_scatter(batch[name], task, batch) for name in task.targets if name in batch])
    return _rms(list(difference.values())) / spread if spread > BLIND * size else None


def _scatter(x: Tensor, task: Task, batch: Mapping[str, Tensor]) -> Tensor:
    """Values around their mean: numbers and what belongs to samples over all, geometric objects of tokens in each sample."""
    x = x.double()
    if task.per == "token" and "offsets" in batch and x.dim() > 1:
        parts = x.split(batch["offsets"].diff().tolist())
        return torch.cat([part - part.mean(0) for part in parts])
    return x - x.mean(1 if task.per == "token" and x.dim() > 2 else 0, keepdim=True)


def _mover(network: nn.Module, task: Task) -> Geometry | None:
    """A geometry that knows how the coordinates of all fields move."""
    geo = getattr(network, "geo", None) or geometry("E", dim=task.dim)
    try:
        for kind in (*task.inputs.values(), *task.targets.values()):
            kinds.columns(geo, base_kind(kind))
    except ValueError:
        return None
    return geo


def _rms(tensors: list[Tensor]) -> float:
    return float(torch.cat([x.double().flatten() for x in tensors]).square().mean().sqrt())
