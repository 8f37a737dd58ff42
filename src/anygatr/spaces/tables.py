"""The constants of a space's embeddings, in float64, computed once.

Embeddings multiply coordinates by these matrices and read with their inverses. Computed first while a network is traced,
they would become part of its graph; so a geometry computes all of them when it is made: for the algebra's blades, which
users see, and for the basis in which networks store multivectors (`stored_in`).
"""

from dataclasses import dataclass, fields, replace
from functools import reduce
from itertools import combinations
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from anygatr.algebra import Algebra
from anygatr.spaces.stream_basis import StreamBasis

PointRule = Literal["relative", "meet", "null"]


class Quadratic(NamedTuple):
    """The polynomial constant + sum_i x_i linear_i + sum_ij x_i x_j quadratic_ij."""

    constant: Float[Tensor, " k"]
    linear: Float[Tensor, "d k"]
    quadratic: Float[Tensor, "d d k"]


@dataclass(frozen=True, eq=False)
class Split:
    """The part of an algebra spanned by S, inf ^ S and o ^ S, where S runs through the algebra G(axes) of space.

    Row i of `flat`, `ideal` and `polar` is the image of blade i of `space`; without infinity or o their rows are zero.
    """

    space: Algebra
    flat: Float[Tensor, "s k"]
    ideal: Float[Tensor, "s k"]
    polar: Float[Tensor, "s k"]

    @classmethod
    def of(cls, algebra: Algebra, axes: tuple[str, ...], infinity: Tensor, o: Tensor) -> "Split":
        """The lifts from the algebra of space into this one."""
        squares = dict(zip(algebra.names or (), algebra.squares, strict=True))
        positive = sum(squares[axis] > 0 for axis in axes)
        space = Algebra(positive, len(axes) - positive, 0, names=axes)
        subsets = [subset for grade in range(space.n + 1) for subset in combinations(axes, grade)]
        blades = [reduce(algebra.outer, [algebra[axis] for axis in subset], algebra["1"]) for subset in subsets]
        flat = torch.stack(blades)
        return cls(space, flat, algebra.outer(infinity, flat), algebra.outer(o, flat))

    @property
    def vectors(self) -> Float[Tensor, "d k"]:
        """The axes as multivectors."""
        return self.flat[self.space.slices[1]]


@dataclass(frozen=True, eq=False)
class EmbeddingTables:
    """All matrices of a space's embeddings. They act on rows: y = x @ matrix. None where a space has no use for one."""

    split: Split
    squares: Float[Tensor, " d"]
    """The squares of the axes."""
    one: Float[Tensor, " k"]
    pseudoscalar: Float[Tensor, " k"]
    infinity: Float[Tensor, " k"]
    o: Float[Tensor, " k"]
    read_flat: Float[Tensor, "k s"]
    """Reads the part of a multivector in the algebra of space."""
    read_ideal: Float[Tensor, "k s"]
    """Reads the x of its part infinity ^ x."""
    carrier: Float[Tensor, "k k"] | None
    """To the flat that carries a multivector, -(infinity . x); None where there is no o."""
    vector: Float[Tensor, "d k"]
    """The free vectors along the axes."""
    point: Quadratic | None
    """The point at x as a polynomial in x; None where there are no points."""
    orient: Float[Tensor, "k k"] | None
    """Makes points odd under mirrors."""
    unorient: Float[Tensor, "k k"] | None
    """The inverse of `orient`."""
    flip: Float[Tensor, "k k"] | None
    """Times the pseudoscalar; None where that has no inverse."""
    unflip: Float[Tensor, "k k"] | None
    """The inverse of `flip`."""
    turns: Float[Tensor, "q s"] | None
    """The planes of rotation in the algebra of space: e12 in 2D; e23, e31, e12, the duals of the axes, in 3D."""

    @classmethod
    def of(
        cls,
        algebra: Algebra,
        axes: tuple[str, ...],
        time: str | None,
        infinity: Tensor,
        o: Tensor,
        ideal: Tensor,
        rule: PointRule | None,
    ) -> "EmbeddingTables":
        """The tables of a declaration."""
        split = Split.of(algebra, axes, infinity, o)
        point = None if rule is None else _point(algebra, split, infinity, o, rule)
        orient = None if point is None else _orient(algebra, algebra[axes[-1]], point.constant)
        invertible = algebra.r == 0
        inverse = algebra.reverse(algebra.pseudoscalar) * algebra.metric[-1]
        return cls(
            split=split,
            squares=torch.tensor(split.space.squares, dtype=torch.float64),
            one=algebra["1"],
            pseudoscalar=algebra.pseudoscalar,
            infinity=infinity,
            o=o,
            read_flat=_coefficients(split.flat),
            read_ideal=_coefficients(split.ideal),
            carrier=_carrier(algebra, infinity) if bool(o.any()) else None,
            vector=algebra.outer(ideal, split.vectors) if bool(infinity.any()) else split.vectors,
            point=point,
            orient=orient,
            unorient=None if orient is None else torch.linalg.inv(orient),
            flip=algebra.right(algebra.pseudoscalar).T if invertible else None,
            unflip=algebra.right(inverse).T if invertible else None,
            turns=_turns(split.space, [axis for axis in axes if axis != time]),
        )

    def stored_in(self, basis: StreamBasis) -> "EmbeddingTables":
        """The tables of multivectors on the blades of another basis."""
        if basis.is_algebra:
            return self
        enter, leave = basis.enter.T, basis.leave.T  # rows are multivectors
        split, p = self.split, self.point
        written: dict[str, Any] = {
            name: getattr(self, name) @ enter for name in ("one", "pseudoscalar", "infinity", "o", "vector")
        }
        read: dict[str, Any] = {name: leave @ getattr(self, name) for name in ("read_flat", "read_ideal")}
        matrices = {name: getattr(self, name) for name in ("carrier", "orient", "unorient", "flip", "unflip")}
        changed: dict[str, Any] = {name: m if m is None else leave @ m @ enter for name, m in matrices.items()}
        return replace(
            self,
            split=replace(split, flat=split.flat @ enter, ideal=split.ideal @ enter, polar=split.polar @ enter),
            point=None if p is None else Quadratic(*(part @ enter for part in p)),
            **written,
            **read,
            **changed,
        )

    def on(self, device: torch.device) -> "EmbeddingTables":
        """The same on a device."""
        return _on(self, device)


