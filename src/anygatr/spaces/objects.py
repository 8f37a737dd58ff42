"""Flats and rounds as multivectors and back: planes, lines, spheres, circles, point pairs, in inner-product-null form.

A flat through p with the normal blade B of space is B + infinity ^ (p . B): its plane for a vector B, its line for the
dual of a direction. A round is the sphere of its centre and radius, cut by a flat through that centre. The length of a
normal or direction is kept, so that every embedding is linear in it.
"""

from jaxtyping import Float
from torch import Tensor

from anygatr.spaces.space import SMALL, Coordinates, Multivector, Space, absolute, finite, nonzero


class Objects(Space):
    """The embeddings of extended objects and their inverses."""

    def embed_plane(self, normal: Coordinates, point: Coordinates, origin: Tensor | None = None) -> Multivector:
        """The plane n + delta*infinity through `point`, with delta = <n, point>; a hyperplane when d is not 3."""
        self.require("plane")
        n = self._vector(normal, "normal")
        return self._flat(n, self._vector(point, "point", origin))

    def extract_plane(self, mv: Multivector, origin: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The normal, and the point of the plane nearest to the origin."""
        self.require("plane")
        plane = self.algebra.grade(mv, 1)
        return self._components(self.read(plane)), self._foot(plane, origin)

    def embed_line(self, point: Coordinates, direction: Coordinates, origin: Tensor | None = None) -> Multivector:
        """The line through `point` along `direction`: the flat whose normal blade is the dual of the direction."""
        self.require("line")
        normals = self.split.space.dual(self._vector(direction, "direction"))
        return self._flat(normals, self._vector(point, "point", origin))

    def extract_line(self, mv: Multivector, origin: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The point of the line nearest to the origin, and the direction."""
        self.require("line")
        line = self.algebra.grade(mv, len(self.axes) - 1)
        return self._foot(line, origin), self._components(self.split.space.undual(self.read(line)))

    def embed_sphere(
        self, centre: Coordinates, radius: Float[Tensor, "*#batch"], origin: Tensor | None = None
    ) -> Multivector:
        """The sphere point(centre) - radius^2 infinity / 2."""
        self.require("sphere")
        c = self._vector(centre, "centre", origin)
        r = finite(radius, "radius").unsqueeze(-1)
        height = (self._square(c) - r.square()) / 2
        return self.o.to(c) + self.lift(c) + height * self.infinity.to(c)

    def extract_sphere(self, mv: Multivector, origin: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The centre, and the radius sqrt(<mv, mv>) of the sphere of weight one; zero for an imaginary sphere."""
        self.require("sphere")
        return self._round(self.algebra.grade(mv, 1), origin)

    def embed_circle(
        self, centre: Coordinates, normal: Coordinates, radius: Float[Tensor, "*#batch"], origin: Tensor | None = None
    ) -> Multivector:
        """The circle sphere ^ plane: the sphere around its centre, cut by the plane through it."""
        self.require("circle")
        return self.algebra.outer(self.embed_sphere(centre, radius, origin), self.embed_plane(normal, centre, origin))

    def extract_circle(self, mv: Multivector, origin: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """The centre, the normal and the radius."""
        self.require("circle")
        circle = self.algebra.grade(mv, 2)
        centre, radius = self._round(circle, origin)
        return centre, self._components(self.read(self.carrier(circle))), radius

    def embed_pair(self, a: Coordinates, b: Coordinates, origin: Tensor | None = None) -> Multivector:
        """The ordered pair of points: the sphere with diameter ab, cut by the line from a to b."""
        self.require("pair")
        space = self.split.space
        start, end = self._vector(a, "a", origin), self._vector(b, "b", origin)
        centre = (start + end) / 2
        # |centre|^2 - |b - a|^2 / 4 = <a, b>: the radius never enters, so nothing is singular at a = b
        height = space.inner(start, end).unsqueeze(-1) / 2
        sphere = self.o.to(centre) + self.lift(centre) + height * self.infinity.to(centre)
        return self.algebra.outer(sphere, self._flat(space.dual(end - start), centre))

    def extract_pair(self, mv: Multivector, origin: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The two points, in order."""
        self.require("pair")
        pair = self.algebra.grade(mv, len(self.axes))
        centre, radius = self._round(pair, origin)
        direction = self._components(self.split.space.undual(self.read(self.carrier(pair))))
        half = radius.unsqueeze(-1) * direction / direction.norm(dim=-1, keepdim=True).clamp(min=1e-12)
        return centre - half, centre + half

    def _flat(self, normals: Tensor, p: Tensor) -> Tensor:
        """B + infinity ^ (p . B) for a blade B and a vector p of the algebra of space."""
        return self.lift(normals) + self.lift_ideal(self._contract(p, normals))

    def _foot(self, flat: Tensor, origin: Tensor | None) -> Tensor:
        """The point (p . B) B^-1 of a flat."""
        normals = self.read(flat)
        return absolute(self._components(self._divide(self.read_ideal(flat), normals)), origin)

    def _round(self, mv: Tensor, origin: Tensor | None) -> tuple[Tensor, Tensor]:
        """The centre c and radius of sphere(c, r) ^ flat(B, c), whose terms hold c . B, c ^ B and r^2 <B, B>."""
        flat = self.carrier(mv)
        normals = self.read(flat)
        centre = self._components(self._divide(self.read_ideal(flat) + self.read(mv), normals))
        squared = self.algebra.inner(mv, mv) / self._norm(normals).squeeze(-1)
        return absolute(centre, origin), squared.clamp(min=1e-24).sqrt()

    def _contract(self, v: Tensor, x: Tensor) -> Tensor:
        space = self.split.space
        return (space.geometric(v, x) - space.geometric(space.involute(x), v)) / 2

    def _divide(self, x: Tensor, blade: Tensor) -> Tensor:
        """x blade^-1 = x reverse(blade) / <blade, blade>."""
        space = self.split.space
        return space.geometric(x, space.reverse(blade)) / self._norm(blade)

    def _norm(self, blade: Tensor) -> Tensor:
        return nonzero(self.split.space.inner(blade, blade).unsqueeze(-1), SMALL**2)

    def _square(self, v: Tensor) -> Tensor:
        return self.split.space.inner(v, v).unsqueeze(-1)
