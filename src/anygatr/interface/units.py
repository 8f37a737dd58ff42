"""Units: what is 1 for the network. No motion fixes a unit of length, so the model does: given, or taken from data.

Lengths share one unit, so that points of inputs and targets stay where they are relative to each other; free vectors have
one for each field, because a velocity is no length. Units from data are powers of two: dividing by them loses no digit.
"""

import math
import warnings
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from anygatr.interface.fields import Field, Inputs, Targets
from anygatr.interface.tokens import Tokens
from anygatr.ops.shard import Shard
from anygatr.ops.torch_state import transformed
from anygatr.spaces import kinds
from anygatr.spaces.geometry import Geometry

LENGTH = "length"
"""The name of the unit of length; those of free vectors are named by their fields."""
ROLES = {"position": LENGTH, "length": LENGTH}
Unit = str | float | Mapping[str, float] | None


class Part(NamedTuple):
    """Columns of a field that have one unit, or none; positions are measured from the origin."""

    unit: str | None
    width: int
    position: bool


class Units(nn.Module):
    """Divides what goes in by its unit and multiplies what comes out: positions, radii, shifts, free vectors.

    `unit` is the length that is 1 for the network, a dictionary of that and of units of free vectors, or None for 1.
    Vectors among the targets are left as the network gives them.
    """

    def __init__(self, geo: Geometry, inputs: Inputs, targets: Targets, unit: Unit = None, pairs: Inputs | None = None):
        super().__init__()
        fields = (*inputs.fields, *(() if pairs is None else pairs.fields))
        self.inputs = {field.name: _parts(geo, field, free=True) for field in fields}
        self.targets = {field.name: _parts(geo, field, free=False) for field in targets.fields}
        free = [part.unit for parts in self.inputs.values() for part in parts if part.unit not in (None, LENGTH)]
        self.warned = False  # that predictions were not finite
        self.names: tuple[str, ...] = (LENGTH, *dict.fromkeys(map(str, free)))
        self.values: dict[str, float] | None = self._given(unit)

    def enter(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Input fields (*tokens, columns) in these units."""
        return {name: self._scaled(x, self.inputs[name], -1) for name, x in values.items()}

    def position(self, x: Tensor | None) -> Tensor | None:
        """A position, such as the origin, in these units."""
        return None if x is None else x / (self.values or {}).get(LENGTH, 1.0)

    def leave(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Predicted fields (*tokens, columns) in the units of the data."""
        return {name: self._scaled(x, self.targets[name], 1) for name, x in values.items()}

    def fit(
        self, tokens: Tokens, origin: Tensor | None, shard: Shard | None = None, pairs: Mapping[str, Tensor] | None = None
    ) -> None:
        """Take all units from a batch: the root mean square of real coordinates, positions measured from the origin.

        Of vectors of pairs those that are zero do not count: where there is no pair, there is none.
        """
        found: dict[str, list[Tensor]] = {name: [] for name in self.names}
        real = slice(None) if tokens.mask is None else tokens.mask
        for name, x in (pairs or {}).items():
            for part, values in zip(
                self.inputs[name], x.detach().double().split(_widths(self.inputs[name]), -1), strict=True
            ):
                if part.unit is not None:
                    found[part.unit].append(values[values.any(-1)].flatten())
        for name, parts in self.inputs.items():
            if name in (pairs or {}):
                continue
            values = tokens.values[name].detach().double()
            for part, x in zip(parts, values.split(_widths(parts), -1), strict=True):
                if part.unit is not None:
                    centred = x if origin is None or not part.position else x - origin.detach().double()
                    found[part.unit].append(centred[real].flatten())
        self.values = {name: _power_of_two(parts, shard) for name, parts in found.items()}

    def check_range(self, x: Tensor, predictions: Iterable[Tensor]) -> None:
        """Say once that predictions are not finite, where looking costs no synchronisation."""
        if self.warned or torch.compiler.is_compiling() or x.device.type != "cpu" or transformed([x]):
            return
        if all(bool(torch.isfinite(value).all()) for value in predictions):
            return
        self.warned = True
        warnings.warn(
            f"predictions are not finite: coefficients of up to {float(x.abs().max()):.1e} entered the network, which is "
            f"meant for numbers near 1. Set its units (now {self.extra_repr()}) with fit_unit(...), keep origin='mean', or "
            "lower the learning rate",
            RuntimeWarning,
            stacklevel=4,
        )

    def extra_repr(self) -> str:
        """The units."""
        return "not set" if self.values is None else ", ".join(f"{name}={value:g}" for name, value in self.values.items())

    def _given(self, unit: Unit) -> dict[str, float]:
        named = dict(unit) if isinstance(unit, Mapping) else {LENGTH: 1.0 if unit is None else unit}
        for name, value in named.items():
            if name not in self.names:
                raise ValueError(f"unit={unit!r}: {name!r} has no unit; these have one: {', '.join(self.names)}")
            if not isinstance(value, Real) or isinstance(value, bool) or not 0 < float(value) < math.inf:
                raise ValueError(f"unit={unit!r} must be 'data', None, or a positive number: the length that is 1")
        return {name: float(named.get(name, 1.0)) for name in self.names}

    def _scaled(self, x: Tensor, parts: tuple[Part, ...], power: int) -> Tensor:
        values = self.values or {}
        factors = [values.get(part.unit or "", 1.0) ** power for part in parts]
        if all(factor == factors[0] for factor in factors):
            return x if factors[0] == 1 else x * factors[0]
        pieces = x.split(_widths(parts), -1)
        return torch.cat([piece * factor for piece, factor in zip(pieces, factors, strict=True)], -1)


class DataUnits(Units):
    """Units taken from data: by `fit`, or from a state dict, which holds them."""

    def __init__(self, geo: Geometry, inputs: Inputs, targets: Targets, pairs: Inputs | None = None):
        super().__init__(geo, inputs, targets, pairs=pairs)
        self.values = None

    def take_first(self, tokens: Tokens, origin: Tensor | None, shard: Shard | None, pairs: Mapping[str, Tensor]) -> None:
        """Fit to the first batch, unless that is seen by a compiler or differs between processes."""
        if torch.compiler.is_compiling() or transformed(list(tokens.values.values())):
            raise ValueError(
                "unit='data' is not set, which compiled code and torch.func cannot do; call fit_unit(...) first"
            )
        if shard is None and torch.distributed.is_available() and torch.distributed.is_initialized():
            raise ValueError("unit='data' would differ between processes; call fit_unit(...) on the same data in each first")
        self.fit(tokens, origin, shard, pairs)

    def get_extra_state(self) -> Tensor:
        """The units in the order of their names; NaN where there are none yet."""
        values = dict.fromkeys(self.names, math.nan) if self.values is None else self.values
        return torch.tensor([values[name] for name in self.names], dtype=torch.float64)

    def set_extra_state(self, state: Any) -> None:
        """Take them from a state dict."""
        found = [float(x) for x in torch.as_tensor(state).flatten()]
        if len(found) != len(self.names) or not all(math.isnan(x) or 0 < x < math.inf for x in found):
            raise ValueError(f"the units {found} of the state dict do not fit {', '.join(self.names)}")
        self.values = None if math.isnan(found[0]) else dict(zip(self.names, found, strict=True))

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        """A state dict without units is of a model without them."""
        key = f"{prefix}_extra_state"
        if key not in state_dict:
            warnings.warn(
                "the state dict has no units, so 1 is used, as before units were part of it; set others with fit_unit(...)",
                RuntimeWarning,
                stacklevel=4,
            )
            state_dict = {**state_dict, key: torch.ones(len(self.names), dtype=torch.float64)}
        super()._load_from_state_dict(state_dict, prefix, *args)


def _parts(geo: Geometry, field: Field, free: bool) -> tuple[Part, ...]:
    """The columns of a field by unit; `free` ones have the field's own."""
    units = ROLES | ({"free": field.name} if free else {})
    roles = kinds.roles(geo, field.kind) * (1 if field.is_coded else field.count)
    return tuple(Part(units.get(role), width, role == "position") for role, width in roles)


def _widths(parts: tuple[Part, ...]) -> list[int]:
    return [part.width for part in parts]


def _power_of_two(parts: list[Tensor], shard: Shard | None = None) -> float:
    """The one nearest to the root mean square of some numbers, perhaps those of all processes; 1 where all are zero."""
    found = torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)
    own = found.abs().max() if found.numel() else found.new_zeros(())
    largest = float(own if shard is None else shard.largest(own))
    if not 0 < largest < math.inf:
        return 1.0
    # squares of the numbers themselves may overflow
    sums = torch.stack([(found / largest).square().sum(), found.new_tensor(found.numel())])
    square, count = (sums if shard is None else shard.summed(sums)).tolist()
    return 2.0 ** round(math.log2(largest * math.sqrt(square / count)))
