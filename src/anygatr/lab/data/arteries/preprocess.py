"""From a stored artery to what a network sees: normals, distance to the inlet, extensions cut, mask; fixed rotations.

The order is that of the published preprocessing, on the full closed mesh: vertex normals, geodesic distance to the
inlet, then the cut. The distance is not shifted afterwards and nothing is centred or scaled.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from anygatr.lab.data.arteries.geodesic import geodesic_distance
from anygatr.lab.data.arteries.mesh import face_areas, keep_vertices, surface_problems, vertex_normals
from anygatr.lab.data.arteries.store import Artery, BadArteryError, sample_number

Kind = Literal["single", "bifurcating"]
Single = NDArray[np.float32]

CUT_DIAMETERS: dict[str, float | None] = {"single": 4.0, "bifurcating": None}
MASK_DIAMETERS = 1.0
ROTATION_SEED = 123
ROTATION_COUNT = 2000


@dataclass(frozen=True, eq=False)
class Sample:
    """One artery wall, ready for a network; all arrays are plain numpy."""

    name: str
    pos: Single
    """(n, 3), cm."""
    normals: Single
    """(n, 3), unit, outward."""
    face: NDArray[np.int64]
    """(m, 3)."""
    geo: Single
    """(n,), distance to the inlet along the wall, cm; counted from the inlet cap that was cut away."""
    wss: Single
    """(n, 3), dyn/cm^2."""
    mask: NDArray[np.bool_]
    """(n,): the nodes of loss and metrics; all nodes are input."""
    vertex: NDArray[np.int64]
    """(n,): the number that each node has in the file."""


def preprocess(artery: Artery, kind: Kind = "single") -> Sample:
    """Prepare one artery; raises BadArteryError naming it if its surface cannot be used."""
    if kind not in CUT_DIAMETERS:
        raise ValueError(f"kind={kind!r} is unknown; choose one of {', '.join(CUT_DIAMETERS)}")
    if problems := surface_problems(artery.pos, artery.face):
        raise BadArteryError(f"{artery.name}: {'; '.join(problems)}")
    normals = vertex_normals(artery.pos, artery.face)
    try:
        geo = geodesic_distance(artery.pos, artery.face, artery.inlet)
    except ValueError as error:
        raise BadArteryError(f"{artery.name}: {error}") from error
    diameter = inlet_diameter(artery)
    cut = CUT_DIAMETERS[kind]
    keep = np.ones(len(geo), dtype=bool) if cut is None else _between(geo, cut * diameter)
    if not keep.any():
        raise BadArteryError(f"{artery.name}: nothing is left between extensions of {cut} diameters of {diameter:.3f} cm")
    mask = _between(geo[keep], MASK_DIAMETERS * diameter)
    return Sample(
        name=artery.name,
        pos=artery.pos[keep],
        normals=normals[keep].astype(np.float32),
        face=keep_vertices(artery.face, keep),
        geo=geo[keep].astype(np.float32),
        wss=artery.wss[keep],
        mask=mask,
        vertex=np.flatnonzero(keep),
    )


def inlet_diameter(artery: Artery) -> float:
    """Diameter of the disk with the area of the inlet cap, cm."""
    cap = np.isin(artery.face, artery.inlet).all(axis=1)
    if not cap.any():
        raise BadArteryError(f"{artery.name}: no face lies in the inlet, so its diameter is unknown; the cap is missing")
    return float(2 * np.sqrt(face_areas(artery.pos, artery.face[cap]).sum() / np.pi))


def rotate(sample: Sample) -> Sample:
    """Turn a sample into its fixed orientation, which the number in its name determines; half are mirror images.

    Positions, normals and stress turn; face indices keep their order, so a mirrored wall's triangles wind the other way.
    """
    number = sample_number(sample.name)
    if number >= ROTATION_COUNT:
        raise BadArteryError(f"{sample.name}: there are {ROTATION_COUNT} fixed rotations, numbered from 0")
    matrix = fixed_rotations()[number].T
    turned = {key: (getattr(sample, key) @ matrix).astype(np.float32) for key in ("pos", "normals", "wss")}
    return replace(sample, **turned)


@lru_cache(maxsize=1)
def fixed_rotations() -> NDArray[np.float64]:
    """(2000, 3, 3): matrices of O(3), uniform in the Haar measure, the same in every run."""
    gaussian = np.random.default_rng(ROTATION_SEED).normal(size=(ROTATION_COUNT, 3, 3))
    q, r = np.linalg.qr(gaussian)
    # QR alone is not uniform: the signs of r's diagonal depend on the algorithm
    return q * np.sign(np.diagonal(r, axis1=1, axis2=2))[:, None, :]


def _between(geo: NDArray[np.float64], margin: float) -> NDArray[np.bool_]:
    return (geo > geo.min() + margin) & (geo < geo.max() - margin)
