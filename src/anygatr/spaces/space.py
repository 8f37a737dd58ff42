"""Space: where R^d lives in an algebra, as a small frozen declaration with the tables of its embeddings."""

from copy import copy
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from typing import Protocol, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from anygatr.algebra import Algebra
from anygatr.spaces.coordinates import Multivector, coordinates, relative
from anygatr.spaces.stream_basis import StreamBasis
from anygatr.spaces.tables import EmbeddingTables, PointRule


@dataclass(frozen=True, eq=False)
class Space:
    """The axes of R^d in an algebra, the vector infinity, and what a point and a free vector are.

    Planes are n + delta*infinity and translations 1 + infinity t / 2 in every space. `Geometry` documents the arguments.
    """

    algebra: Algebra
    axes: tuple[str, ...]
    infinity: Float[Tensor, " k"] = None  # type: ignore[assignment]
    point: PointRule | None = None
    ideal: Float[Tensor, " k"] = None  # type: ignore[assignment]
    time: str | None = None
    name: str = "custom"
    basis: StreamBasis = None  # type: ignore[assignment]
    """The blades of multivectors that are embedded and read; default: the algebra's. `infinity`, `ideal` and `o` are given
    in the algebra's."""
    o: Float[Tensor, " k"] = field(init=False, repr=False)
    """The null vector with <o, infinity> = -1 at the origin; zero where there is none."""
    has_infinity: bool = field(init=False)
    """Whether infinity is not zero, so that translations move something."""
    has_o: bool = field(init=False)
    """Whether o is not zero, so that there are spheres."""

    def __post_init__(self) -> None:
        replace = object.__setattr__
        replace(self, "axes", tuple(self.axes))
        replace(self, "basis", self.basis or StreamBasis(self.algebra))
        replace(self, "infinity", _vector(self.algebra, self.infinity, "infinity"))
        replace(self, "ideal", self.infinity if self.ideal is None else _vector(self.algebra, self.ideal, "ideal"))
        replace(self, "o", _opposite(self.algebra, self.infinity))
        replace(self, "has_infinity", bool(self.infinity.any()))
        replace(self, "has_o", bool(self.o.any()))
        self._check()

    @cached_property
    def tables(self) -> EmbeddingTables:
        """The constants of all embeddings. Compute them before tracing: `Geometry` does."""
        declared = self.axes, self.time, self.infinity, self.o, self.ideal, self.point
        return EmbeddingTables.of(self.algebra, *declared).stored_in(self.basis)

    @property
    def dim(self) -> int:
        """The dimension d of space; time, where there is one, not counted."""
        return len(self.axes) - (self.time is not None)

    @property
    def base(self) -> Algebra:
        """The algebra of the axes alone, in which normals, directions and rotors are computed."""
        return self.tables.split.space

    def on(self, device: torch.device) -> "Space":
        """The same with the constants of embeddings on a device."""
        out = copy(self)
        vectors = {name: getattr(self, name).to(device) for name in ("infinity", "ideal", "o")}
        out.__dict__.update(vectors, tables=self.tables.on(device))
        return out

    def vector(self, v: Tensor, label: str, origin: Tensor | None = None) -> Float[Tensor, "*batch s"]:
        """Coordinates, once checked, as a vector of the algebra of space, relative to the origin."""
        return self.base.vector(relative(coordinates(v, label, len(self.axes)), origin))

    def components(self, x: Float[Tensor, "*batch s"]) -> Float[Tensor, "*batch d"]:
        """The coordinates of the vector part of a multivector of the algebra of space."""
        return x[..., self.base.slices[1]]

    def lift(self, x: Float[Tensor, "*batch s"]) -> Float[Tensor, "*batch k"]:
        """A multivector of the algebra of space as one of this algebra."""
        return x @ self.tables.split.flat.to(x)

    def lift_ideal(self, x: Float[Tensor, "*batch s"]) -> Float[Tensor, "*batch k"]:
        """infinity ^ x for a multivector x of the algebra of space."""
        return x @ self.tables.split.ideal.to(x)

    def read(self, mv: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch s"]:
        """The part of mv in the algebra of space."""
        return self.blades(mv) @ self.tables.read_flat.to(mv)

    def read_ideal(self, mv: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch s"]:
        """The x of the part infinity ^ x of mv."""
        return self.blades(mv) @ self.tables.read_ideal.to(mv)

    def carrier(self, mv: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch k"]:
        """The flat that carries a multivector: -(infinity . mv) where o exists, mv itself elsewhere.

        Equivariant, and free of o: a circle goes to its plane, o ^ v to v. Directions are read from it, because no part
        of it mixes into them under translations.
        """
        matrix = self.tables.carrier
        return self.blades(mv) if matrix is None else self.blades(mv) @ matrix.to(mv)

    def blades(self, mv: Multivector) -> Multivector:
        """The argument itself, once it is known to have one component per blade."""
        if not isinstance(mv, Tensor) or mv.dim() < 1 or mv.shape[-1] != self.algebra.dim:
            found = tuple(mv.shape) if isinstance(mv, Tensor) else type(mv).__name__
            raise ValueError(f"mv has shape {found}; geometry {self.name!r} has {self.algebra.dim} blades on the last axis")
        return mv

    def _check(self) -> None:
        alg, names = self.algebra, self.algebra.names or ()
        squares = dict(zip(names, alg.squares, strict=True))
        ordered = list(self.axes) == [name for name in names if name in self.axes]
        if not self.axes or not ordered or any(not squares.get(axis) for axis in self.axes):
            raise ValueError(f"axes={self.axes!r} must be invertible generators in the order of {names}")
        infinity, ideal = alg.format(self.infinity), alg.format(self.ideal)
        along = any(float(self.infinity[alg.index(axis)]) for axis in self.axes)
        if along or abs(float(alg.inner(self.infinity, self.infinity))) > 1e-12:
            raise ValueError(f"infinity={infinity} must be null and orthogonal to the axes {self.axes}")
        if bool(alg.outer(self.ideal, self.infinity).any()) or bool(self.ideal.any()) != self.has_infinity:
            raise ValueError(f"ideal={ideal} must be a multiple of infinity={infinity}")
        if self.time is not None and self.time not in self.axes:
            raise ValueError(f"time={self.time!r} must be one of axes={self.axes!r}")
        choice("point", self.point, (*get_args(PointRule), None))
        fits = {"relative": not self.has_infinity, "meet": self.has_infinity, "null": self.has_o, None: True}
        if not fits[self.point]:
            able = [rule for rule, fit in fits.items() if fit]
            raise ValueError(f"point={self.point!r} does not exist with infinity={infinity}; use one of {able}")


class HasSpace(Protocol):
    """What embeddings and kinds of data take as their first argument; a `Geometry` is one."""

    @property
    def space(self) -> Space:
        """Where R^d lives."""

    def require(self, kind: str) -> Space:
        """The space, once it is known to have objects of that kind."""


def choice(label: str, value: object, options: tuple[object, ...]) -> None:
    """Raise unless the value is one of the options."""
    if value not in options:
        near = get_close_matches(str(value), [str(option) for option in options], n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{label}={value!r} is not one of {', '.join(map(repr, options))}{hint}")


def _vector(algebra: Algebra, x: Tensor | str | None, label: str) -> Float[Tensor, " k"]:
    if x is None:
        return torch.zeros(algebra.dim, dtype=torch.float64)
    out = algebra[x] if isinstance(x, str) else torch.as_tensor(x).detach().double().cpu()
    if out.shape != (algebra.dim,) or not bool(algebra.grade(out, 1).equal(out)):
        raise ValueError(
            f"{label} must be a vector of {algebra}: a multivector of grade 1 and shape ({algebra.dim},), or a name"
        )
    return out


def _opposite(algebra: Algebra, infinity: Tensor) -> Float[Tensor, " k"]:
    """The null vector o of the plane of infinity and its conjugate, with <o, infinity> = -1."""
    v = infinity[algebra.slices[1]]
    squares = torch.tensor(algebra.squares, dtype=v.dtype)
    return algebra.vector(-squares * v / v.square().sum().clamp(min=1e-300))
