"""Forces that are the gradient of an energy: no work is done on a closed path, and energy is conserved in motion."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from anygatr.interface.fields import Inputs, Targets
from anygatr.interface.model import Model
from anygatr.spaces.geometry import Geometry


class ConservativeModel(nn.Module):
    """An energy of each sample, and on every token the force -d energy / d position.

    `model` predicts the energy, a scalar of each sample. It may know positions by its pairs alone, as in a periodic cell.
    Where gradients are recorded the forces can be differentiated again, so that both can be trained; elsewhere they are
    plain numbers.
    """

    layout = "fields"

    def __init__(self, model: Model, position: str, energy: str, forces: str):
        super().__init__()
        if model.per.get(energy) != "sample":
            raise ValueError(f"energy={energy!r} must be a target of each sample of the model; it has {model.per}")
        named = [field.name for field in model.inputs.fields]
        if position not in model.inputs.positional and (position in named or model.pairs is None):
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

    def forward(
        self,
        *,
        mask: Tensor | None = None,
        offsets: Tensor | None = None,
        pairs: Mapping[str, Tensor] | None = None,
        edges: Tensor | None = None,
        **fields: Tensor,
    ) -> dict[str, Tensor]:
        """What the model predicts, and the forces. Vectors of pairs have to be made of positions that require gradients."""
        recorded = torch.is_grad_enabled()
        place = fields[self.position]
        told = {} if pairs is None else dict(pairs)
        for field in () if self.model.pairs is None else self.model.pairs.fields:
            if field.kind == "vector" and field.name in told and not told[field.name].requires_grad:
                raise ValueError(
                    f"pairs[{field.name!r}] knows nothing of {self.position}, so forces would miss it; make it of positions "
                    f"that require gradients: {self.position}.requires_grad_() before neighbours({self.position}, ...)"
                )
        with torch.enable_grad():
            place = place if place.requires_grad else place.detach().requires_grad_()
            known = {self.position: place} if self.position in self.model.inputs.positional else {}
            given = {name: x for name, x in fields.items() if name != self.position}
            joined = {} if pairs is None else {"pairs": pairs, "edges": edges}
            out = self.model(**given | known, mask=mask, offsets=offsets, **joined)
            # the graph from positions to pairs is the caller's
            kept = recorded or pairs is not None
            (slope,) = torch.autograd.grad(out[self.energy].sum(), place, create_graph=recorded, retain_graph=kept)
        if not recorded:
            out = {name: x.detach() for name, x in out.items()}
        return out | {self.force_name: -slope}
