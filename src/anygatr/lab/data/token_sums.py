"""The best linear predictor of a sum over tokens: so much for each, more or less for its classes, perhaps a constant."""

from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from anygatr.lab.data.dataset import Dataset
from anygatr.lab.data.kinds import encoded_width, is_category

# axes: s samples, f features

MOST_CLASSES, MOST_SAMPLES = 1_000, 20_000
"""Categories with more classes are left to the network; more samples are thinned."""
PENALTIES = 10.0 ** torch.arange(-10, 1, dtype=torch.float64)
"""Of ridge regression, as shares of the largest squared singular value."""
CONSTANT_PAYS = 0.8
"""A constant is taken if it brings the squared error below this share: a sum of parts that are far apart has none."""


@dataclass(frozen=True)
class LinearSum:
    """each * tokens + the sum over tokens of what their classes add + constant."""

    each: float
    classes: dict[str, list[float]] = field(default_factory=dict)
    """Category -> what a token of each class adds."""
    constant: float = 0.0


def linear_in_tokens(train: Dataset, name: str) -> LinearSum:
    """The predictor of a target of whole samples, by ridge regression with the penalty of least leave-one-out error."""
    rows = torch.arange(0, len(train), -(-len(train) // MOST_SAMPLES))
    data = train.select(rows).packed()
    y, counts = data.fields[name].double(), data.counts.double()
    mean = float(y.sum() / counts.sum())
    categories = [own for own, kind in data.input_kinds.items() if is_category(kind)]
    widths = [encoded_width(data.kinds[own], data.dim) for own in categories]
    categories, widths = (categories, widths) if sum(widths) <= MOST_CLASSES else ([], [])
    matrix = torch.cat([counts[:, None], *(class_counts(data, own) for own in categories)], -1)
    plain, error = ridge(matrix, y - mean * counts)
    shifted, error_shifted = ridge(torch.cat([matrix, torch.ones_like(counts)[:, None]], -1), y - mean * counts)
    *sums, constant = (
        shifted.split([matrix.shape[1], 1]) if error_shifted < CONSTANT_PAYS * error else (plain, plain.new_zeros(1))
    )
    each, *classes = sums[0].split([1, *widths])
    return LinearSum(
        mean + float(each), {own: x.tolist() for own, x in zip(categories, classes, strict=True)}, float(constant)
    )


def class_counts(data: Dataset, name: str) -> Float[Tensor, "s f"]:
    """How many tokens of each class the samples of a packed data set have."""
    sample = torch.arange(len(data)).repeat_interleave(data.counts)
    found = torch.zeros(len(data), encoded_width(data.kinds[name], data.dim), dtype=torch.float64)
    return found.index_put_((sample, data.fields[name].long()), found.new_ones(()), accumulate=True)


def ridge(matrix: Float[Tensor, "s f"], right: Float[Tensor, " s"]) -> tuple[Float[Tensor, " f"], float]:
    """The coefficients of the penalty with the least leave-one-out squared error, and that; zeros if they have the least."""
    u, s, v = torch.linalg.svd(matrix, full_matrices=False)
    best, found = float(right.square().sum()), matrix.new_zeros(matrix.shape[1])
    for penalty in s[0].square() * PENALTIES:
        shrunk = s.square() / (s.square() + penalty)
        left_out = (right - u @ (shrunk * (u.mT @ right))) / (1 - (u.square() * shrunk).sum(-1)).clamp(min=1e-12)
        if (error := float(left_out.square().sum())) < best:
            best, found = error, v.mT @ (s / (s.square() + penalty) * (u.mT @ right))
    return found, best
