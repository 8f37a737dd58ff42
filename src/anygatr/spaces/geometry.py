"""Geometry: an algebra, a group and where R^d lives in it; all that a network needs to know, in one declaration."""

from collections import Counter
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cached_property
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from anygatr.algebra import Algebra
from anygatr.equivariance.solver import LinearBasis, linear_maps
from anygatr.equivariance.symmetry import Symmetry, euclidean, pin, spin
from anygatr.spaces.features import Feature, Inner
from anygatr.spaces.points import Points
from anygatr.spaces.rigid import Rigid
from anygatr.spaces.space import PointRule

Product = Literal["geometric", "join"]
Norm = Literal["inner", "abs", "grade_abs"]
NormForm = Literal["add", "clamp"]
Initialisation = Literal["kaiming", "identity"]
JoinReference = Literal["data", "canonical"]


@dataclass(frozen=True, eq=False)
class Geometry(Points, Rigid):
    """Everything a network and its embeddings ask, and nothing they decide. Hashable and equal by value, picklable.

    Planes are n + delta*infinity and translations 1 + infinity t / 2 in every geometry; what else it can represent
    (`kinds`) follows from the declaration.
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

    def __post_init__(self) -> None:
        replace = object.__setattr__
        replace(self, "axes", tuple(self.axes))
        replace(self, "products", tuple(self.products))
        replace(self, "infinity", _vector(self.algebra, self.infinity, "infinity"))
        ideal = self.infinity if self.ideal is None else _vector(self.algebra, self.ideal, "ideal")
        replace(self, "ideal", ideal)
        replace(self, "features", tuple(self.features) or (Inner.of(self.algebra),))
        self._check_space()
        self._check_network()
        self._tabulate()

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
        return Geometry, tuple(getattr(self, field.name) for field in fields(self))

    @cached_property
    def _key(self) -> tuple[Any, ...]:
        values = (getattr(self, field.name) for field in fields(self))
        return tuple(tuple(value.tolist()) if isinstance(value, Tensor) else value for value in values)

    def _tabulate(self) -> None:
        """Compute what embeddings and networks read: computed first while exporting, it would become part of the graph."""
        needed = ["split", "kinds", "needs_reference", "_free", "_carrier"]
        needed += ["point_polynomial", "_orient", "_unorient"] if self.point is not None else []
        needed += ["_turns"] if "rotation" in self.kinds else []
        needed += ["reference_blade"] if self.needs_reference and self.join_reference == "data" else []
        for name in needed:
            getattr(self, name)

    def _check_space(self) -> None:
        alg, names = self.algebra, self.algebra.names or ()
        if self.symmetry.algebra != alg:
            raise ValueError(f"symmetry acts on {self.symmetry.algebra!r}, not on {alg!r}; build it from the same algebra")
        squares = dict(zip(names, alg.squares, strict=True))
        if (
            not self.axes
            or any(not squares.get(axis) for axis in self.axes)
            or list(self.axes) != [name for name in names if name in self.axes]
        ):
            raise ValueError(f"axes={self.axes!r} must be invertible generators in the order of {names}")
        if abs(float(alg.inner(self.infinity, self.infinity))) > 1e-12 or any(
            float(self.infinity[alg.index(axis)]) for axis in self.axes
        ):
            raise ValueError(f"infinity={alg.format(self.infinity)} must be null and orthogonal to the axes {self.axes}")
        if bool(alg.outer(self.ideal, self.infinity).any()) or bool(self.ideal.any()) != bool(self.infinity.any()):
            raise ValueError(f"ideal={alg.format(self.ideal)} must be a multiple of infinity={alg.format(self.infinity)}")
        for b in self.symmetry.generators:
            if bool((alg.outer(alg.commutator(b) @ self.infinity, self.infinity).abs() > 1e-9).any()):
                raise ValueError(
                    f"symmetry: the generator {alg.format(b)} moves infinity={alg.format(self.infinity)}, so points would "
                    "not follow it; build it as euclidean(algebra, infinity)"
                )
        if self.time is not None and self.time not in self.axes:
            raise ValueError(f"time={self.time!r} must be one of axes={self.axes!r}")
        _choice("point", self.point, (*get_args(PointRule), None))
        fits = {"relative": not self.infinity.any(), "meet": self.infinity.any(), "null": self.o.any(), None: True}
        if not bool(fits[self.point]):
            able = [rule for rule, fit in fits.items() if bool(fit)]
            raise ValueError(
                f"point={self.point!r} does not exist with infinity={alg.format(self.infinity)}; use one of {able}"
            )

    def _check_network(self) -> None:
        for product in self.products:
            _choice("products", product, get_args(Product))
            if not _is_equivariant(product, Symmetry(self.algebra, self.symmetry.generators)):
                raise ValueError(
                    f"products={self.products!r}: {product!r} does not commute with the generators of {self.name!r}"
                )
        if not self.products:
            raise ValueError("products=() leaves multivectors without interaction; use ('geometric',)")
        _choice("norm", self.norm, get_args(Norm))
        _choice("norm_form", self.norm_form, get_args(NormForm))
        _choice("init", self.init, get_args(Initialisation))
        _choice("join_reference", self.join_reference, get_args(JoinReference))
        if not (isinstance(self.norm_eps, int | float) and self.norm_eps > 0):
            raise ValueError(f"norm_eps={self.norm_eps!r} must be a positive number, e.g. 0.01")
        for feature in self.features:
            if not isinstance(feature, Feature):
                raise ValueError(f"features contains {feature!r}; use Inner and Distance from anygatr.spaces.features")


def _vector(algebra: Algebra, x: Tensor | str | None, label: str) -> Float[Tensor, " k"]:
    if x is None:
        return torch.zeros(algebra.dim, dtype=torch.float64)
    out = algebra[x] if isinstance(x, str) else torch.as_tensor(x).detach().double().cpu()
    if out.shape != (algebra.dim,) or not bool(algebra.grade(out, 1).equal(out)):
        raise ValueError(
            f"{label} must be a vector of {algebra}: a multivector of grade 1 and shape ({algebra.dim},), or a name"
        )
    return out


def _is_equivariant(product: Product, symmetry: Symmetry) -> bool:
    # versors act by automorphisms of the geometric product; the check would take long in large algebras
    return product == "geometric" or symmetry.is_equivariant(product)


def _choice(label: str, value: object, options: tuple[object, ...]) -> None:
    if value not in options:
        near = get_close_matches(str(value), [str(option) for option in options], n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{label}={value!r} is not one of {', '.join(map(repr, options))}{hint}")
