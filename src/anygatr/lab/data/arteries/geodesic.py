"""Geodesic distance on a triangulated surface by the heat method.

Heat diffuses from the sources for a short time t; its gradient, normalised, points along the geodesics; the distance
is the function whose gradient fits that field best: (M + t L) u = source, X = -grad u / |grad u|, L d = div X.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solveh_banded
from scipy.sparse import coo_matrix, csr_matrix, diags
from scipy.sparse.csgraph import connected_components, reverse_cuthill_mckee

from anygatr.lab.data.arteries.mesh import face_normals

Array = NDArray[np.float64]
Index = NDArray[np.int64]


def geodesic_distance(pos: NDArray[np.floating[Any]], face: Index, sources: Index, time_scale: float = 1.0) -> Array:
    """(N,): distance of each vertex to the nearest source vertex along the surface.

    The diffusion time is `time_scale` times the squared mean edge length.
    """
    pos = np.asarray(pos, dtype=np.float64)
    sources = np.unique(sources)
    if len(sources) == 0:
        raise ValueError("sources is empty: the distance needs at least one vertex")
    free = np.setdiff1d(np.arange(len(pos)), sources)
    corners = pos[face]
    edges = np.roll(corners, -1, axis=1) - corners  # edge k leaves corner k
    laplacian, mass = _operators(edges, face, len(pos))
    parts, label = connected_components(laplacian, directed=False)
    if missing := parts - len(np.unique(label[sources])):
        raise ValueError(f"{missing} of {parts} separate parts of the surface contain no source vertex")

    step = time_scale * np.linalg.norm(edges, axis=2).mean() ** 2
    start = np.zeros(len(pos))
    start[sources] = 1.0
    heat = _solve_banded(mass + step * laplacian, start)

    normal = face_normals(pos, face)
    opposite = np.roll(edges, -1, axis=1)  # edge opposite to corner k
    gradient = np.cross(normal[:, None], opposite)  # times the nodal value, up to a factor per face
    # relative to the face's largest value: far away heat underflows any absolute scale
    local = heat[face] / np.maximum(np.abs(heat[face]).max(axis=1, keepdims=True), 1e-300)
    direction = -(gradient * local[:, :, None]).sum(axis=1)
    direction /= np.maximum(np.linalg.norm(direction, axis=1, keepdims=True), 1e-300)

    cotangents = _cotangents(edges)
    # integrated divergence at a corner: its two edges, each weighted with the cotangent of the angle it does not touch
    out, back = edges, -np.roll(edges, 1, axis=1)
    flow = np.roll(cotangents, -2, axis=1)[..., None] * out + np.roll(cotangents, -1, axis=1)[..., None] * back
    share = (flow * direction[:, None]).sum(axis=2) / 2
    divergence = np.bincount(face.ravel(), share.ravel(), len(pos)).astype(np.float64)

    distance = np.zeros(len(pos))
    distance[free] = _solve_banded(laplacian[free][:, free], -divergence[free])
    return np.maximum(distance, 0.0)


def _operators(edges: Array, face: Index, count: int) -> tuple[Any, Any]:
    """Positive semidefinite cotangent Laplacian and lumped mass matrix."""
    cotangents = _cotangents(edges) / 2
    i, j = np.roll(face, -1, axis=1).ravel(), np.roll(face, -2, axis=1).ravel()  # the edge opposite to corner k
    weights = cotangents.ravel()
    adjacency = coo_matrix((weights, (i, j)), shape=(count, count))
    adjacency = (adjacency + adjacency.T).tocsr()
    laplacian = diags(np.asarray(adjacency.sum(axis=1)).ravel()) - adjacency
    area = np.linalg.norm(np.cross(edges[:, 0], edges[:, 1]), axis=1) / 2
    return laplacian.tocsr(), diags(np.bincount(face.ravel(), np.repeat(area / 3, 3), count))


def _cotangents(edges: Array) -> Array:
    """(M, 3): cotangent of the angle at each corner."""
    out, back = edges, -np.roll(edges, 1, axis=1)
    return (out * back).sum(axis=2) / np.linalg.norm(np.cross(out, back), axis=2)


def _solve_banded(matrix: Any, b: Array) -> Array:
    """Solve a positive definite system in the order that makes its band narrow: a wall is a long thin tube."""
    matrix = csr_matrix(matrix)
    order = reverse_cuthill_mckee(matrix, symmetric_mode=True)
    entries = matrix[order][:, order].tocoo()
    lower = entries.row >= entries.col
    row, column, value = entries.row[lower], entries.col[lower], entries.data[lower]
    band = np.zeros(((row - column).max() + 1, len(b)))
    band[row - column, column] = value
    x = np.empty(len(b))
    x[order] = solveh_banded(band, b[order], lower=True, overwrite_ab=True)
    return x
