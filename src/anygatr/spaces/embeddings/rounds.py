"""Rounds as multivectors and back: spheres, circles and point pairs, in inner-product-null form.

A round is the sphere of its centre and radius, cut by a flat through that centre.
"""

from jaxtyping import Float
from torch import Tensor

from anygatr.spaces.coordinates import Coordinates, Multivector, absolute, finite
from anygatr.spaces.embeddings.flats import divide, divisor, embed_plane, flat, square
from anygatr.spaces.space import HasSpace, Space


def embed_sphere(
    geo: HasSpace, centre: Coordinates, radius: Float[Tensor, "*#batch"], origin: Tensor | None = None
) -> Multivector:
    """The sphere point(centre) - radius^2 infinity / 2."""
    space = geo.require("sphere")
    c = space.vector(centre, "centre", origin)
    r = finite(radius, "radius").unsqueeze(-1)
    return _sphere(space, c, (square(space, c) - r.square()) / 2)


def extract_sphere(geo: HasSpace, mv: Multivector, origin: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The centre, and the radius sqrt(<mv, mv>) of the sphere of weight one; zero for an imaginary sphere."""
    space = geo.require("sphere")
    return _centre_and_radius(space, space.algebra.grade(mv, 1), origin)


def embed_circle(
    geo: HasSpace,
    centre: Coordinates,
    normal: Coordinates,
    radius: Float[Tensor, "*#batch"],
    origin: Tensor | None = None,
) -> Multivector:
    """The circle sphere ^ plane: the sphere around its centre, cut by the plane through it."""
    space = geo.require("circle")
    return space.algebra.outer(embed_sphere(geo, centre, radius, origin), embed_plane(geo, normal, centre, origin))


def extract_circle(geo: HasSpace, mv: Multivector, origin: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """The centre, the normal and the radius."""
    space = geo.require("circle")
    circle = space.algebra.grade(mv, 2)
    centre, radius = _centre_and_radius(space, circle, origin)
    return centre, space.components(space.read(space.carrier(circle))), radius


def embed_pair(geo: HasSpace, a: Coordinates, b: Coordinates, origin: Tensor | None = None) -> Multivector:
    """The ordered pair of points: the sphere with diameter ab, cut by the line from a to b."""
    space = geo.require("pair")
    start, end = space.vector(a, "a", origin), space.vector(b, "b", origin)
    centre = (start + end) / 2
    # |centre|^2 - |b - a|^2 / 4 = <a, b>: the radius never enters, so nothing is singular at a = b
    sphere = _sphere(space, centre, space.base.inner(start, end).unsqueeze(-1) / 2)
    return space.algebra.outer(sphere, flat(space, space.base.dual(end - start), centre))


def extract_pair(geo: HasSpace, mv: Multivector, origin: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The two points, in order."""
    space = geo.require("pair")
    pair = space.algebra.grade(mv, len(space.axes))
    centre, radius = _centre_and_radius(space, pair, origin)
    direction = space.components(space.base.undual(space.read(space.carrier(pair))))
    half = radius.unsqueeze(-1) * direction / direction.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    return centre - half, centre + half


def _sphere(space: Space, centre: Tensor, height: Tensor) -> Multivector:
    """o + centre + height*infinity, where height = (<centre, centre> - radius^2) / 2."""
    tables = space.tables
    return tables.o.to(centre) + space.lift(centre) + height * tables.infinity.to(centre)


def _centre_and_radius(space: Space, mv: Tensor, origin: Tensor | None) -> tuple[Tensor, Tensor]:
    """The centre c and radius of sphere(c, r) ^ flat(B, c), whose terms hold c . B, c ^ B and r^2 <B, B>."""
    carrier = space.carrier(mv)
    normals = space.read(carrier)
    centre = space.components(divide(space, space.read_ideal(carrier) + space.read(mv), normals))
    squared = space.basis.inner(mv, mv) / divisor(space, normals).squeeze(-1)
    return absolute(centre, origin), squared.clamp(min=1e-24).sqrt()
