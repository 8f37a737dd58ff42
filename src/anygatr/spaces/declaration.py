"""Geometries as JSON: presets by name and arguments, any geometry by a fingerprint of all that a network asks of it."""

import hashlib
import json
from dataclasses import asdict, is_dataclass
from typing import Any

import torch
from torch import Tensor

from anygatr.algebra import Algebra
from anygatr.equivariance.symmetry import Symmetry
from anygatr.spaces.features import Distance, Feature, Inner
from anygatr.spaces.geometry import Geometry
from anygatr.spaces.presets import OVERRIDES, PRESETS, geometry

FEATURES = {"Inner": Inner, "Distance": Distance}
MAX_DIM = 4  # what a file may ask to be solved: higher dimensions take long, and those who trust it can pass them
DIGITS = 9  # numbers closer than this have one fingerprint


def describe(geo: Geometry) -> dict[str, Any]:
    """The fingerprint and, where it is one, the preset with its arguments, as JSON."""
    return {"name": geo.name, "fingerprint": fingerprint(geo), "preset": _preset(geo)}


def restore(description: dict[str, Any]) -> Geometry:
    """The preset a description names. Raises for custom geometries, and for more dimensions than a file may ask for."""
    preset = description.get("preset")
    if preset is None:
        raise ValueError(
            f"its geometry {description.get('name')!r} is not a preset; pass it: load(path, geometry=your_geometry)"
        )
    if not isinstance(preset, dict) or set(preset) != {"name", "dim", "mirrors", "overrides"}:
        raise ValueError(f"preset={preset!r} must have name, dim, mirrors and overrides")
    name, dim, mirrors, overrides = preset["name"], preset["dim"], preset["mirrors"], preset["overrides"]
    if not isinstance(name, str) or not isinstance(overrides, dict):
        raise ValueError(f"preset={preset!r} needs a name and a dictionary of overrides")
    if isinstance(dim, int) and dim > MAX_DIM:
        raise ValueError(
            f"it asks for the geometry {name!r} in dim={dim}; files may ask for up to {MAX_DIM}. If you trust it, "
            f"pass geometry=geometry({name!r}, {dim})"
        )
    try:
        return geometry(name, dim, mirrors, **{key: _decoded(key, value) for key, value in overrides.items()})
    except TypeError as error:
        raise ValueError(f"preset={preset!r} does not describe a geometry: {error}") from error


def fingerprint(geo: Geometry) -> str:
    """A hash of the algebra, the group, its maps in order, the features and all choices: equal if weights mean the same.

    The frame of the stream is not part of it: it changes rounding alone.
    """
    declared = {name: _encoded(value) for name, value in geo.declared.items() if name != "frame"}
    declared["maps"] = _encoded(geo.linear_basis.tensor)
    return hashlib.sha256(json.dumps(declared, sort_keys=True).encode()).hexdigest()[:32]


def _preset(geo: Geometry) -> dict[str, Any] | None:
    if geo.name not in PRESETS:
        return None
    mirrors = len(geo.symmetry.mirrors) > 0
    base = geometry(geo.name, geo.dim, mirrors)
    changed = {key: getattr(geo, key) for key in OVERRIDES if getattr(geo, key) != getattr(base, key)}
    if any(type(feature) not in FEATURES.values() for feature in changed.get("features", ())):
        return None
    if geometry(geo.name, geo.dim, mirrors, **changed) != geo:
        return None
    overrides = {key: _encoded(value) for key, value in changed.items()}
    return {"name": geo.name, "dim": geo.dim, "mirrors": mirrors, "overrides": overrides}


def _encoded(value: Any) -> Any:
    """JSON of a field of a geometry."""
    if isinstance(value, Algebra):
        return {"p": value.p, "q": value.q, "r": value.r, "names": value.names}
    if isinstance(value, Symmetry):
        return {"generators": _encoded(value.generators), "mirrors": _encoded(value.mirrors)}
    if isinstance(value, Tensor):
        return (torch.round(value.double(), decimals=DIGITS) + 0.0).tolist()  # + 0.0: no negative zeros
    if isinstance(value, tuple):
        return [_encoded(item) for item in value]
    if isinstance(value, str | int | float | None):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        parts = {key: part for key, part in asdict(value).items() if part != ()}  # what is empty says nothing
        return {"type": type(value).__name__, **{key: _encoded(part) for key, part in parts.items()}}
    raise ValueError(f"features contains {value!r}, which cannot be described; make it a frozen dataclass of numbers")


def _decoded(key: str, value: Any) -> Any:
    if key == "products" and isinstance(value, list):
        return tuple(value)
    return tuple(_feature(item) for item in value) if key == "features" and isinstance(value, list) else value


def _feature(item: Any) -> Feature:
    if not isinstance(item, dict) or item.get("type") not in FEATURES:
        raise ValueError(f"features contains {item!r}; files may have {', '.join(FEATURES)}")
    arguments = {key: tuple(part) if isinstance(part, list) else part for key, part in item.items() if key != "type"}
    return FEATURES[item["type"]](**arguments)
