"""Forces that are the gradient of an energy: no work is done on a closed path, and energy is conserved in motion."""

import torch
from torch import Tensor, nn

from anygatr.interface.fields import Inputs, Targets
from anygatr.interface.model import Model
from anygatr.spaces.geometry import Geometry


class ConservativeModel(nn.Module):
    """An energy of each sample, and on every token the force -d energy / d position.

    `model` predicts the energy, a scalar of each sample. Where gradients are recorded the forces can be differentiated
    again, so that both can be trained; elsewhere they are plain numbers.
    """

    layout = "fields"

    def __init__(self, model: Model, position: str, energy: str, forces: str):
        super().__init__()
        if model.per.get(energy) != "sample":
            raise ValueError(f"energy={energy!r} must be a target of each sample of the model; it has {model.per}")
        if position not in model.inputs.positional:
            raise ValueError(f"position={position!r} must be an input with a position; those are {model.inputs.positional}")
        self.model, self.position, self.energy, self.force_name = model, position, energy, forces

    @property
    def geo(self) -> Geometry:
        """The geometry of the model."""
        return self.model.geo

    @property
    def inputs(self) -> Inputs:
        """The input fields."""
        return self.model.inputs

    @property
    def targets(self) -> Targets:
        """The target fields of the model of the energy."""
        return self.model.targets

    def forward(self, *, mask: Tensor | None = None, offsets: Tensor | None = None, **fields: Tensor) -> dict[str, Tensor]:
        """What the model predicts, and the forces."""
        recorded = torch.is_grad_enabled()
        with torch.enable_grad():
            place = fields[self.position]
            place = place if place.requires_grad else place.detach().requires_grad_()
            out = self.model(**fields | {self.position: place}, mask=mask, offsets=offsets)
            (slope,) = torch.autograd.grad(out[self.energy].sum(), place, create_graph=recorded)
        if not recorded:
            out = {name: x.detach() for name, x in out.items()}
        return out | {self.force_name: -slope}
