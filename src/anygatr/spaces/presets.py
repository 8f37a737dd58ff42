"""The geometries of the paper, one declaration each: E, P, iP and C of any dimension, and L, the momenta of spacetime."""

from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from anygatr.equivariance.symmetry import Symmetry, euclidean, pin, spin
from anygatr.spaces.features import Distance, Inner
from anygatr.spaces.geometry import Geometry
from anygatr.spaces.space import Space
from anygatr.spaces.standard import conformal_space, euclidean_space, projective_space, spacetime

OVERRIDES = ("norm", "norm_eps", "norm_form", "init", "products", "features", "join_reference", "frame")


def geometry(name: str = "C", dim: int = 3, mirrors: bool = True, **overrides: Any) -> Geometry:
    """The preset "E", "P", "iP", "C" or "L" for R^dim, equivariant under E(dim) or, without mirrors, under SE(dim).

    Also "euclidean", "projective", "conformal", "lorentz". `overrides` replace norm, norm_eps, norm_form, init,
    products, features, join_reference or frame.
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
    geo = PRESETS[name](dim, mirrors)
    return replace(geo, **overrides) if overrides else geo


def _euclidean(dim: int, mirrors: bool) -> Geometry:
    space = euclidean_space(dim)
    return _geometry(space, euclidean(space.algebra, mirrors=mirrors), name="E")


def _projective(dim: int, mirrors: bool) -> Geometry:
    space = projective_space(dim)
    return _geometry(space, euclidean(space.algebra, space.infinity, mirrors), name="P")


def _improved_projective(dim: int, mirrors: bool) -> Geometry:
    geo = _projective(dim, mirrors)
    point = geo.point_polynomial
    weight = int(point.constant.nonzero())
    distance = Distance(weight, tuple(point.linear.nonzero()[:, 1].tolist()), tuple(point.linear.sum(-1).tolist()))
    # the weights' own product is a part of the distance, so the inner product leaves it out
    inner = Inner.of(geo.algebra, without=(weight,))
    return replace(geo, products=("geometric", "join"), features=(inner, distance), name="iP")


def _conformal(dim: int, mirrors: bool) -> Geometry:
    space = conformal_space(dim)
    group = euclidean(space.algebra, space.infinity, mirrors)
    return _geometry(space, group, norm="grade_abs", init="identity", name="C")


def _lorentz(dim: int, mirrors: bool) -> Geometry:
    space = spacetime(dim)
    return _geometry(space, pin(space.algebra) if mirrors else spin(space.algebra), norm="grade_abs", name="L")


def _geometry(space: Space, symmetry: Symmetry, **choices: Any) -> Geometry:
    declared = {key: getattr(space, key) for key in ("algebra", "axes", "infinity", "point", "ideal", "time")}
    return Geometry(symmetry=symmetry, **declared, **choices)


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
