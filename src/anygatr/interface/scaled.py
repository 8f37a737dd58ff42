"""A model between fields in the units of data: what goes in is normalised, what comes out is restored."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from anygatr.interface.fields import Inputs, Targets
from anygatr.spaces.geometry import Geometry

Shares = Mapping[str, Mapping[str, Sequence[float]]]
"""Target -> category -> what a token of each class adds to the target."""


class ScaledModel(nn.Module):
    """(x - shift) / scale for every input, then a model, then y * scale + shift for every target, in float64.

    `shift` and `scale` have one number per column of each field. `per_token` is what each token adds to a target of whole
    samples besides, `per_class` what it adds because of its class of a category. The numbers are constants of the module:
    an exported graph has them inside.
    """

    layout = "fields"

    def __init__(
        self,
        model: nn.Module,
        shift: Mapping[str, tuple[float, ...]],
        scale: Mapping[str, tuple[float, ...]],
        per_token: Mapping[str, float] | None = None,
        per_class: Shares | None = None,
    ):
        super().__init__()
        self.model = model
        self.per_token, self.per_class = dict(per_token or {}), dict(per_class or {})
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
        added = token_sums(fields, self.per_token, self.per_class, mask, offsets)
        return found | {name: found[name] + x for name, x in added.items()}

    def _normalised(self, name: str, x: Tensor) -> Tensor:
        if name not in self.names:
            return x
        shift, scale = (self.get_buffer(f"{part}_{name}") for part in ("shift", "scale"))
        return (x - shift.to(x)) / scale.to(x) if x.is_floating_point() else x

    def _restored(self, name: str, x: Tensor) -> Tensor:
        shift, scale = (self.get_buffer(f"{part}_{name}") for part in ("shift", "scale"))
        return x.double() * scale + shift


def token_sums(
    fields: Mapping[str, Tensor],
    per_token: Mapping[str, float],
    per_class: Shares,
    mask: Tensor | None,
    offsets: Tensor | None,
) -> dict[str, Tensor]:
    """What the tokens of each sample add to each target, in float64: so much each, and so much by its classes."""
    if not per_token:
        return {}
    first = next(iter(fields.values()))
    ones = torch.ones(_tokens(fields, mask, offsets), dtype=torch.float64, device=first.device)
    found = {name: each * _summed(ones, ones, mask, offsets) for name, each in per_token.items()}
    for name, shares in per_class.items():
        for category, values in shares.items():
            own = torch.tensor(values, dtype=torch.float64, device=first.device)[fields[category].long()]
            found[name] = found[name] + _summed(own, ones, mask, offsets)
    return found


def _tokens(fields: Mapping[str, Tensor], mask: Tensor | None, offsets: Tensor | None) -> tuple[int, ...]:
    """The shape of the tokens; a field may have one row per sample, (B, 1, columns) or packed (B, columns)."""
    if offsets is not None:
        return (max(len(x) for x in fields.values()),)
    return (
        tuple(mask.shape)
        if mask is not None
        else (len(next(iter(fields.values()))), max(x.shape[1] for x in fields.values()))
    )


def _summed(x: Tensor, ones: Tensor, mask: Tensor | None, offsets: Tensor | None) -> Tensor:
    """The sum over the tokens of each sample of what each has, or of what all of a sample have."""
    if offsets is None:
        return (x * ones if mask is None else torch.where(mask, x, 0.0)).sum(-1)
    counts = offsets.diff().to(x.device)
    if len(x) == len(counts) != len(ones):
        return x * counts
    sample = torch.arange(len(counts), device=x.device).repeat_interleave(counts)
    return x.new_zeros(len(counts)).index_add(0, sample, x)
