"""A model between fields in the units of data: what goes in is normalised, what comes out is restored."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from anygatr.interface.fields import Inputs, Targets
from anygatr.spaces.geometry import Geometry


class ScaledModel(nn.Module):
    """(x - shift) / scale for every input, then a model, then y * scale + shift for every target, in float64.

    `shift` and `scale` have one number per column of each field. `per_token` is what each token adds to a target of whole
    samples besides. The numbers are constants of the module: an exported graph has them inside.
    """

    layout = "fields"

    def __init__(
        self,
        model: nn.Module,
        shift: Mapping[str, tuple[float, ...]],
        scale: Mapping[str, tuple[float, ...]],
        per_token: Mapping[str, float] | None = None,
    ):
        super().__init__()
        self.model = model
        self.per_token = dict(per_token or {})
        self.names = tuple(scale)
        for name in self.names:
            self.register_buffer(f"shift_{name}", torch.tensor(shift[name], dtype=torch.float64), persistent=False)
            self.register_buffer(f"scale_{name}", torch.tensor(scale[name], dtype=torch.float64), persistent=False)

    @property
    def geo(self) -> Geometry:
        """The geometry of the model."""
        return self.model.geo  # type: ignore[return-value]

    @property
    def inputs(self) -> Inputs:
        """The input fields of the model."""
        return self.model.inputs  # type: ignore[return-value]

    @property
    def targets(self) -> Targets:
        """The target fields of the model."""
        return self.model.targets  # type: ignore[return-value]

    def forward(self, *, mask: Tensor | None = None, offsets: Tensor | None = None, **fields: Tensor) -> dict[str, Tensor]:
        """The predicted fields by name, in the units of the data."""
        layout: dict[str, Any] = {"mask": mask} if mask is not None else {}
        layout |= {"offsets": offsets} if offsets is not None else {}
        out = self.model(**{name: self._normalised(name, x) for name, x in fields.items()}, **layout)
        found = {name: self._restored(name, x) for name, x in out.items()}
        if self.per_token:
            count = _counts(next(iter(fields.values())), mask, offsets)
            found |= {name: found[name] + each * count for name, each in self.per_token.items()}
        return found

    def _normalised(self, name: str, x: Tensor) -> Tensor:
        if name not in self.names:
            return x
        shift, scale = (self.get_buffer(f"{part}_{name}") for part in ("shift", "scale"))
        return (x - shift.to(x)) / scale.to(x) if x.is_floating_point() else x

    def _restored(self, name: str, x: Tensor) -> Tensor:
        shift, scale = (self.get_buffer(f"{part}_{name}") for part in ("shift", "scale"))
        return x.double() * scale + shift


def _counts(x: Tensor, mask: Tensor | None, offsets: Tensor | None) -> Any:
    """Tokens in each sample: a tensor, or one number if all have as many."""
    if offsets is not None:
        return offsets.diff().to(x.device)
    return mask.sum(-1) if mask is not None else x.shape[1]
