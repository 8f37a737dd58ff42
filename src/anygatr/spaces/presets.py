"""The geometries of the paper, one declaration each: E, P, iP and C of any dimension, and L, the momenta of spacetime."""

from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from anygatr.algebra import Algebra
from anygatr.equivariance.symmetry import euclidean, pin, spin
from anygatr.spaces.features import Distance, Inner
from anygatr.spaces.geometry import Geometry

OVERRIDES = ("norm", "norm_eps", "norm_form", "init", "products", "features", "join_reference")


def geometry(name: str = "C", dim: int = 3, mirrors: bool = True, **overrides: Any) -> Geometry:
    """The preset "E", "P", "iP", "C" or "L" for R^dim, equivariant under E(dim) or, without mirrors, under SE(dim).

    Also "euclidean", "projective", "conformal", "lorentz". `overrides` replace norm, norm_eps, norm_form, init,
    products, features or join_reference.
    """
    if name not in PRESETS:
        near = get_close_matches(str(name), PRESETS, n=1, cutoff=0.4)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"name={name!r} is not a geometry{hint} Choose from {', '.join(PRESETS)}")
    if not isinstance(dim, int) or isinstance(dim, bool) or dim < 1:
        raise ValueError(f"dim={dim!r} must be a positive integer: the dimension of space")
    if not isinstance(mirrors, bool):
        raise ValueError(f"mirrors={mirrors!r} must be True (the group has mirrors) or False")
    for key in overrides:
        if key not in OVERRIDES:
            near = get_close_matches(key, OVERRIDES, n=1, cutoff=0.4)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"{key!r} is not an override{hint} Choose from {', '.join(OVERRIDES)}")
    return replace(PRESETS[name](dim, mirrors), **overrides)


def _euclidean(dim: int, mirrors: bool) -> Geometry:
    alg = Algebra(dim)
    return Geometry(alg, euclidean(alg, mirrors=mirrors), axes=_axes(dim), point="relative", name="E")


def _projective(dim: int, mirrors: bool) -> Geometry:
    alg = Algebra(dim, 0, 1)
    infinity = -alg["e0"]
    return Geometry(alg, euclidean(alg, infinity, mirrors), _axes(dim), infinity, point="meet", ideal=alg["e0"], name="P")


def _improved_projective(dim: int, mirrors: bool) -> Geometry:
    geo = _projective(dim, mirrors)
    point = geo.point_polynomial
    weight = int(point.constant.nonzero())
    distance = Distance(weight, tuple(point.linear.nonzero()[:, 1].tolist()), tuple(point.linear.sum(-1).tolist()))
    # the weights' own product is a part of the distance, so the inner product leaves it out
    inner = Inner.of(geo.algebra, without=(weight,))
    return replace(geo, products=("geometric", "join"), features=(inner, distance), name="iP")


def _conformal(dim: int, mirrors: bool) -> Geometry:
    alg = Algebra(dim + 1, 1, names=(*_axes(dim), "e+", "e-"))
    infinity = alg["e-"] - alg["e+"]
    return Geometry(
        alg,
        euclidean(alg, infinity, mirrors),
        _axes(dim),
        infinity,
        point="null",
        norm="grade_abs",
        init="identity",
        name="C",
    )


def _lorentz(dim: int, mirrors: bool) -> Geometry:
    alg = Algebra(1, dim, names=("e0", *_axes(dim)))
    return Geometry(alg, pin(alg) if mirrors else spin(alg), axes=("e0", *_axes(dim)), time="e0", norm="grade_abs", name="L")


def _axes(dim: int) -> tuple[str, ...]:
    return tuple(f"e{i}" for i in range(1, dim + 1))


PRESETS: dict[str, Callable[[int, bool], Geometry]] = {
    "E": _euclidean,
    "P": _projective,
    "iP": _improved_projective,
    "C": _conformal,
    "L": _lorentz,
    "euclidean": _euclidean,
    "projective": _projective,
    "conformal": _conformal,
    "lorentz": _lorentz,
}
