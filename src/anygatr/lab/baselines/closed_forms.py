"""Predictors without training, which every network must beat: the mean, staying, constant velocity, the best linear map."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from anygatr.lab.data.dataset import Dataset
from anygatr.lab.data.kinds import base_kind, columns, encoded, is_category, roles

# axes: n tokens of all samples or samples, f features, x coordinates, c columns

Predictor = Callable[[Dataset], dict[str, Tensor]]
ROUNDING = 1e-12
"""Features smaller than this share of the largest are zero: the mean of places from their mean."""
MOST_ROWS = 50_000
"""Tokens, or samples, from which coefficients are found at most."""


def closed_forms(train: Dataset) -> dict[str, Predictor]:
    """The predictors that a task admits, by name, their coefficients from the training samples.

    mean               the mean of each column of the target
    stay               the input of the target's kind, unchanged; the centre of the sample's if the target belongs to it
    constant velocity  the place of a token plus its vector times the best single number
    linear             the best map that is linear in the geometric inputs and commutes with motions and permutations

    Targets that a predictor has nothing to say about are given their mean.
    """
    if train.token_targets:
        return _joined(train)
    mean = _Mean.fit(train)
    found: dict[str, Predictor] = {"mean": mean}
    kinds = train.input_kinds.values()
    if any(kind in kinds for kind in train.target_kinds.values()):
        found["stay"] = _Stay(mean)
    drift = _Drift.fit(train, mean)
    if drift is not None:
        found["constant velocity"] = drift
    return found | {"linear": _Linear.fit(train, mean)}


@dataclass(frozen=True)
class _Joined:
    """Targets of samples by one predictor, those of tokens by another."""

    parts: tuple[tuple[tuple[str, ...], Predictor], ...]

    def __call__(self, data: Dataset) -> dict[str, Tensor]:
        return {name: x for targets, predict in self.parts for name, x in predict(data.part(targets)).items()}


def _joined(train: Dataset) -> dict[str, Predictor]:
    """The predictors of a task with targets of both sorts: those that either sort admits, with the mean for the other."""
    sorts = (tuple(name for name in train.targets if name not in train.token_targets), train.token_targets)
    forms = [closed_forms(train.part(targets)) for targets in sorts]
    names = [name for name in ("mean", "stay", "constant velocity", "linear") if any(name in form for form in forms)]
    return {
        name: _Joined(tuple((targets, form.get(name, form["mean"])) for targets, form in zip(sorts, forms, strict=True)))
        for name in names
    }


@dataclass(frozen=True)
class _Mean:
    means: dict[str, Tensor]

    @classmethod
    def fit(cls, train: Dataset) -> "_Mean":
        lead = (0, 1) if train.per == "token" and train.offsets is None else (0,)
        return cls({name: train.fields[name].double().mean(lead) for name in train.targets})

    def __call__(self, data: Dataset) -> dict[str, Tensor]:
        return {name: mean.expand_as(data.fields[name]) for name, mean in self.means.items()}


@dataclass(frozen=True)
class _Stay:
    mean: _Mean

    def __call__(self, data: Dataset) -> dict[str, Tensor]:
        found = {name: resting(data, kind) for name, kind in data.target_kinds.items()}
        return self.mean(data) | {name: x for name, x in found.items() if x is not None}


@dataclass(frozen=True)
class _Drift:
    mean: _Mean
    place: str
    vector: str
    times: dict[str, float]

    @classmethod
    def fit(cls, train: Dataset, mean: _Mean) -> "_Drift | None":
        place, vector = (_first(train, kind) for kind in ("point", "vector"))
        moved = [name for name, kind in train.target_kinds.items() if kind == "point"]
        if place is None or vector is None or train.per != "token" or not moved:
            return None
        v = train.fields[vector].double()
        square = max(float(v.square().sum()), 1e-300)
        times = {name: float((v * (train.fields[name] - train.fields[place])).sum()) / square for name in moved}
        return cls(mean, place, vector, times)

    def __call__(self, data: Dataset) -> dict[str, Tensor]:
        place, vector = data.fields[self.place].double(), data.fields[self.vector].double()
        return self.mean(data) | {name: place + time * vector for name, time in self.times.items()}


@dataclass(frozen=True)
class _Linear:
    """Each piece of a target as a sum of features with coefficients: vectors of vectors, numbers of numbers."""

    mean: _Mean
    coefficients: dict[str, list[Tensor | None]]
    """For each target and each piece of its columns; None where nothing linear can be said, as of a rotation."""
    weights: tuple[bool, ...]
    """Which scalars weigh means."""

    @classmethod
    def fit(cls, train: Dataset, mean: _Mean) -> "_Linear":
        features = LinearFeatures.of(train)
        found: dict[str, list[Tensor | None]] = {}
        for name in train.targets:
            found[name] = []
            for role, piece in _pieces(train, name):
                known = features.known_for(role, piece)
                if known is None:
                    found[name].append(None)
                    continue
                base, columns_of = known
                found[name].append(_least_squares(columns_of, piece - base, features.scored))
        return cls(mean, found, features.weights)

    def __call__(self, data: Dataset) -> dict[str, Tensor]:
        features, out = LinearFeatures.of(data, self.weights), self.mean(data)
        for name, coefficients in self.coefficients.items():
            pieces: list[Tensor] = []
            for (role, piece), c in zip(_pieces(data, name), coefficients, strict=True):
                known = features.known_for(role, piece)
                if c is None or known is None:
                    pieces.append(_mean_piece(self.mean, name, piece, sum(x.shape[-1] for x in pieces)))
                    continue
                base, columns_of = known
                pieces.append(base + (columns_of * c).sum(-1))
            out[name] = torch.cat(pieces, -1).reshape(data.fields[name].shape)
        return out


@dataclass(frozen=True, eq=False)
class LinearFeatures:
    """What an equivariant map that is linear in the inputs can use, for each token or, where targets are theirs, sample."""

    vectors: Float[Tensor, "n x f"]
    """Own vectors, places from the centre of the sample, and their means over the sample, plain or weighted by a scalar."""
    numbers: Float[Tensor, "n f"]
    """One, own scalars, their means over the sample; for targets of samples also the number of tokens and the sums."""
    place: Float[Tensor, "n x"] | None
    """The place of a token, or the centre of a sample."""
    scored: Tensor | None
    weights: tuple[bool, ...]
    """Which scalars weigh means."""

    @classmethod
    def of(cls, data: Dataset, weights: tuple[bool, ...] | None = None) -> "LinearFeatures":
        """The features of all tokens or samples of a data set; scalars that are positive in it are weights by default."""
        data = data.packed()
        tokens = _Samples(data)
        pieces = [(role, x) for name in data.input_kinds for role, x in _pieces(data, name)]
        places = [x for role, x in pieces if role == "position"]
        centre = tokens.mean(places[0]) if places else None
        free = [x - tokens.spread(centre) for x in places] if centre is not None else []
        free += [x for role, x in pieces if role != "position" and x.shape[-1] == data.dim > 1]
        scalars = [x for name, kind in data.input_kinds.items() for x in _numbers(data, name, kind)]
        weights = weights or tuple(bool((x > 0).all()) and not bool((x == x[0]).all()) for x in scalars)
        weighing = [x for x, weighs in zip(scalars, weights, strict=True) if weighs]
        means = [tokens.mean(x) for x in free]
        means += [tokens.mean(w.unsqueeze(-1) * x) / tokens.mean(w).unsqueeze(-1) for w in weighing for x in free]
        averages = [tokens.mean(x) for x in scalars]
        one = torch.ones(len(data) if data.per == "sample" else len(tokens.sample), dtype=torch.float64)
        if data.per == "sample":
            count = tokens.counts
            numbers = [one, count, *averages, *(count * x for x in averages)]
            return cls(_stacked(means, data.dim, len(one)), torch.stack(numbers, -1), centre, None, weights)
        vectors = [*free, *map(tokens.spread, means)]
        numbers = [one, *scalars, *map(tokens.spread, averages)]
        scored = None if data.scored is None else data.scored.flatten()
        return cls(
            _stacked(vectors, data.dim, len(one)), torch.stack(numbers, -1), places[0] if places else None, scored, weights
        )

    def known_for(self, role: str, piece: Tensor) -> tuple[Tensor, Tensor] | None:
        """What a piece of a target is compared with, and the features (n, columns, f) that may be added to it."""
        dim = self.vectors.shape[1]
        if role == "position" and self.place is not None:
            return self.place, self.vectors
        if role in ("free", "direction", "length") and piece.shape[-1] == dim > 1 and self.vectors.shape[-1]:
            return torch.zeros((), dtype=torch.float64), self.vectors
        if role in ("invariant", "length") and piece.shape[-1] == 1:
            return torch.zeros((), dtype=torch.float64), self.numbers.unsqueeze(1)
        return None


class _Samples:
    """Means over the tokens of each sample of a packed data set, and back."""

    def __init__(self, data: Dataset):
        self.sample = torch.arange(len(data)).repeat_interleave(data.counts)
        self.counts = data.counts.double()

    def mean(self, x: Tensor) -> Tensor:
        total = x.new_zeros(len(self.counts), *x.shape[1:]).index_add(0, self.sample, x)
        return total / self.counts.reshape(-1, *[1] * (x.dim() - 1))

    def spread(self, x: Tensor) -> Tensor:
        return x[self.sample]


def resting(data: Dataset, kind: str) -> Tensor | None:
    """The first input of the target's kind, or its mean over each sample; None if there is no such input."""
    name = _first(data, kind)
    if name is None:
        return None
    x = data.fields[name].double()
    if data.per == "token":
        return x
    if data.offsets is None:
        return x.mean(1)
    return _Samples(data).mean(x)


