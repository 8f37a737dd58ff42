"""Attention features: pairs of maps (query, key) whose dot product is an invariant of two multivectors."""

from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from anygatr.algebra import Algebra
from anygatr.spaces.stream_basis import StreamBasis


@runtime_checkable
class Feature(Protocol):
    """What attention asks of a feature: logit = sum_f query(q)_f key(k)_f, blade-major on both sides.

    `learned` features have a positive weight per head and channel. `precise` ones stay in float32 under autocast because
    their terms cancel.
    """

    @property
    def size(self) -> int:
        """How many numbers each channel contributes."""

    @property
    def learned(self) -> bool:
        """Whether each head and channel weighs the feature by a learned positive number."""

    @property
    def precise(self) -> bool:
        """Whether 16-bit numbers would destroy it."""

    def query(self, x: Float[Tensor, "k *tokens c"]) -> Float[Tensor, "f *tokens c"]:
        """The query's side."""

    def key(self, x: Float[Tensor, "k *tokens c"]) -> Float[Tensor, "f *tokens c"]:
        """The key's side."""


@runtime_checkable
class TableFeature(Feature, Protocol):
    """A feature of some blades, which attention picks by a table: nothing is copied to the device in a call."""

    @property
    def blades(self) -> tuple[int, ...]:
        """The blades it reads."""

    @property
    def key_blades(self) -> tuple[int, ...]:
        """Those it reads of keys, as many; the same unless blades meet others."""

    @property
    def factors(self) -> tuple[float, ...]:
        """A factor for each of them, then other constants, which `query_of` and `key_of` are given as a tensor."""

    def query_of(self, picked: Float[Tensor, "b *tokens c"], factors: Tensor) -> Float[Tensor, "f *tokens c"]:
        """The query's side from its blades alone."""

    def key_of(self, picked: Float[Tensor, "b *tokens c"], factors: Tensor) -> Float[Tensor, "f *tokens c"]:
        """The key's side from its blades alone."""


