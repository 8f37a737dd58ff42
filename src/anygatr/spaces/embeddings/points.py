"""Points as multivectors and back, and the origin of a point cloud."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anygatr.spaces.coordinates import Coordinates, Multivector, absolute, coordinates, finite, nonzero, relative, require
from anygatr.spaces.space import HasSpace

WEIGHTLESS = "weights of a sample add up to zero, so it has no origin; mask fewer tokens or pass None"


def embed_point(geo: HasSpace, x: Coordinates, origin: Tensor | None = None, oriented: bool = False) -> Multivector:
    """The point at x; `oriented` gives the one that changes sign under mirrors, where the plain one does not.

    Points of projective geometry are always oriented: embed_point(M x) = -act(M, embed_point(x)) for a mirror M.
    """
    space = geo.require("oriented_point" if oriented else "point")
    p, orient = space.tables.point, space.tables.orient
    assert p is not None
    assert orient is not None
    x = relative(coordinates(x, "x", len(space.axes)), origin)
    squares = (x.unsqueeze(-1) * x.unsqueeze(-2)).flatten(-2)
    out = p.constant.to(x) + x @ p.linear.to(x) + squares @ p.quadratic.flatten(0, 1).to(x)
    return out @ orient.to(out) if oriented else out


def extract_point(geo: HasSpace, mv: Multivector, origin: Tensor | None = None, oriented: bool = False) -> Tensor:
    """The position w / a of a point of weight a, for any multivector; |a| <= 0.001 counts as 0.001."""
    space = geo.require("oriented_point" if oriented else "point")
    p, unorient = space.tables.point, space.tables.unorient
    assert p is not None
    assert unorient is not None
    mv = space.blades(mv) @ unorient.to(mv) if oriented else space.blades(mv)
    linear = p.linear.to(mv)
    position = mv @ (linear / linear.square().sum(-1, keepdim=True)).T
    return absolute(position / nonzero(point_weight(geo, mv)).unsqueeze(-1), origin)


def point_weight(geo: HasSpace, mv: Multivector) -> Float[Tensor, "*batch"]:
    """The homogeneous weight a of a point, which is 1 for an embedded one; always 1 where points are relative."""
    space = geo.require("point")
    assert space.tables.point is not None
    if space.point == "relative":
        return torch.ones_like(mv[..., 0])
    constant = space.tables.point.constant.to(mv)
    return mv @ (constant / constant.square().sum())


def origin(
    geo: HasSpace,
    points: Float[Tensor, "*batch n d"],
    weights: Float[Tensor, "*batch n"] | None = None,
    offsets: Int[Tensor, " b"] | None = None,
) -> Float[Tensor, "*batch m d"]:
    """The (weighted) mean of each sample, accumulated in float64: one row per sample, (..., 1, d).

    Packed samples, with `offsets`, get one row per token: (N, d).
    """
    sample = None if offsets is None else samples(offsets, len(points)).to(points.device)
    return mean_of_samples(geo, points, weights, sample, 0 if offsets is None else len(offsets) - 1)


def mean_of_samples(
    geo: HasSpace,
    points: Float[Tensor, "*batch n d"],
    weights: Float[Tensor, "*batch n"] | None,
    sample: Int[Tensor, " n"] | None,
    count: int,
) -> Float[Tensor, "*batch m d"]:
    """The same where it is known to which of `count` packed samples each token belongs."""
    x = coordinates(points, "points", len(geo.space.axes)).double()
    if weights is not None and weights.shape != x.shape[:-1]:
        raise ValueError(f"weights has shape {tuple(weights.shape)}; points need one each: {tuple(x.shape[:-1])}")
    w = torch.ones_like(x[..., :1]) if weights is None else finite(weights, "weights").to(x).unsqueeze(-1)
    if sample is None:
        total, mean = w.sum(-2, keepdim=True), (w * x).sum(-2, keepdim=True)
    else:
        zero = x.new_zeros(count, 1)
        total = zero.index_add(0, sample, w)[sample]
        mean = zero.expand(-1, x.shape[-1]).index_add(0, sample, w * x)[sample]
    if weights is not None:
        require(lambda: (total != 0).all(), lambda: ValueError(WEIGHTLESS))
    return (mean / total).to(points.dtype)


def samples(offsets: Int[Tensor, " b"], tokens: int) -> Int[Tensor, " n"]:
    """The sample each packed token belongs to, once the offsets have been checked."""
    require_offsets(offsets)
    require_packed(offsets, tokens)
    # differences of unsigned or small integers would wrap around
    lengths = offsets.long().diff()
    return torch.repeat_interleave(torch.arange(len(lengths), device=offsets.device), lengths)


def samples_unseen(offsets: Int[Tensor, " b"], tokens: int) -> Int[Tensor, " n"]:
    """The same without a look at the offsets' numbers, for a device that would have to be waited for.

    Wrong ones are found when they are read back; until then every token has some sample.
    """
    ends, token = offsets.detach().long()[1:].contiguous(), torch.arange(tokens, device=offsets.device)
    return torch.searchsorted(ends, token, right=True).clamp(max=len(ends) - 1)


def require_offsets(offsets: Int[Tensor, " b"]) -> None:
    """Raise unless it is a vector of integers."""
    if not isinstance(offsets, Tensor) or offsets.dim() != 1 or offsets.is_floating_point() or offsets.dtype == torch.bool:
        raise ValueError("offsets must be a 1-dimensional integer tensor (0, n1, n1 + n2, ..., N)")


def require_packed(offsets: Int[Tensor, " b"], tokens: int) -> None:
    """Raise unless they cut the tokens into samples of at least one; offsets on a device are waited for."""
    if len(offsets) < 2 or int(offsets[0]) != 0 or int(offsets[-1]) != tokens:
        raise ValueError(f"offsets={offsets.tolist()} must start at 0 and end at the number of tokens, {tokens}")
    lengths = offsets.long().diff()
    if bool((lengths < 1).any()):
        first = int((lengths < 1).nonzero()[0])
        problem = "is empty" if int(lengths[first]) == 0 else "ends before it starts: offsets must increase"
        raise ValueError(f"offsets={offsets.tolist()}: sample {first} {problem}; leave it out")
