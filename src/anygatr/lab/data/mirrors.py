"""Whether a target changes under mirrors: samples that are their own mirror image, and how far their targets are from it."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from anygatr.lab.data.dataset import Dataset
from anygatr.lab.data.kinds import base_kind, columns
from anygatr.spaces import kinds
from anygatr.spaces.geometry import Geometry
from anygatr.spaces.presets import geometry

TOLERANCE = 1e-5
"""Coordinates of a mirror image may differ from the sample by this share of its extent: what float32 keeps, and a margin."""
MOST_SAMPLES, MOST_TOKENS = 256, 64
"""Samples that are looked at, at most, and tokens that a sample may have to be looked at."""


@dataclass(frozen=True)
class Mirror:
    """x -> matrix x + shift maps a sample to itself, token i to token order[i]."""

    matrix: Tensor
    shift: Tensor
    order: Tensor


def samples_with_mirrors(data: Dataset, geo: Geometry) -> Iterator[tuple[Dataset, Mirror | None]]:
    """Samples, one by one, with a mirror that leaves all their inputs as they are, where one was found.

    Looked for are mirrors through the centre whose normal is a principal axis or joins the outermost point with another.
    Flat samples have one: the plane they lie in.
    """
    stride = max(1, len(data) // MOST_SAMPLES)
    for i in range(0, len(data), stride):
        one = data.select(torch.tensor([i])).dense()
        yield one, _mirror_of(one, geo) if int(one.counts[0]) <= MOST_TOKENS else None


def space_of(data: Dataset) -> Geometry | None:
    """A geometry that knows how all fields move; None where no point, or a kind that is at home elsewhere, is among them."""
    geo = geometry("E", dim=data.dim)
    if data.dim < 2 or not any(kind == "point" for kind in data.input_kinds.values()):
        return None
    try:
        for kind in data.kinds.values():
            kinds.columns(geo, base_kind(kind))
    except ValueError:
        return None
    return geo


def moved_field(geo: Geometry, kind: str, x: Tensor, matrix: Tensor, shift: Tensor) -> Tensor:
    """A field after x -> matrix x + shift, in float64."""
    values = x.double().unsqueeze(-1) if columns(kind, geo.dim) == 1 else x.double()
    objects = values.split(columns(base_kind(kind), geo.dim), -1)
    return torch.cat([kinds.move(geo, base_kind(kind), one, matrix, shift) for one in objects], -1).reshape(x.shape)


def _mirror_of(sample: Dataset, geo: Geometry) -> Mirror | None:
    place = next(name for name, kind in sample.input_kinds.items() if kind == "point")
    x = sample.fields[place][0].double()
    centre = x.mean(0)
    size = float(torch.linalg.vector_norm(x - centre, dim=-1).max())
    for normal in _normals(x - centre):
        matrix = torch.eye(geo.dim, dtype=torch.float64) - 2 * torch.outer(normal, normal)
        shift = centre - matrix @ centre
        order = _matched(x, x @ matrix.T + shift, TOLERANCE * max(size, 1e-300))
        if order is not None and _is_symmetric(sample, geo, matrix, shift, order):
            return Mirror(matrix, shift, order)
    return None


def _normals(x: Tensor) -> Iterator[Tensor]:
    """Candidates for the normal of a mirror through the centre of points x (n, d)."""
    _, _, axes = torch.linalg.svd(torch.cat([x, torch.zeros(x.shape[-1], x.shape[-1], dtype=x.dtype)]), full_matrices=False)
    yield from axes.flip(0)  # the flattest direction first
    far = x[torch.linalg.vector_norm(x, dim=-1).argmax()]
    for away in x - far:
        length = torch.linalg.vector_norm(away)
        if length > 0:
            yield away / length


def _matched(x: Tensor, image: Tensor, tolerance: float) -> Tensor | None:
    """order with image[i] = x[order[i]], if the image is the same set of points."""
    distance = torch.cdist(image, x, compute_mode="donot_use_mm_for_euclid_dist")
    least, order = distance.min(-1)
    return order if float(least.max()) <= tolerance and len(order.unique()) == len(order) else None


def _is_symmetric(sample: Dataset, geo: Geometry, matrix: Tensor, shift: Tensor, order: Tensor) -> bool:
    for name, kind in sample.input_kinds.items():
        x = sample.fields[name][0].double()
        image = moved_field(geo, kind, x, matrix, shift)
        if not np.allclose(image, x[order], rtol=0, atol=TOLERANCE * max(float(x.abs().max()), 1e-300)):
            return False
    return True
