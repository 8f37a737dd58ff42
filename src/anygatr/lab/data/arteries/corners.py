"""The corner nodes of the flow solver's elements: a coarser mesh of the same wall, a quarter of its nodes."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from anygatr.lab.data.arteries.flow.grid import Resolution, split_squares, tube_grid
from anygatr.lab.data.arteries.preprocess import Sample

Index = NDArray[np.int64]


def corner_sample(sample: Sample, mesh: tuple[int, int, int]) -> Sample:
    """The part of a sample that lies on corner nodes, with triangles between them.

    `mesh` is that of the solver: core quads per side, rings, axial elements. Normals, distances and stress are those of
    the finer wall.
    """
    vertices, triangles = corner_mesh(*mesh)
    keep = np.isin(sample.vertex, vertices)
    number = np.full(max(int(vertices.max()), int(sample.vertex.max())) + 1, -1)
    number[sample.vertex[keep]] = np.arange(keep.sum())
    face = number[triangles]
    return Sample(
        name=sample.name,
        pos=sample.pos[keep],
        normals=sample.normals[keep],
        face=face[(face >= 0).all(axis=1)],
        geo=sample.geo[keep],
        wss=sample.wss[keep],
        mask=sample.mask[keep],
        vertex=sample.vertex[keep],
    )


@lru_cache(maxsize=4)
def corner_mesh(core: int, rings: int, layers: int) -> tuple[Index, Index]:
    """The corner nodes of the wall as vertices of the stored surface, and the triangles (m, 3) between them."""
    grid = tube_grid(Resolution(core, rings, layers))
    nodes, _ = grid.surface
    corners = np.searchsorted(nodes, grid.wall[::2, ::2])
    ring = np.concatenate([corners, corners[:, :1]], axis=1)
    squares = np.stack([ring[:-1, :-1], ring[:-1, 1:], ring[1:, :-1], ring[1:, 1:]], axis=-1)
    return np.sort(corners.ravel()), split_squares(squares.reshape(-1, 2, 2).transpose(0, 2, 1))
