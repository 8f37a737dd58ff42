"""How layers start: the paper's two schemes, with factors computed from the basis of maps, "balanced", and "near".

The paper's layers give outputs of variance 1/3, those behind attention a hundredth of that. What an output needs several
products for starts small then, as small times small. Balanced layers keep the variance throughout.

"near" is the paper's start but for attention. The inner product of conformal points, -a b |x - y|^2 / 2, prefers far tokens
where the weights a and b that queries and keys give them have opposite signs, and none where they are small: heads that
start so have to unlearn it, and some networks never do. Queries that start like the keys prefer near tokens.
"""

from dataclasses import dataclass
from math import sqrt

import torch
from jaxtyping import Float
from torch import Tensor

from anygatr.equivariance.solver import LinearBasis

SCHEMES = ("kaiming", "identity")
STARTS = ("paper", "balanced", "near")


@dataclass(frozen=True)
class Variant:
    """A change to the start: all weights times `gain`, the scalar's bias centred on `scalar`, another `scheme`."""

    gain: float = 1.0
    scalar: float = 0.0
    scheme: str | None = None


DEFAULT = Variant()
# with "identity" all channels made of one input channel are copies of it, and in the product of x with itself whatever is
# antisymmetric cancels: a point and a velocity in one channel would never meet at the start
INPUT = Variant(scheme="kaiming")
SMALL = Variant(gain=0.1)  # the residual stream passes the first attention layers almost unchanged
ALMOST_UNIT = Variant(gain=0.5, scalar=1.0)  # a product whose right factor is close to 1 starts close to the identity


@dataclass(frozen=True)
class Balance:
    """The variance behind every layer of a balanced start, and the gain of those behind attention."""

    variance: float
    attention: float


# starting near the identity is what "identity" is for: larger weights than these made conformal networks learn more slowly
BALANCES = {"kaiming": Balance(1.0, 1.0), "identity": Balance(0.5, 0.3)}


def balancing(variant: Variant, scheme: str, share: float) -> Variant:
    """What takes a layer that started with a variant to a share of the balanced variance: uniform weights give 1/3."""
    balance = BALANCES[scheme]
    small = balance.attention / variant.gain if variant is SMALL else 1.0
    return Variant(gain=sqrt(3 * balance.variance * share) * small)


@dataclass(frozen=True)
class NearStart:
    """Queries start as gain * (sqrt(1 - share) own weights + sqrt(share) those of the keys)."""

    share: float = 0.5
    gain: float = 4.0


NEAR = NearStart()


DIGITS = 2.0**40
"""Coefficients of the identity are multiples of its inverse."""


def map_factors(basis: LinearBasis) -> Float[Tensor, " m"]:
    """Standard deviations, per map of unit Frobenius norm, that give every output grade unit variance on average.

    The maps into a grade share its variance in proportion to their ranks: f_m^2 = dim(grade) rank_m / sum of ranks. For one
    map alone this is the square root of the grade's dimension, as if each blade had a weight of its own.
    """
    matrices = basis.tensor
    ranks = torch.linalg.matrix_rank(matrices).double()
    out = torch.tensor([grade for _, grade in basis.grades])
    totals = torch.zeros(int(out.max()) + 1, dtype=torch.float64).index_add_(0, out, ranks)
    sizes = torch.bincount(basis.symmetry.algebra.grades, minlength=len(totals)).double()
    return (sizes[out] * ranks / totals[out]).sqrt()


def identity_coefficients(basis: LinearBasis) -> Float[Tensor, " m"]:
    """The combination of the maps, each of unit Frobenius norm, that is the identity of the algebra."""
    flat = basis.tensor.flatten(1)
    flat = flat / flat.norm(dim=1, keepdim=True)
    identity = torch.eye(basis.symmetry.algebra.dim, dtype=torch.float64).flatten()
    found = torch.linalg.lstsq(flat.T, identity.unsqueeze(1)).solution.squeeze(1)
    # last digits depend on where LAPACK's operands lie in memory: seeds would not give the same weights twice
    return (found * DIGITS).round() / DIGITS


def uniform_(weight: Tensor, bound: float, centre: float = 0.0) -> None:
    """Uniform in centre +- bound; with bound 1/sqrt(fan in), the start of `nn.Linear`, each sum has variance 1/3."""
    with torch.no_grad():
        weight.uniform_(centre - bound, centre + bound)


def multivector_weights(
    shape: tuple[int, int], basis: LinearBasis, scheme: str, shared: dict[int, float]
) -> Float[Tensor, "c_out c_in m"]:
    """Weights for unit-variance inputs: all maps at random ("kaiming"), or the algebra's identity times channels.

    `shared` multiplies the maps into grades that scalars feed as well.
    """
    if scheme not in SCHEMES:
        raise ValueError(f"init={scheme!r} is unknown; choose from {', '.join(map(repr, SCHEMES))}")
    c_out, c_in = shape
    bound = 1 / sqrt(max(c_in, 1))
    if scheme == "identity":
        return torch.empty(c_out, c_in, 1).uniform_(-bound, bound) * identity_coefficients(basis).float()
    factors = map_factors(basis) * torch.tensor([shared.get(out, 1.0) for _, out in basis.grades])
    return torch.empty(c_out, c_in, len(basis)).uniform_(-bound, bound) * factors.float()
