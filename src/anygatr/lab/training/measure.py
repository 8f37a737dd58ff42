"""Measurements on a trained network: the largest coefficient inside, and its equivariance error."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from anygatr.lab.data.kinds import base_kind, columns
from anygatr.lab.data.task import Task
from anygatr.lab.training.metrics import residuals
from anygatr.spaces import kinds
from anygatr.spaces.geometry import Geometry
from anygatr.spaces.presets import geometry

SAMPLES = 64
"""Samples on which equivariance and coefficients are measured."""


@torch.no_grad()
def max_coefficient(network: nn.Module, batch: Mapping[str, Tensor], task: Task) -> float | None:
    """The largest multivector coefficient that any layer puts out; None for networks without multivectors."""
    found: list[float] = []

    def watch(module: nn.Module, arguments: object, out: object) -> None:
        x = out[0] if isinstance(out, tuple) else out
        if isinstance(x, Tensor) and x.numel():
            found.append(float(x.abs().max()))

    layers = [layer for layer in network.modules() if getattr(layer, "layout", None) in ("blades", "tokens")]
    handles = [layer.register_forward_hook(watch) for layer in layers]
    try:
        network(**{name: batch[name] for name in task.inputs}, offsets=batch.get("offsets"))
    finally:
        for handle in handles:
            handle.remove()
    return max(found, default=None)


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

    def moved(fields: Mapping[str, Tensor], of: Mapping[str, str]) -> dict[str, Tensor]:
        return {name: _move(geo, kind, fields[name], matrix, shift).float() for name, kind in of.items()}

    inputs, offsets = {name: batch[name].float() for name in task.inputs}, batch.get("offsets")
    before = network(**inputs, offsets=offsets)
    after = network(**moved(inputs, task.inputs), offsets=offsets)
    difference = residuals(after, moved(before, task.targets), task)
    spread = [x.double() - x.double().mean(1 if x.dim() > 2 else 0, keepdim=True) for x in before.values()]
    return _rms(list(difference.values())) / max(_rms(spread), 1e-30)


def _mover(network: nn.Module, task: Task) -> Geometry | None:
    """A geometry that knows how the coordinates of all fields move."""
    geo = getattr(network, "geo", None) or geometry("E", dim=task.dim)
    try:
        for kind in (*task.inputs.values(), *task.targets.values()):
            kinds.columns(geo, base_kind(kind))
    except ValueError:
        return None
    return geo


def _move(geo: Geometry, kind: str, x: Tensor, matrix: Tensor, shift: Tensor) -> Tensor:
    values = x.double().unsqueeze(-1) if columns(kind, geo.dim) == 1 else x.double()
    objects = values.split(columns(base_kind(kind), geo.dim), -1)
    return torch.cat([kinds.move(geo, base_kind(kind), one, matrix, shift) for one in objects], -1).reshape(x.shape)


def _rms(tensors: list[Tensor]) -> float:
    return float(torch.cat([x.double().flatten() for x in tensors]).square().mean().sqrt())
