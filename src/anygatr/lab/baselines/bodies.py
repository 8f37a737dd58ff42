"""Networks of interacting bodies: a place, a velocity and a mass each; the target is where they go, or a vector each."""

from collections import Counter
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from anygatr.lab.baselines.ragged import pad
from anygatr.lab.data.task import Task

NEEDED = {"point": 1, "vector": 1, "scalar": 1}


@dataclass(frozen=True, eq=False)
class Bodies:
    """A dense batch: places in the dtype of the data, all else in the dtype of the weights; padding is not `real`."""

    place: Float[Tensor, "b n 3"]
    velocity: Float[Tensor, "b n 3"]
    mass: Float[Tensor, "b n"]
    real: Bool[Tensor, "b n"]

    @property
    def count(self) -> int:
        """Bodies in each sample, padding included."""
        return self.place.shape[-2]


class BodyNetwork(nn.Module):
    """Named fields in, named fields out, around a network that gives one vector per body.

    A target of kind "point" is the body's own place plus that vector. Subclasses implement `displacement`.
    """

    def __init__(self, task: Task):
        super().__init__()
        name = type(self).__name__
        if task.dim != 3 or Counter(task.inputs.values()) != NEEDED:
            raise ValueError(
                f"{name} takes bodies in three dimensions with one point, one vector and one scalar each, but the inputs "
                f"are {task.inputs} with dim={task.dim}; choose another model, for example E"
            )
        if task.per != "token" or list(task.targets.values()) not in (["point"], ["vector"]):
            raise ValueError(
                f"{name} predicts one point or one vector per body, but the targets are {task.targets} per {task.per}; "
                "choose another model, for example E"
            )
        self.names = {kind: field for field, kind in task.inputs.items()}
        ((self.target, kind),) = task.targets.items()
        self.moves = kind == "point"

    def displacement(self, bodies: Bodies) -> Float[Tensor, "b n 3"]:
        """One equivariant vector per body."""
        raise NotImplementedError

    def forward(self, *, mask: Tensor | None = None, offsets: Tensor | None = None, **fields: Tensor) -> dict[str, Tensor]:
        """The predicted field by name; dense with an optional mask of real tokens, or packed with offsets."""
        place, velocity, mass = (fields[self.names[kind]] for kind in NEEDED)
        rows = torch.cat([place, velocity.to(place), mass.to(place).reshape(*place.shape[:-1], 1)], -1)
        if offsets is not None:
            rows, mask = pad(rows, offsets)
        real = rows.new_ones(rows.shape[:-1], dtype=torch.bool) if mask is None else mask
        place, velocity, mass = rows.masked_fill(~real.unsqueeze(-1), 0.0).split([3, 3, 1], -1)
        weights = next(self.parameters()).dtype
        found = self.displacement(Bodies(place, velocity.to(weights), mass.squeeze(-1).to(weights), real)).to(place)
        found = found + place if self.moves else found
        return {self.target: found[real] if offsets is not None else found.masked_fill(~real.unsqueeze(-1), 0.0)}