def _first(data: Dataset, kind: str) -> str | None:
    return next((name for name, found in data.input_kinds.items() if found == kind), None)


def _pieces(data: Dataset, name: str) -> list[tuple[str, Tensor]]:
    """The columns of a field by role, one row per token or sample."""
    kind = data.kinds[name]
    if is_category(kind):
        return []
    parts, width = roles(kind, data.dim), columns(kind, data.dim)
    x = data.fields[name].double().reshape(-1, width)
    return [(role, piece) for (role, _), piece in zip(parts, x.split([w for _, w in parts], -1), strict=True)]


def _numbers(data: Dataset, name: str, kind: str) -> list[Tensor]:
    """The invariant numbers of a field, each (n,): scalars, radii, and whether a token is of a class."""
    if is_category(kind):
        return list(encoded(kind, data.fields[name].double().flatten(), data.dim).unbind(-1))
    if base_kind(kind) == "rotation":
        return []
    return [x.squeeze(-1) for role, x in _pieces(data, name) if x.shape[-1] == 1 and role in ("invariant", "length")]


def _stacked(vectors: list[Tensor], dim: int, rows: int) -> Tensor:
    return torch.stack(vectors, -1) if vectors else torch.zeros(rows, dim, 0, dtype=torch.float64)


def _least_squares(features: Tensor, target: Tensor, scored: Tensor | None) -> Tensor:
    """The coefficients (f,) of the features (n, c, f) that come nearest to a target (n, c)."""
    target = target.expand(features.shape[:2])
    if scored is not None:
        features, target = features[scored], target[scored]
    stride = -(-len(features) // MOST_ROWS)
    matrix, right = features[::stride].flatten(0, 1), target[::stride].reshape(-1, 1)
    size = matrix.square().mean(0).sqrt()
    # columns of one size, so that the cut of small singular values is fair; what is zero but for rounding stays so
    scale = torch.where(size > ROUNDING * size.max(), size, torch.inf)
    return torch.linalg.lstsq(matrix / scale, right, driver="gelsd").solution.flatten() / scale


def _mean_piece(mean: _Mean, name: str, piece: Tensor, start: int) -> Tensor:
    values = mean.means[name].reshape(-1)[start : start + piece.shape[-1]]
    return values.expand_as(piece)
