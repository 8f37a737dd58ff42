"""What stands for an object in a geometry that does not have it: simpler ones that say the same relative to the origin.

`divide` functions take (geo, origin, *pieces) to the pieces of the substitutes, `unite` functions take those back.
"""

import torch
from torch import Tensor

from anygatr.spaces.coordinates import Multivector, absolute, nonzero, relative
from anygatr.spaces.embeddings.versors import embed_motor, extract_motor, rotate
from anygatr.spaces.pieces import Pieces
from anygatr.spaces.space import HasSpace

TINY = 1e-12  # below this a vector has no direction


def unchanged(geo: HasSpace, origin: Tensor | None, *pieces: Tensor) -> Pieces:
    """The pieces themselves, where each has a kind of its own."""
    return pieces


def offset(geo: HasSpace, origin: Tensor | None, normal: Tensor, point: Tensor) -> Pieces:
    """A plane as its normal and its offset <n, p> from the origin."""
    return normal, (normal * relative(point, origin)).sum(-1)


def from_offset(geo: HasSpace, origin: Tensor | None, normal: Tensor, offset: Tensor) -> Pieces:
    """A plane from its normal and its offset."""
    square = nonzero(normal.square().sum(-1, keepdim=True), 1e-6)
    return normal, absolute(offset.unsqueeze(-1) * normal / square, origin)


def nearest(geo: HasSpace, origin: Tensor | None, point: Tensor, direction: Tensor) -> Pieces:
    """A line as its point nearest to the origin and its direction."""
    square = nonzero(direction.square().sum(-1, keepdim=True), 1e-6)
    along = (relative(point, origin) * direction).sum(-1, keepdim=True) * direction / square
    return point - along, direction


def orthonormal(geo: HasSpace, origin: Tensor | None, a: Tensor, b: Tensor) -> Pieces:
    """The first two columns of a rotation matrix from any two vectors, by Gram-Schmidt; they turn as the vectors do."""
    first = a / a.norm(dim=-1, keepdim=True).clamp(min=TINY)
    rest = b - (first * b).sum(-1, keepdim=True) * first
    return first, rest / rest.norm(dim=-1, keepdim=True).clamp(min=TINY)


def relative_motor(geo: HasSpace, origin: Tensor | None, rotation: Tensor, t: Tensor) -> Pieces:
    """x -> R x + t seen from the origin c: x - c -> R (x - c) + (t + R c - c)."""
    return (rotation, t) if origin is None else (rotation, relative(t, origin - rotate(geo, rotation, origin.expand_as(t))))


def absolute_motor(geo: HasSpace, origin: Tensor | None, rotation: Tensor, t: Tensor) -> Pieces:
    """The inverse of `relative_motor`."""
    if origin is None:
        return rotation, t
    centre = origin.expand(*t.shape[:-1], origin.shape[-1])
    return rotation, absolute(t, centre - rotate(geo, rotation.to(centre), centre))


def embed_motor_from(geo: HasSpace, rotation: Tensor, t: Tensor, origin: Tensor | None) -> Multivector:
    """The motor seen from the origin."""
    return embed_motor(geo, *relative_motor(geo, origin, rotation, t))


def extract_motor_from(geo: HasSpace, mv: Multivector, origin: Tensor | None) -> Pieces:
    """The inverse of `embed_motor_from`."""
    return absolute_motor(geo, origin, *extract_motor(geo, mv))


def move_motor(geo: HasSpace, pieces: Pieces, matrix: Tensor, translation: Tensor) -> Pieces:
    """g R g^-1 for g: x -> M x + t, from the pieces that M has already turned."""
    rotation, shift = pieces
    return rotation, shift + translation - rotate(geo, rotation, translation.expand_as(shift))


def energy_and_momentum(geo: HasSpace, origin: Tensor | None, p: Tensor) -> Pieces:
    """A four-momentum as a scalar and a vector."""
    return p[..., 0], p[..., 1:]


def four_momentum(geo: HasSpace, origin: Tensor | None, energy: Tensor, p: Tensor) -> Pieces:
    """The inverse of `energy_and_momentum`."""
    return (torch.cat([energy.unsqueeze(-1), p], -1),)
