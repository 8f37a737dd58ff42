"""Geometry: an algebra, a group and where R^d lives in it; all that a network needs to know, in one declaration."""

import dataclasses
from collections import Counter
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from anygatr.algebra import Algebra
from anygatr.equivariance.solver import LinearBasis, linear_maps
from anygatr.equivariance.symmetry import Symmetry, euclidean, pin, spin
from anygatr.spaces.embeddings import flats, isometries, points, rounds, vectors, versors
from anygatr.spaces.features import Feature, Inner
from anygatr.spaces.kinds import existing, refusal
from anygatr.spaces.space import Space, choice
from anygatr.spaces.stream_basis import StreamBasis
from anygatr.spaces.tables import EmbeddingTables, PointRule, Quadratic, Split

Product = Literal["geometric", "join"]
Norm = Literal["inner", "abs", "grade_abs", "balanced", "weight"]
NormForm = Literal["add", "clamp"]
Initialisation = Literal["kaiming", "identity"]
JoinReference = Literal["data", "canonical"]
FrameName = Literal["algebra", "null"]


@dataclass(frozen=True, eq=False)
class StoredGeometry:
    """A space whose multivectors are on the blades of the stream, with the kinds that a geometry has."""

    space: Space
    kinds: tuple[str, ...]

    def require(self, kind: str) -> Space:
        """The space, once it is known to have objects of that kind; raises ValueError elsewhere."""
        return _required(self.space, self.kinds, kind)