@dataclass(frozen=True)
class Inner:
    """The invariant inner product <q, k> = sum_b signs_b q_b k_b over the given blades.

    On a basis whose metric is not diagonal a blade b of the query meets its partner of the key: signs_b q_b k_partner(b).
    """

    blades: tuple[int, ...]
    signs: tuple[float, ...]
    partners: tuple[int, ...] = ()
    learned: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if len(self.blades) != len(self.signs):
            raise ValueError(f"signs={self.signs} must have one sign for each of the {len(self.blades)} blades")
        if self.partners and sorted(self.partners) != sorted(self.blades):
            raise ValueError(f"partners={self.partners} must be the blades {self.blades} in another order")

    @classmethod
    def of(cls, algebra: Algebra, without: tuple[int, ...] = ()) -> "Inner":
        """All blades that the metric sees, except those in `without`."""
        metric = algebra.metric.tolist()
        blades = tuple(b for b, sign in enumerate(metric) if sign and b not in without)
        return cls(blades, tuple(metric[b] for b in blades))

    @property
    def size(self) -> int:
        """One number per blade."""
        return len(self.blades)

    @property
    def key_blades(self) -> tuple[int, ...]:
        """The partners of the blades."""
        return self.partners or self.blades

    @property
    def factors(self) -> tuple[float, ...]:
        """The signs."""
        return self.signs

    @property
    def precise(self) -> bool:
        """An indefinite form is a difference of large numbers."""
        return min(self.signs, default=1.0) < 0 or bool(self.partners)

    def within(self, blades: tuple[int, ...]) -> "Inner":
        """The same where all other blades, whole grades of them, are zero."""
        kept = [i for i, b in enumerate(self.blades) if b in blades]
        return self._chosen(kept)

    def stored_in(self, basis: StreamBasis) -> "Inner":
        """The same form on the blades of the stream."""
        form = torch.zeros(basis.algebra.dim, dtype=torch.float64)
        form[list(self.blades)] = torch.tensor(self.signs, dtype=torch.float64)
        stored = basis.leave.T * form @ basis.leave
        places = (stored.abs() > 1e-9).nonzero().tolist()
        if len({b for b, _ in places}) != len(places):
            raise ValueError("Inner compares blades that o and infinity mix; name all of them, or use frame='algebra'")
        blades, partners = (tuple(side) for side in zip(*places, strict=True))
        return Inner(blades, tuple(float(stored[b, c]) for b, c in places), partners if partners != blades else ())

    def query(self, x: Float[Tensor, "k *tokens c"]) -> Float[Tensor, "f *tokens c"]:
        """q_b."""
        return _picked(x, self.blades)

    def key(self, x: Float[Tensor, "k *tokens c"]) -> Float[Tensor, "f *tokens c"]:
        """signs_b k_partner(b)."""
        return self.key_of(_picked(x, self.key_blades), _column(self.factors, x))

    def query_of(self, picked: Float[Tensor, "b *tokens c"], factors: Tensor) -> Float[Tensor, "f *tokens c"]:
        """The query's side from its blades alone."""
        return picked

    def key_of(self, picked: Float[Tensor, "b *tokens c"], factors: Tensor) -> Float[Tensor, "f *tokens c"]:
        """The key's side from its blades alone."""
        return picked if min(self.signs, default=1.0) == 1 else picked * factors

    def _chosen(self, places: list[int]) -> "Inner":
        blades, signs, partners = (
            tuple(x[i] for i in places) if x else () for x in (self.blades, self.signs, self.partners)
        )
        return Inner(blades, signs, partners)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Distance:
    """Minus the squared distance of two weighted points, -|k_0 q - q_0 k|^2.

    A point has its homogeneous weight at the blade `weight` and its coordinates, each with its sign, at `coordinates`. Both
    are first multiplied by w / (w^2 + eps), so a point of weight 1 keeps its place and one of weight 0 vanishes smoothly:
    query (|q|^2, q_0^2, q_0 q), key (-k_0^2, -|k|^2, 2 k_0 k).
    """

    weight: int
    coordinates: tuple[int, ...]
    signs: tuple[float, ...]
    eps: float = 1e-3
    learned: ClassVar[bool] = True
    precise: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if len(self.coordinates) != len(self.signs):
            raise ValueError(f"signs={self.signs} must have one sign for each of the {len(self.coordinates)} coordinates")

    @property
    def blades(self) -> tuple[int, ...]:
        """The blades it reads."""
        return self.weight, *self.coordinates

    @property
    def key_blades(self) -> tuple[int, ...]:
        """The same blades."""
        return self.blades

    def stored_in(self, basis: StreamBasis) -> "Distance":
        """The same, once the basis is known to keep its blades."""
        if not all(_keeps(basis, blade) for blade in self.blades):
            raise ValueError("Distance reads blades that o and infinity mix; use frame='algebra'")
        return self

    @property
    def factors(self) -> tuple[float, ...]:
        """The signs of the weight and of the coordinates, then eps."""
        return 1.0, *self.signs, self.eps

    @property
    def size(self) -> int:
        """Two squares and one product per coordinate."""
        return 2 + len(self.coordinates)

    def query(self, x: Float[Tensor, "k *tokens c"]) -> Float[Tensor, "f *tokens c"]:
        """(|q|^2, q_0^2, q_0 q)."""
        return self.query_of(_picked(x, self.blades), _column(self.factors, x))

    def key(self, x: Float[Tensor, "k *tokens c"]) -> Float[Tensor, "f *tokens c"]:
        """(-k_0^2, -|k|^2, 2 k_0 k)."""
        return self.key_of(_picked(x, self.blades), _column(self.factors, x))

    def query_of(self, picked: Float[Tensor, "b *tokens c"], factors: Tensor) -> Float[Tensor, "f *tokens c"]:
        """The query's side from its blades alone."""
        weight, point, squares = self._normalised(picked, factors)
        return torch.cat([squares[1:].sum(0, keepdim=True), squares[:1], weight * point])

    def key_of(self, picked: Float[Tensor, "b *tokens c"], factors: Tensor) -> Float[Tensor, "f *tokens c"]:
        """The key's side from its blades alone."""
        weight, point, squares = self._normalised(picked, factors)
        return torch.cat([-squares[:1], -squares[1:].sum(0, keepdim=True), 2 * weight * point])

    def _normalised(self, picked: Tensor, factors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The weight and the coordinates times w / (w^2 + eps), and the squares of all."""
        weight = picked[:1]
        both = picked * (factors[:-1] * (weight / (weight.square() + factors[-1:])))
        return both[:1], both[1:], both.square()


@dataclass(frozen=True)
class InAlgebra:
    """A feature of multivectors on the algebra's blades, for a stream that is stored on others."""

    feature: Feature
    basis: StreamBasis

    @property
    def size(self) -> int:
        """As the feature says."""
        return self.feature.size

    @property
    def learned(self) -> bool:
        """As the feature says."""
        return self.feature.learned

    @property
    def precise(self) -> bool:
        """As the feature says."""
        return self.feature.precise

    def query(self, x: Float[Tensor, "k *tokens c"]) -> Float[Tensor, "f *tokens c"]:
        """The query's side."""
        return self.feature.query(torch.tensordot(self.basis.leave.to(x), x, 1))

    def key(self, x: Float[Tensor, "k *tokens c"]) -> Float[Tensor, "f *tokens c"]:
        """The key's side."""
        return self.feature.key(torch.tensordot(self.basis.leave.to(x), x, 1))


def stored(feature: Feature, basis: StreamBasis) -> Feature:
    """A declared feature, which is one of multivectors on the algebra's blades, on the blades of the stream."""
    if basis.is_algebra:
        return feature
    return feature.stored_in(basis) if isinstance(feature, Inner | Distance) else InAlgebra(feature, basis)


def _keeps(basis: StreamBasis, blade: int) -> bool:
    unit = torch.eye(basis.algebra.dim, dtype=torch.float64)[blade]
    return bool(basis.leave[blade].equal(unit)) and bool(basis.leave[:, blade].equal(unit))


def _picked(x: Float[Tensor, "k *tokens c"], blades: tuple[int, ...]) -> Float[Tensor, "b *tokens c"]:
    return x[list(blades)]


def _column(signs: tuple[float, ...], x: Tensor) -> Float[Tensor, "b *ones"]:
    return torch.tensor(signs, dtype=x.dtype, device=x.device).view(-1, *[1] * (x.dim() - 1))
