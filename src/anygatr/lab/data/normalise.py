"""Bring fields to order one by changes of unit that commute with every rotation, mirror and translation."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from anygatr.lab.data.dataset import Dataset
from anygatr.lab.data.kinds import columns, roles

LENGTHS = ("position", "length")
"""Roles of columns that are measured in the unit of length."""
NEIGHBOURS = 3
"""How many neighbours a point has within the unit of length."""
PROBED_SAMPLES, PROBED_POINTS = 64, 256
"""Of how many samples, and of how many points of each, the nearest neighbours are searched."""


@dataclass(frozen=True)
class Normaliser:
    """x -> (x - shift) / scale per column of each field, and back.

    One length unit serves every position, radius and translation of inputs and targets alike, so that a target point
    stays where it is relative to the input points: the distance between neighbours, which attention has to resolve.
    Vectors have a unit of their own (a velocity is no length).
    Only invariant scalars are shifted; points are left for the model's origin to centre. Units are powers of two:
    dividing by them is exact, so normalising and undoing returns the same bits wherever nothing was shifted.
    """

    shift: dict[str, tuple[float, ...]]
    scale: dict[str, tuple[float, ...]]

    @classmethod
    def fit(cls, data: Dataset, length: float | None = None) -> "Normaliser":
        """Take the units from a data set, its training split; that of length may be given."""
        length = power_of_two(_length(data)) if length is None else length
        shift: dict[str, tuple[float, ...]] = {}
        scale: dict[str, tuple[float, ...]] = {}
        for name in data.fields:
            parts = _by_role(data, name)
            units = [_unit(role, x, length) for role, x in parts]
            shift[name] = tuple(s for (s, _), (_, x) in zip(units, parts, strict=True) for _ in range(x.shape[-1]))
            scale[name] = tuple(u for (_, u), (_, x) in zip(units, parts, strict=True) for _ in range(x.shape[-1]))
        return cls(shift, scale)

    @classmethod
    def identity(cls, data: Dataset, length: float = 1.0) -> "Normaliser":
        """Leave every number as it is, as the paper does for n-body, or all but lengths."""
        shift = {name: (0.0,) * columns(kind, data.dim) for name, kind in data.kinds.items()}
        scale = {name: tuple(_columns_of_length(kind, data.dim, length)) for name, kind in data.kinds.items()}
        return cls(shift, scale)

    def apply(self, fields: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Normalise the fields of a batch; what has no unit (`offsets`) passes unchanged."""
        return {
            name: (x - x.new_tensor(self.shift[name])) / x.new_tensor(self.scale[name]) if name in self.scale else x
            for name, x in fields.items()
        }

    def undo(self, fields: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The inverse of `apply` for a model's outputs, in float64 so that a large shift costs no digits."""
        return {
            name: x.double() * x.new_tensor(self.scale[name], dtype=torch.float64)
            + x.new_tensor(self.shift[name], dtype=torch.float64)
            for name, x in fields.items()
        }

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries for a run's configuration file."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Mapping[str, list[float]]]) -> "Normaliser":
        """The inverse of `to_json`."""
        return cls(*({k: tuple(v) for k, v in record[part].items()} for part in ("shift", "scale")))


def _columns_of_length(kind: str, dim: int, length: float) -> Iterator[float]:
    """The unit of each column: the given one for lengths, one for all else."""
    for role, width in roles(kind, dim):
        yield from (length if role in LENGTHS else 1.0,) * width


def _by_role(data: Dataset, name: str) -> list[tuple[str, Tensor]]:
    """The columns of a field, cut where their role changes."""
    x = data.fields[name]
    parts = roles(data.kinds[name], data.dim)
    widths = [width for _, width in parts]
    x = x.unsqueeze(-1) if sum(widths) == 1 else x
    return [(role, piece) for (role, _), piece in zip(parts, x.split(widths, dim=-1), strict=True)]


def _unit(role: str, x: Tensor, length: float) -> tuple[float, float]:
    """(shift, scale) of columns that play this role."""
    match role:
        case _ if role in LENGTHS:
            return 0.0, length
        case "free" | "pseudo":
            return 0.0, power_of_two(float(x.square().mean().sqrt()))
        case "invariant":
            mean, spread = float(x.mean()), float(x.std(correction=0))
            # equal numbers seem to differ from their mean, by rounding
            return mean, power_of_two(spread if spread > 1e-12 * abs(mean) else 0.0)
        case _:
            return 0.0, 1.0


def _length(data: Dataset) -> float:
    """The distance between neighbouring points of a sample, which no motion of the sample changes.

    It is at most the spread of a sample's points around their centre, which is less where they are few. Samples with a
    single point say nothing: then the spread of the targets' points around them counts, then the distances between samples,
    then radii and translations.
    """
    data = data.packed()
    inputs = _columns(data, data.input_kinds, "position")
    points = inputs + _columns(data, data.target_kinds, "position")
    lengths = _columns(data, data.kinds, "length")
    one_sample = [(x, torch.zeros_like(samples)) for x, samples in points]
    candidates = [min(_spacing(inputs), _spread(inputs)), _spread(points), _spread(one_sample)]
    candidates += [float(x.square().mean().sqrt()) for x, _ in lengths]
    return next((value for value in candidates if value > 0), 1.0)


def _columns(data: Dataset, names: Mapping[str, str], role: str) -> list[tuple[Tensor, Tensor]]:
    """The columns with this role of each packed field, and the sample that each row belongs to."""
    samples = torch.arange(len(data))
    tokens = samples.repeat_interleave(data.counts)
    return [
        (x, samples if data.is_per_sample(name) else tokens)
        for name in names
        for found, x in _by_role(data, name)
        if found == role
    ]


def _spacing(points: list[tuple[Tensor, Tensor]]) -> float:
    """The radius within which half of the points have NEIGHBOURS others of their sample, or all there are; 0 without any."""
    nearest = [x.new_empty(0) for x, _ in points[:1]]
    for x, sample in points:
        for own in _evenly(list(x.split(torch.bincount(sample).tolist())), PROBED_SAMPLES):
            probes = torch.stack(_evenly(list(own), PROBED_POINTS))
            distances = torch.cdist(probes, own, compute_mode="donot_use_mm_for_euclid_dist")
            others = torch.where(distances > 0, distances, torch.inf).topk(min(NEIGHBOURS, len(own)), largest=False).values
            nearest.append(torch.where(others.isfinite(), others, 0.0).amax(-1))
    found = torch.cat(nearest) if nearest else torch.empty(0)
    found = found[found > 0]
    return float(found.median()) if len(found) else 0.0


def _evenly(items: list[Tensor], count: int) -> list[Tensor]:
    """At most `count` of the items, from all over the list."""
    return items[:: -(-len(items) // count)]


def _spread(points: list[tuple[Tensor, Tensor]]) -> float:
    """Root mean square distance per coordinate of points from the centre of their sample."""
    if not points:
        return 0.0
    x, sample = torch.cat([x for x, _ in points]), torch.cat([sample for _, sample in points])
    size = int(sample.max()) + 1
    count = torch.bincount(sample, minlength=size).clamp(min=1)
    centre = x.new_zeros(size, x.shape[-1]).index_add_(0, sample, x) / count[:, None]
    spread = float((x - centre[sample]).square().mean().sqrt())
    # equal points far from 0 seem to differ from their mean, by rounding
    return spread if spread > 1e-12 * float(x.abs().max()) else 0.0


def power_of_two(value: float) -> float:
    """The nearest power of two; 1 for a constant column, which has no unit."""
    return 2.0 ** round(math.log2(value)) if value > 0 else 1.0