@dataclass(frozen=True, eq=False)
class Geometry:
    """Everything a network and its embeddings ask, and nothing they decide. Hashable and equal by value, picklable.

    Planes are n + delta*infinity and translations 1 + infinity t / 2 in every geometry; what else it can represent
    (`kinds`) follows from the declaration. Its methods are the functions of `spaces.embeddings`.
    """

    algebra: Algebra
    symmetry: Symmetry
    axes: tuple[str, ...]
    """The generators spanning space, in the algebra's order, time included."""
    infinity: Float[Tensor, " k"] = None  # type: ignore[assignment]
    """A null vector, as a multivector or its name; None where translations act trivially."""
    point: PointRule | None = None
    """What a point is. "relative": the vector from the origin; "meet": the coordinate planes through it; "null": the
    null vector o carried to it; None: points do not exist."""
    ideal: Float[Tensor, " k"] = None  # type: ignore[assignment]
    """A free vector v is ideal ^ v, with a multiple of infinity (default: infinity); just v where infinity is zero."""
    time: str | None = None
    """The axis of time, where there is one."""
    products: tuple[Product, ...] = ("geometric",)
    features: tuple[Feature, ...] = ()
    """What attention compares; default: the inner product."""
    norm: Norm = "inner"
    norm_eps: float = 0.01
    norm_form: NormForm = "add"
    init: Initialisation = "kaiming"
    join_reference: JoinReference = "data"
    name: str = "custom"
    frame: FrameName = None  # type: ignore[assignment]
    """The frame in which networks store multivectors: the "algebra"'s generators, or the "null" one, with o and infinity
    instead of the two that span them; default: "null" where o exists. Users pass and get the algebra's blades."""
    space: Space = field(init=False)
    """Where R^d lives: what embeddings ask of the declaration."""
    stored: "StoredGeometry" = field(init=False)
    """The same for multivectors as networks store them; `kinds.embed` and `kinds.read` take it in place of a geometry."""
    tables: EmbeddingTables = field(init=False)
    """The constants of all embeddings."""
    kinds: tuple[str, ...] = field(init=False)
    """The kinds of objects this geometry can represent without loss."""

    embed_scalar = vectors.embed_scalar
    extract_scalar = vectors.extract_scalar
    embed_pseudoscalar = vectors.embed_pseudoscalar
    extract_pseudoscalar = vectors.extract_pseudoscalar
    embed_vector = vectors.embed_vector
    extract_vector = vectors.extract_vector
    embed_momentum = vectors.embed_momentum
    extract_momentum = vectors.extract_momentum
    embed_point = points.embed_point
    extract_point = points.extract_point
    point_weight = points.point_weight
    origin = points.origin
    embed_plane = flats.embed_plane
    extract_plane = flats.extract_plane
    embed_line = flats.embed_line
    extract_line = flats.extract_line
    embed_sphere = rounds.embed_sphere
    extract_sphere = rounds.extract_sphere
    embed_circle = rounds.embed_circle
    extract_circle = rounds.extract_circle
    embed_pair = rounds.embed_pair
    extract_pair = rounds.extract_pair
    embed_rotation = versors.embed_rotation
    extract_rotation = versors.extract_rotation
    embed_translation = versors.embed_translation
    extract_translation = versors.extract_translation
    embed_reflection = versors.embed_reflection
    extract_reflection = versors.extract_reflection
    embed_motor = versors.embed_motor
    extract_motor = versors.extract_motor
    rotate = versors.rotate
    transform = isometries.transform
    on_axes = isometries.on_axes

    def __post_init__(self) -> None:
        replace = object.__setattr__
        self._check_algebra()
        space = Space(self.algebra, self.axes, self.infinity, self.point, self.ideal, self.time, self.name)
        replace(self, "space", space)
        # computed now: computed first while exporting, they would become part of the graph
        replace(self, "tables", space.tables)
        replace(self, "kinds", existing(space))
        spanned = space.has_o and int(space.infinity.count_nonzero()) == 2
        replace(self, "frame", self.frame or ("null" if spanned else "algebra"))
        choice("frame", self.frame, get_args(FrameName))
        replace(self, "stored", StoredGeometry(self._stored_space(space), self.kinds))
        replace(self, "axes", space.axes)
        replace(self, "infinity", space.infinity)
        replace(self, "ideal", space.ideal)
        replace(self, "products", tuple(self.products))
        replace(self, "features", tuple(self.features) or (Inner.of(self.algebra),))
        self._check_group()
        self._check_network()

    def _stored_space(self, space: Space) -> Space:
        if self.frame == "algebra":
            return space
        if not space.has_o:
            raise ValueError(f"frame='null' needs an o, which infinity={self.algebra.format(space.infinity)} does not have")
        basis = StreamBasis.null(self.algebra, space.o, space.infinity)
        stored = dataclasses.replace(space, basis=basis)
        assert stored.tables  # computed now, as those of `space`
        return stored

    @property
    def basis(self) -> StreamBasis:
        """The blades in which networks store multivectors."""
        return self.stored.space.basis

    @property
    def dim(self) -> int:
        """The dimension d of space; time, where there is one, not counted."""
        return self.space.dim

    @property
    def o(self) -> Float[Tensor, " k"]:
        """The null vector with <o, infinity> = -1 at the origin; zero where there is none."""
        return self.space.o

    @property
    def split(self) -> Split:
        """The lifts from the algebra of space into this one."""
        return self.tables.split

    @property
    def point_polynomial(self) -> Quadratic:
        """The point at x as a polynomial in x."""
        self.require("point")
        assert self.tables.point is not None
        return self.tables.point

    def require(self, kind: str) -> Space:
        """The space, once it is known to have objects of that kind; raises ValueError elsewhere."""
        return _required(self.space, self.kinds, kind)

    def on(self, device: torch.device | str) -> "Geometry":
        """The same geometry with the constants of its embeddings on a device, so that embedding there copies none."""
        if torch.device(device) == self.tables.vector.device:
            return self
        out, space = object.__new__(Geometry), self.space.on(torch.device(device))
        stored = StoredGeometry(self.stored.space.on(torch.device(device)), self.kinds)
        out.__dict__.update(self.__dict__, space=space, tables=space.tables, stored=stored)
        return out

    def lift(self, x: Float[Tensor, "*batch s"]) -> Float[Tensor, "*batch k"]:
        """A multivector of the algebra of space as one of this algebra."""
        return self.space.lift(x)

    def lift_ideal(self, x: Float[Tensor, "*batch s"]) -> Float[Tensor, "*batch k"]:
        """infinity ^ x for a multivector x of the algebra of space."""
        return self.space.lift_ideal(x)

    def read(self, mv: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch s"]:
        """The part of mv in the algebra of space."""
        return self.space.read(mv)

    def read_ideal(self, mv: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch s"]:
        """The x of the part infinity ^ x of mv."""
        return self.space.read_ideal(mv)

    def carrier(self, mv: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch k"]:
        """The flat that carries a multivector, as `Space.carrier` says."""
        return self.space.carrier(mv)

    def blades(self, mv: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch k"]:
        """The argument itself, once it is known to have one component per blade."""
        return self.space.blades(mv)

    @cached_property
    def linear_basis(self) -> LinearBasis:
        """All equivariant linear maps of one multivector."""
        return linear_maps(self.symmetry)

    @cached_property
    def group(self) -> str:
        """The name of the group: E(d), SE(d), Pin(p,q,r), Spin(p,q,r) or "custom"."""
        alg, mirrors = self.algebra, bool(len(self.symmetry.mirrors))
        if self.symmetry == euclidean(alg, self.infinity, mirrors) and self.time is None:
            return f"{'E' if mirrors else 'SE'}({self.dim})"
        whole = pin(alg) if mirrors else spin(alg)
        return f"{'Pin' if mirrors else 'Spin'}({alg.p},{alg.q},{alg.r})" if self.symmetry == whole else "custom"

    @cached_property
    def precise(self) -> bool:
        """Whether points hold squares of coordinates, of which 16 bits would leave less than the distance of neighbours."""
        return self.point == "null"

    @cached_property
    def needs_reference(self) -> bool:
        """Whether a declared product is odd under mirrors, so that a pseudoscalar of the data has to multiply it."""
        return not all(_is_equivariant(product, self.symmetry) for product in self.products)

    @cached_property
    def reference_blade(self) -> int:
        """The blade whose coefficient repairs a product that is odd under mirrors: the first with a metric whose
        coefficient every generator leaves alone and every mirror flips."""
        alg, sym = self.algebra, self.symmetry
        odd = alg.metric != 0
        for b in sym.generators:
            odd &= (alg.commutator(b).abs() < 1e-9).all(-1)
        for m in sym.mirrors:
            odd &= ((alg.action(m) + torch.eye(alg.dim)).abs() < 1e-9).all(-1)
        if not bool(odd.any()):
            raise ValueError(
                f"products={self.products!r}: no blade of {alg} is invariant but odd under mirrors; use mirrors=False"
            )
        return int(odd.nonzero()[0])

    def __str__(self) -> str:
        counts = Counter(name.split()[0] for name in self.symmetry.names)
        generators = ", ".join(f"{count} {word}{'s' if count > 1 else ''}" for word, count in counts.items())
        space = f"R^{self.dim}" + (" and time" if self.time is not None else "")
        rows = {
            "algebra": f"G({self.algebra.p}, {self.algebra.q}, {self.algebra.r}), {self.algebra.dim} blades",
            "group": f"{self.group} ({generators or 'no generators'}), {len(self.linear_basis)} equivariant linear maps",
            "infinity": self.algebra.format(self.infinity),
            "kinds": ", ".join(self.kinds),
            "products": ", ".join(self.products),
            "features": ", ".join(f"{type(feature).__name__}({feature.size})" for feature in self.features),
            "stored on": "the blades of o and infinity" if self.frame == "null" else "the algebra's blades",
            "norm": f"{self.norm}, eps {self.norm_eps:g} ({self.norm_form}); init {self.init}",
        }
        return "\n".join([f"Geometry {self.name!r} of {space}", *(f"  {key:<10}{value}" for key, value in rows.items())])

    def __repr__(self) -> str:
        return f"Geometry({self.name!r}, {self.algebra}, dim={self.dim}, mirrors={len(self.symmetry.mirrors) > 0})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Geometry) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Geometry":
        return self  # immutable, so copies of a network share it

    def __reduce__(self) -> tuple[Any, ...]:
        return Geometry, tuple(self.declared.values())

    @property
    def declared(self) -> dict[str, Any]:
        """The fields it was declared with, by name; everything else follows from them."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.init}

    @cached_property
    def _key(self) -> tuple[Any, ...]:
        return tuple(tuple(value.tolist()) if isinstance(value, Tensor) else value for value in self.declared.values())

    def _check_algebra(self) -> None:
        if self.symmetry.algebra != self.algebra:
            raise ValueError(
                f"symmetry acts on {self.symmetry.algebra!r}, not on {self.algebra!r}; build it from the same algebra"
            )

    def _check_group(self) -> None:
        alg, infinity = self.algebra, self.infinity
        for b in self.symmetry.generators:
            if bool((alg.outer(alg.commutator(b) @ infinity, infinity).abs() > 1e-9).any()):
                raise ValueError(
                    f"symmetry: the generator {alg.format(b)} moves infinity={alg.format(infinity)}, so points would "
                    "not follow it; build it as euclidean(algebra, infinity)"
                )

    def _check_network(self) -> None:
        alg = self.algebra
        for product in self.products:
            choice("products", product, get_args(Product))
            if not _is_equivariant(product, Symmetry(self.algebra, self.symmetry.generators)):
                raise ValueError(
                    f"products={self.products!r}: {product!r} does not commute with the generators of {self.name!r}"
                )
        if not self.products:
            raise ValueError("products=() leaves multivectors without interaction; use ('geometric',)")
        choice("norm", self.norm, get_args(Norm))
        if self.norm in ("balanced", "weight") and self.space.has_o:
            moved = [alg.commutator(b) @ self.infinity for b in self.symmetry.generators]
            if self.frame == "algebra" or any(bool((x.abs() > 1e-9).any()) for x in moved):
                raise ValueError(
                    f"norm={self.norm!r} needs frame='null' and a group that keeps infinity; use norm='grade_abs'"
                )
        choice("norm_form", self.norm_form, get_args(NormForm))
        choice("init", self.init, get_args(Initialisation))
        choice("join_reference", self.join_reference, get_args(JoinReference))
        if not (isinstance(self.norm_eps, int | float) and self.norm_eps > 0):
            raise ValueError(f"norm_eps={self.norm_eps!r} must be a positive number, e.g. 0.01")
        for feature in self.features:
            if not isinstance(feature, Feature):
                raise ValueError(f"features contains {feature!r}; use Inner and Distance from anygatr.spaces.features")
        if self.needs_reference and self.join_reference == "data":
            assert self.reference_blade >= 0  # raises here, and not in a network, where no blade repairs the product
            row = self.basis.leave[self.reference_blade]
            if not bool(row.equal(torch.eye(len(row), dtype=row.dtype)[self.reference_blade])):
                raise ValueError(
                    "the reference blade of products odd under mirrors contains o or infinity; use frame='algebra'"
                )


def _required(space: Space, kinds: tuple[str, ...], kind: str) -> Space:
    if kind not in kinds:
        raise ValueError(refusal(space, kind))
    return space


def _is_equivariant(product: Product, symmetry: Symmetry) -> bool:
    # versors act by automorphisms of the geometric product; the check would take long in large algebras
    return product == "geometric" or symmetry.is_equivariant(product)
