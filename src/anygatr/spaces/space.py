"""Where R^d lives in an algebra: its axes, infinity and o, and the kinds of objects that follow from them."""

from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import combinations
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from anygatr.algebra import Algebra

Coordinates = Float[Tensor, "*#batch d"]
Multivector = Float[Tensor, "*batch k"]
PointRule = Literal["relative", "meet", "null"]

SMALL = 1e-3  # a homogeneous weight below this is replaced by it, so that a read-out never divides by zero

PRESETS_WITH = {
    "scalar": "E, P, iP, C, L",
    "pseudoscalar": "E, P, iP, C, L",
    "vector": "E, P, iP, C, L",
    "reflection": "E, P, iP, C, L",
    "point": "E, P, iP, C",
    "oriented_point": "P, iP, C",
    "plane": "P, iP, C",
    "line": "P, iP, C in 2 or more dimensions",
    "rotation": "E, P, iP, C, L in 2 or 3 dimensions",
    "translation": "P, iP, C",
    "motor": "P, iP, C in 2 or 3 dimensions",
    "sphere": "C",
    "circle": "C in 3 dimensions (in 2 a circle is a sphere)",
    "pair": "C",
    "momentum": "L",
}


@dataclass(frozen=True, eq=False)
class Split:
    """The part of an algebra spanned by S, inf ^ S and o ^ S, where S runs through the algebra G(axes) of space.

    Row i of `flat`, `ideal` and `polar` is the image of blade i of `space`; without infinity or o their rows are zero.
    """

    space: Algebra
    flat: Float[Tensor, "s k"]
    ideal: Float[Tensor, "s k"]
    polar: Float[Tensor, "s k"]


