"""Triangulated surfaces: what is wrong with one, its areas and its vertex normals."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Index = NDArray[np.int64]

RELATIVE_AREA = 1e-10  # a triangle is degenerate below this fraction of the mean area


def surface_problems(pos: Floats, face: Index, closed: bool = True) -> list[str]:
    """Everything that makes a surface unusable, as short sentences; empty if it is sound."""
    if not np.isfinite(pos).all():
        return [f"{int((~np.isfinite(pos)).any(axis=1).sum())} vertices are not finite"]
    if face.size == 0:
        return ["there are no faces"]
    if face.min() < 0 or face.max() >= len(pos):
        return [f"faces refer to vertices {face.min()} to {face.max()}, but there are {len(pos)}"]
    problems = []
    areas = face_areas(pos, face)
    if flat := int((areas <= RELATIVE_AREA * areas.mean()).sum()):
        problems.append(f"{flat} triangles have no area, the first is number {int(areas.argmin())}")
    if loose := len(pos) - len(np.unique(face)):
        problems.append(f"{loose} vertices belong to no face")
    directed = np.concatenate([face[:, [0, 1]], face[:, [1, 2]], face[:, [2, 0]]])
    edges, counts = np.unique(np.sort(directed, axis=1), axis=0, return_counts=True)
    if many := int((counts > 2).sum()):
        problems.append(f"not a manifold: {many} edges belong to more than two faces, such as {edges[counts > 2][0]}")
    if closed and (border := int((counts == 1).sum())):
        problems.append(f"open surface: {border} edges belong to one face only; caps must be closed")
    if not many and len(np.unique(directed, axis=0)) < len(directed):
        problems.append("faces are not oriented consistently")
    return problems


def face_normals(pos: Floats, face: Index) -> NDArray[np.float64]:
    """(M, 3): normal times twice the area of each face."""
    a, b, c = (np.asarray(pos, dtype=np.float64)[face[:, k]] for k in range(3))
    return np.cross(b - a, c - a)


def face_areas(pos: Floats, face: Index) -> NDArray[np.float64]:
    """(M,): area of each face."""
    return np.linalg.norm(face_normals(pos, face), axis=1) / 2


def vertex_normals(pos: Floats, face: Index) -> NDArray[np.float64]:
    """(N, 3): unit mean of the unit normals of the adjacent faces, as the published preprocessing defines them."""
    normals = face_normals(pos, face)
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    total = np.stack([np.bincount(face.ravel(), np.repeat(normals[:, a], 3), len(pos)) for a in range(3)], axis=1)
    return total / np.maximum(np.linalg.norm(total, axis=1, keepdims=True), 1e-30)


def keep_vertices(face: Index, keep: NDArray[np.bool_]) -> Index:
    """Faces whose vertices are all kept, renumbered to the kept ones."""
    number = np.cumsum(keep) - 1
    return number[face[keep[face].all(axis=1)]]