def _on(part: Any, device: torch.device) -> Any:
    """Every tensor inside moved."""
    if isinstance(part, Tensor):
        return part.to(device)
    if isinstance(part, Quadratic):
        return Quadratic(*(t.to(device) for t in part))
    if isinstance(part, EmbeddingTables | Split):
        return replace(part, **{f.name: _on(getattr(part, f.name), device) for f in fields(part)})
    return part


def _point(algebra: Algebra, split: Split, infinity: Tensor, o: Tensor, rule: PointRule) -> Quadratic:
    """The point at x: (1 + infinity x / 2) seed (1 - infinity x / 2)."""
    vectors = split.vectors
    if rule == "relative":
        return Quadratic(algebra["1"] * 0, vectors, vectors.new_zeros(len(vectors), len(vectors), algebra.dim))
    seed = o if rule == "null" else split.flat[-1]
    shift = algebra.geometric(infinity, vectors) / 2
    linear = algebra.geometric(shift, seed) - algebra.geometric(seed, shift)
    quadratic = -algebra.geometric(algebra.geometric(shift[:, None], seed), shift[None])
    return Quadratic(seed, linear, quadratic)


def _orient(algebra: Algebra, mirror: Tensor, seed: Tensor) -> Float[Tensor, "k k"]:
    """Times the pseudoscalar, unless the point is already odd under mirrors."""
    odd = bool(algebra.sandwich(mirror, seed).allclose(-seed))
    return torch.eye(algebra.dim).double() if odd else algebra.right(algebra.pseudoscalar).T


def _carrier(algebra: Algebra, infinity: Tensor) -> Float[Tensor, "k k"]:
    # infinity . x = (infinity x - involute(x) infinity) / 2; transposed, because multivectors are rows
    involution = torch.diag(1.0 - 2.0 * (algebra.grades % 2))
    return -(algebra.left(infinity) - algebra.right(infinity) @ involution.double()).T / 2


def _turns(space: Algebra, axes: list[str]) -> Float[Tensor, "q s"] | None:
    pairs = {2: [(0, 1)], 3: [(1, 2), (2, 0), (0, 1)]}.get(len(axes))
    return None if pairs is None else torch.stack([space.outer(space[axes[i]], space[axes[j]]) for i, j in pairs])


def _coefficients(rows: Tensor) -> Tensor:
    """The matrix that reads the coefficients of mutually orthogonal rows; zero rows read zero."""
    return (rows / rows.square().sum(-1, keepdim=True).clamp(min=1e-300)).T