class Space:
    """The declaration every embedding needs; `Geometry` adds what a network needs."""

    name: str
    algebra: Algebra
    axes: tuple[str, ...]
    infinity: Float[Tensor, " k"]
    point: PointRule | None
    ideal: Float[Tensor, " k"]
    time: str | None

    @property
    def dim(self) -> int:
        """The dimension d of space; time, where there is one, not counted."""
        return len(self.axes) - (self.time is not None)

    @cached_property
    def o(self) -> Float[Tensor, " k"]:
        """The null vector with <o, infinity> = -1 at the origin; zero where there is none."""
        v = self.infinity[self.algebra.slices[1]]
        squares = torch.tensor(self.algebra.squares, dtype=v.dtype)
        return self.algebra.vector(-squares * v / v.square().sum().clamp(min=1e-300))

    @cached_property
    def split(self) -> Split:
        """The lifts from the algebra of space into this one."""
        alg, squares = self.algebra, dict(zip(self.algebra.names or (), self.algebra.squares, strict=True))
        positive = sum(squares[axis] > 0 for axis in self.axes)
        space = Algebra(positive, len(self.axes) - positive, 0, names=self.axes)
        subsets = [subset for grade in range(space.n + 1) for subset in combinations(self.axes, grade)]
        flat = torch.stack([reduce(alg.outer, [alg[axis] for axis in subset], alg["1"]) for subset in subsets])
        return Split(space, flat, alg.outer(self.infinity, flat), alg.outer(self.o, flat))

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of objects this geometry can represent without loss."""
        far, spheres = bool(self.infinity.any()), bool(self.o.any())
        turns, points = self.dim in (2, 3), self.point is not None
        able = {
            "scalar": True,
            "pseudoscalar": True,
            "vector": True,
            "reflection": True,
            "point": points,
            "oriented_point": points and far,
            "plane": far,
            "line": far and len(self.axes) > 1,
            "rotation": turns,
            "translation": far,
            "motor": far and turns,
            "sphere": spheres,
            "circle": spheres and len(self.axes) == 3,
            "pair": spheres,
            "momentum": self.time is not None,
        }
        return tuple(kind for kind, can in able.items() if can)

    def require(self, kind: str) -> None:
        """Raise unless this geometry can represent that kind."""
        if kind not in self.kinds:
            raise ValueError(
                f"geometry {self.name!r} with dim={self.dim} cannot represent a {kind.replace('_', ' ')}; "
                f"these can: {PRESETS_WITH[kind]}"
            )

    def carrier(self, mv: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch k"]:
        """The flat that carries a multivector: -(infinity . mv) where o exists, mv itself elsewhere.

        Equivariant, and free of o: a circle goes to its plane, o ^ v to v. Directions are read from it, because no part
        of it mixes into them under translations.
        """
        return self.blades(mv) @ self._carrier.to(mv) if "sphere" in self.kinds else self.blades(mv)

    def lift(self, x: Float[Tensor, "*batch s"]) -> Float[Tensor, "*batch k"]:
        """A multivector of the algebra of space as one of this algebra."""
        return x @ self.split.flat.to(x)

    def lift_ideal(self, x: Float[Tensor, "*batch s"]) -> Float[Tensor, "*batch k"]:
        """infinity ^ x for a multivector x of the algebra of space."""
        return x @ self.split.ideal.to(x)

    def read(self, mv: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch s"]:
        """The part of mv in the algebra of space."""
        return self.blades(mv) @ _coefficients(self.split.flat).to(mv)

    def read_ideal(self, mv: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch s"]:
        """The x of the part infinity ^ x of mv."""
        return self.blades(mv) @ _coefficients(self.split.ideal).to(mv)

    def blades(self, mv: Multivector) -> Multivector:
        """The argument itself, once it is known to have one component per blade."""
        if not isinstance(mv, Tensor) or mv.dim() < 1 or mv.shape[-1] != self.algebra.dim:
            found = tuple(mv.shape) if isinstance(mv, Tensor) else type(mv).__name__
            raise ValueError(f"mv has shape {found}; geometry {self.name!r} has {self.algebra.dim} blades on the last axis")
        return mv

    def _vector(self, v: Tensor, label: str, origin: Tensor | None = None) -> Tensor:
        return self.split.space.vector(relative(coordinates(v, label, len(self.axes)), origin))

    def _components(self, x: Tensor) -> Tensor:
        return x[..., self.split.space.slices[1]]

    @cached_property
    def _carrier(self) -> Float[Tensor, "k k"]:
        alg = self.algebra
        # infinity . x = (infinity x - involute(x) infinity) / 2; transposed, because multivectors are rows
        involution = torch.diag(1.0 - 2.0 * (alg.grades % 2))
        return -(alg.left(self.infinity) - alg.right(self.infinity) @ involution.double()).T / 2


def coordinates(x: Tensor, label: str, size: int) -> Tensor:
    """The argument itself, once its type, last axis and finiteness have been checked."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        found = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"{label} is {found}; pass a floating point tensor, e.g. torch.as_tensor({label}).double()")
    if x.dim() < 1 or x.shape[-1] != size:
        raise ValueError(f"{label} has shape {tuple(x.shape)}; the last axis must have {size} components")
    return finite(x, label)


def finite(x: Tensor, label: str) -> Tensor:
    """The argument itself, once it is known to hold no NaN or infinity."""
    if not torch.compiler.is_compiling() and not bool(torch.isfinite(x).all()):
        bad = tuple(int(i) for i in (~torch.isfinite(x)).nonzero()[0])
        raise ValueError(f"{label} contains NaN or infinity, first at index {bad}; clean the data or mask that token")
    return x


def relative(x: Tensor, origin: Tensor | None) -> Tensor:
    """Coordinates from the origin, subtracted in their own dtype."""
    if origin is None:
        return x
    if origin.dim() < 1 or origin.shape[-1] != x.shape[-1]:
        raise ValueError(
            f"origin has shape {tuple(origin.shape)}; give it {x.shape[-1]} coordinates, e.g. geo.origin(points)"
        )
    return x - origin.to(x)


def absolute(x: Tensor, origin: Tensor | None) -> Tensor:
    """Coordinates back in the frame of the origin, in the wider of the two dtypes."""
    return x if origin is None else x + origin


def nonzero(x: Tensor, least: float = SMALL) -> Tensor:
    """Homogeneous weights safe to divide by: those of at most `least` in absolute value become `least`."""
    return torch.where(x.abs() > least, x, torch.full_like(x, least))


def _coefficients(rows: Tensor) -> Tensor:
    """The matrix that reads the coefficients of mutually orthogonal rows; zero rows read zero."""
    return (rows / rows.square().sum(-1, keepdim=True).clamp(min=1e-300)).T
