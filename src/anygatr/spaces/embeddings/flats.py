"""Flats as multivectors and back: planes and lines, in inner-product-null form.

A flat through p with the normal blade B of space is B + infinity ^ (p . B): its plane for a vector B, its line for the
dual of a direction. The length of a normal or direction is kept, so that every embedding is linear in it.
"""

from torch import Tensor

from anygatr.spaces.coordinates import SMALL, Coordinates, Multivector, absolute, nonzero
from anygatr.spaces.space import HasSpace, Space


def embed_plane(geo: HasSpace, normal: Coordinates, point: Coordinates, origin: Tensor | None = None) -> Multivector:
    """The plane n + delta*infinity through `point`, with delta = <n, point>; a hyperplane when d is not 3."""
    space = geo.require("plane")
    n = space.vector(normal, "normal")
    return flat(space, n, space.vector(point, "point", origin))


def extract_plane(geo: HasSpace, mv: Multivector, origin: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The normal, and the point of the plane nearest to the origin."""
    space = geo.require("plane")
    plane = space.algebra.grade(mv, 1)
    return space.components(space.read(plane)), foot(space, plane, origin)


def embed_line(geo: HasSpace, point: Coordinates, direction: Coordinates, origin: Tensor | None = None) -> Multivector:
    """The line through `point` along `direction`: the flat whose normal blade is the dual of the direction."""
    space = geo.require("line")
    normals = space.base.dual(space.vector(direction, "direction"))
    return flat(space, normals, space.vector(point, "point", origin))


def extract_line(geo: HasSpace, mv: Multivector, origin: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The point of the line nearest to the origin, and the direction."""
    space = geo.require("line")
    line = space.algebra.grade(mv, len(space.axes) - 1)
    return foot(space, line, origin), space.components(space.base.undual(space.read(line)))


def flat(space: Space, normals: Tensor, p: Tensor) -> Multivector:
    """B + infinity ^ (p . B) for a blade B and a vector p of the algebra of space."""
    base = space.base
    contracted = (base.geometric(p, normals) - base.geometric(base.involute(normals), p)) / 2
    return space.lift(normals) + space.lift_ideal(contracted)


def foot(space: Space, mv: Multivector, origin: Tensor | None) -> Tensor:
    """The point (p . B) B^-1 of a flat."""
    normals = space.read(mv)
    return absolute(space.components(divide(space, space.read_ideal(mv), normals)), origin)


def divide(space: Space, x: Tensor, blade: Tensor) -> Tensor:
    """x blade^-1 = x reverse(blade) / <blade, blade>, in the algebra of space."""
    return space.base.geometric(x, space.base.reverse(blade)) / divisor(space, blade)


def divisor(space: Space, blade: Tensor) -> Tensor:
    """<blade, blade> in the algebra of space, safe to divide by, with a last axis of one."""
    return nonzero(square(space, blade), SMALL**2)


def square(space: Space, x: Tensor) -> Tensor:
    """<x, x> in the algebra of space, with a last axis of one."""
    return space.base.inner(x, x).unsqueeze(-1)
