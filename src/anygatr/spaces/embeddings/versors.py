"""Rigid motions as versors and back: rotations, translations, reflections and motors.

A rotation is a rotor R of space, a translation by t is 1 + infinity t / 2, a motor is their product: x -> R x + t.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from anygatr.spaces.coordinates import Coordinates, Multivector, coordinates, finite, nonzero
from anygatr.spaces.embeddings.flats import divide, embed_plane, foot, square
from anygatr.spaces.space import HasSpace, Space


def embed_rotation(geo: HasSpace, rotation: Float[Tensor, "..."]) -> Multivector:
    """The rotor cos(a/2) - sin(a/2) B: from a quaternion (x, y, z, w) in 3D, an angle of shape (...,) in 2D."""
    space = geo.require("rotation")
    return space.lift(_rotor(space, rotation))


def extract_rotation(geo: HasSpace, mv: Multivector) -> Tensor:
    """The unit quaternion (x, y, z, w) in 3D, the angle in (-pi, pi] in 2D."""
    space = geo.require("rotation")
    assert space.tables.turns is not None
    rotor = space.read(mv)
    w, xyz = rotor[..., :1], -_square_of_axes(space) * (rotor @ space.tables.turns.to(mv).T)
    if space.dim == 2:
        return torch.atan2(2 * w * xyz, w.square() - xyz.square()).squeeze(-1)
    q = torch.cat([xyz, w], dim=-1)
    return q / q.norm(dim=-1, keepdim=True).clamp(min=1e-12)


def embed_translation(geo: HasSpace, t: Coordinates) -> Multivector:
    """The translator 1 + infinity t / 2."""
    space = geo.require("translation")
    return translator(space, space.vector(t, "t"))


def extract_translation(geo: HasSpace, mv: Multivector) -> Tensor:
    """The displacement of a translator of any weight."""
    space = geo.require("translation")
    return 2 * space.components(space.read_ideal(mv)) / nonzero(space.read(mv)[..., :1])


def embed_reflection(geo: HasSpace, normal: Coordinates, point: Coordinates | None = None) -> Multivector:
    """The reflection in the plane through `point` (default: the coordinate origin), as its unit plane."""
    space = geo.require("reflection")
    n = space.vector(normal, "normal")
    size = square(space, n).abs().sqrt()
    if not torch.compiler.is_compiling() and bool((size == 0).any()):
        raise ValueError("normal has zero length, so it reflects nothing; pass the direction orthogonal to the mirror")
    return space.lift(n / size) if point is None else embed_plane(geo, normal / size, point)


def extract_reflection(geo: HasSpace, mv: Multivector) -> tuple[Tensor, Tensor]:
    """The unit normal, and the point of the mirror nearest to the coordinate origin."""
    space = geo.require("reflection")
    plane = space.algebra.grade(mv, 1)
    n = space.read(plane)
    size = nonzero(square(space, n).abs().sqrt())
    return space.components(n / size), foot(space, plane, None)


def embed_motor(geo: HasSpace, rotation: Float[Tensor, "..."], t: Coordinates) -> Multivector:
    """The rigid motion x -> R x + t as the versor (1 + infinity t / 2) R."""
    space = geo.require("motor")
    rotor, shift = _rotor(space, rotation), space.vector(t, "t")
    return space.lift(rotor) + space.lift_ideal(space.base.geometric(shift, rotor)) / 2


def extract_motor(geo: HasSpace, mv: Multivector) -> tuple[Tensor, Tensor]:
    """The rotation and the translation of a motor of any weight."""
    space = geo.require("motor")
    rotor = space.read(mv) * (space.base.grades % 2 == 0).to(mv)
    return extract_rotation(geo, mv), 2 * space.components(divide(space, space.read_ideal(mv), rotor))


def rotate(geo: HasSpace, rotation: Float[Tensor, "..."], x: Coordinates) -> Tensor:
    """The vector x turned by a rotation: R x R^-1."""
    space = geo.require("rotation")
    base, rotor = space.base, _rotor(space, rotation)
    return space.components(base.geometric(base.geometric(rotor, space.vector(x, "x")), base.reverse(rotor)))


def translator(space: Space, t: Tensor) -> Multivector:
    """1 + infinity t / 2 for a vector t of the algebra of space."""
    return space.tables.one.to(t) + space.lift_ideal(t) / 2


def _rotor(space: Space, rotation: Tensor) -> Tensor:
    """The rotor of a quaternion or angle, in the algebra of space."""
    assert space.tables.turns is not None
    if space.dim == 2:
        half = finite(rotation, "rotation").unsqueeze(-1) / 2
        q = torch.cat([half.sin(), half.cos()], dim=-1)
    else:
        q = coordinates(rotation, "rotation", 4)
        size = q.norm(dim=-1, keepdim=True)
        if not torch.compiler.is_compiling() and bool((size == 0).any()):
            raise ValueError("rotation contains a zero quaternion; the identity is (x, y, z, w) = (0, 0, 0, 1)")
        q = q / size
    out = -_square_of_axes(space) * (q[..., :-1] @ space.tables.turns.to(q))
    return out + q[..., -1:] * space.base["1"].to(q)


def _square_of_axes(space: Space) -> int:
    """+1 or -1: the rotor that turns e1 towards e2 changes sign with the metric of space."""
    return space.base.squares[-1]
