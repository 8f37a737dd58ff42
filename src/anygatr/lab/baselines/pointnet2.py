"""PointNet++: local point sets pooled level by level and interpolated back. Invariant under translations alone."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from anygatr.lab.baselines.neighbours import PerMesh, array, farthest_points, nearest, padded, samples, spacing, within
from anygatr.lab.data.kinds import is_category, roles
from anygatr.lab.data.task import Task

RATIOS = (0.2, 0.25, 0.25, 0.25, 0.25, 0.25)
"""The part of the points that each level keeps."""
RADIUS = 2.5
"""Of the first level's neighbourhoods, in spacings of the training meshes; it doubles from level to level."""
MOST = 8
"""The last level is at most so many times as wide as the first."""


@dataclass(frozen=True)
class Level:
    """How one level sees its points: who is whose neighbour, and what interpolates back."""

    chosen: Tensor
    """(m,): the points that are kept."""
    near: Tensor
    """(m, k): the neighbours of each."""
    real: Tensor
    """(m, k): which of them are no padding."""
    back: Tensor
    """(n, 3): the kept points nearest to every point."""
    weight: Tensor
    """(n, 3): inverse squares of their distances, with sum one."""


class PointNet2(nn.Module):
    """`levels` set abstractions with maximum pooling, then as many interpolations from three neighbours, and a linear layer.

    A point is described by the columns of its fields that are no positions; positions enter relative to the centre of each
    neighbourhood. Radii are in units of the spacing of the first mesh that is seen, which is kept with the weights. Layer
    norms stand for the original's batch norms, because a batch may hold a single mesh.
    """

    def __init__(self, task: Task, channels: int, levels: int):
        super().__init__()
        self.task, self.place = task, _place(task)
        if not 0 < levels <= len(RATIOS):
            raise ValueError(f"blocks={levels} must lie in 1..{len(RATIOS)}: each is a level with fewer points")
        self.sizes = [sum(width for _, width in roles(kind, task.dim)) for kind in task.targets.values()]
        first = sum(width for kind in task.inputs.values() for role, width in roles(kind, task.dim) if role != "position")
        widths = [channels * min(2**i, MOST) for i in range(levels)]
        ins = [first, *widths[:-1]]
        self.down = nn.ModuleList(_mlp(i + task.dim, o, o) for i, o in zip(ins, widths, strict=True))
        outs = [2 * channels, *widths[:-1]]
        above = [*outs[1:], widths[-1]]
        self.up = nn.ModuleList(_mlp(i + a, o, o) for i, a, o in zip(ins, above, outs, strict=True))
        self.out = nn.Linear(outs[0], sum(self.sizes))
        self.spacing: Tensor
        self.register_buffer("spacing", torch.tensor(float("nan")))
        self.prepare = PerMesh(_levels)

    def forward(self, *, offsets: Tensor | None = None, **fields: Tensor) -> dict[str, Tensor]:
        """The predicted fields by name; dense (B, n, ...) or packed with offsets."""
        found = torch.cat([self._one(sample) for sample in samples(fields, offsets)])
        found = found if offsets is not None else found.unflatten(0, (-1, fields[self.place].shape[1]))
        parts = zip(self.task.targets, found.split(self.sizes, -1), strict=True)
        return {name: x.squeeze(-1) if x.shape[-1] == 1 else x for name, x in parts}

    def _one(self, fields: dict[str, Tensor]) -> Tensor:
        points = array(fields[self.place])
        if self.spacing.isnan():
            self.spacing.fill_(spacing(points))
        levels = self.prepare(points, count=len(self.down), radius=RADIUS * float(self.spacing))
        x = self._features(fields).to(self.out.weight)
        place = (fields[self.place] - fields[self.place].mean(0)).to(x)
        stack = []
        for level, mlp in zip(levels, self.down, strict=True):
            stack.append(x)
            away = (place[level.near] - place[level.chosen].unsqueeze(1)) / float(self.spacing)
            grouped = mlp(torch.cat([x[level.near], away], -1))
            x = grouped.masked_fill(~level.real.unsqueeze(-1), -torch.inf).amax(1)
            place = place[level.chosen]
        for level, mlp, before in zip(reversed(levels), reversed(self.up), reversed(stack), strict=True):
            spread = (x[level.back] * level.weight.to(x).unsqueeze(-1)).sum(1)
            x = mlp(torch.cat([spread, before], -1))
        return self._placed(self.out(x), fields[self.place])

    def _features(self, fields: dict[str, Tensor]) -> Tensor:
        found = []
        for name, kind in self.task.inputs.items():
            parts = roles(kind, self.task.dim)
            x = fields[name].unsqueeze(-1) if sum(width for _, width in parts) == 1 else fields[name]
            pieces = zip(parts, x.split([width for _, width in parts], -1), strict=True)
            found += [piece for (role, _), piece in pieces if role != "position"]
        return torch.cat(found, -1)

    def _placed(self, x: Tensor, place: Tensor) -> Tensor:
        """Predicted positions are displacements from the token's own."""
        columns = [part for kind in self.task.targets.values() for part in roles(kind, self.task.dim)]
        pieces = zip(columns, x.split([width for _, width in columns], -1), strict=True)
        return torch.cat([piece + place.to(piece) if role == "position" else piece for (role, _), piece in pieces], -1)


def _place(task: Task) -> str:
    place = next((name for name, kind in task.inputs.items() if kind == "point"), None)
    if place is None or task.per != "token":
        raise ValueError(f"model='pointnet2' needs a point and predicts for each token; the task has {task}")
    if coded := next((name for name, kind in task.inputs.items() if is_category(kind)), None):
        raise ValueError(f"model='pointnet2' takes no categories, but {coded!r} is one; choose another model, for example E")
    if all(role == "position" for kind in task.inputs.values() for role, _ in roles(kind, task.dim)):
        raise ValueError(f"model='pointnet2' needs an input besides positions; the task has {task.inputs}")
    return place


def _mlp(*widths: int) -> nn.Sequential:
    layers = [(nn.Linear(i, o), nn.LayerNorm(o), nn.ReLU()) for i, o in pairwise(widths)]
    return nn.Sequential(*(part for layer in layers for part in layer))


def _levels(points: np.ndarray, count: float, radius: float) -> list[Level]:
    levels = []
    for i in range(int(count)):
        chosen = farthest_points(points, max(1, round(RATIOS[i] * len(points))))
        rows, columns = within(points, points[chosen], 2**i * radius)
        near, real = padded(rows, columns, len(chosen))
        distance, back = nearest(points[chosen], points, 3)
        weight = 1 / np.maximum(distance**2, 1e-16)
        weight /= weight.sum(axis=1, keepdims=True)
        levels.append(Level(torch.from_numpy(chosen), near, real, torch.from_numpy(back), torch.from_numpy(weight)))
        points = points[chosen]
    return levels
