"""The spaces of the presets, one declaration each, for any dimension: they differ by the vector infinity."""

from collections.abc import Callable

from anygatr.algebra import Algebra
from anygatr.spaces.space import Space


def euclidean_space(dim: int) -> Space:
    """G(d, 0, 0): no infinity, so points are vectors from an origin."""
    return Space(Algebra(dim), _axes(dim), point="relative")


def projective_space(dim: int) -> Space:
    """G(d, 0, 1): infinity = -e0, and a point is the meet of the coordinate planes through it."""
    alg = Algebra(dim, 0, 1)
    return Space(alg, _axes(dim), -alg["e0"], point="meet", ideal=alg["e0"])


def conformal_space(dim: int) -> Space:
    """G(d + 1, 1, 0): infinity = e- - e+, and a point is the null vector o carried to it."""
    alg = Algebra(dim + 1, 1, names=(*_axes(dim), "e+", "e-"))
    return Space(alg, _axes(dim), alg["e-"] - alg["e+"], point="null")


def spacetime(dim: int) -> Space:
    """G(1, d, 0): the momenta of d + 1 dimensional spacetime, without points."""
    return Space(Algebra(1, dim, names=("e0", *_axes(dim))), ("e0", *_axes(dim)), time="e0")


def _axes(dim: int) -> tuple[str, ...]:
    return tuple(f"e{i}" for i in range(1, dim + 1))


STANDARD: dict[str, Callable[[int], Space]] = {
    "E": euclidean_space,
    "P": projective_space,
    "iP": projective_space,
    "C": conformal_space,
    "L": spacetime,
}
