"""Hexahedral meshes of a tube: an O-grid of the disk, swept along the vessel, with quadratic (27-node) elements.

Nodes lie in cross-sectional planes; element layer k lies between planes 2k and 2k+2 and owns the middle plane 2k+1.
Node number = plane * disk nodes + disk node. Pressure lives on the corner nodes of the even planes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.int64]

CORE = 0.55  # half width of the square core in a disk of radius 1
ROUNDING = 0.4  # 0: the core is a square, 1: a disk; between, no element corner is straight (180 degrees)
RING_GRADING = 1.6  # thickness ratio of neighbouring rings, thinner towards the wall


@dataclass(frozen=True)
class Resolution:
    """Size of the mesh: core quads per side, rings, axial elements."""

    core: int
    rings: int
    layers: int

    def __post_init__(self) -> None:
        for name in ("core", "rings", "layers"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")

    @property
    def around(self) -> int:
        """Wall nodes of one cross-section."""
        return 8 * self.core

    @property
    def wall_nodes(self) -> int:
        """Nodes of the wall, both ends included."""
        return self.around * (2 * self.layers + 1)


@dataclass(frozen=True, eq=False)
class DiskGrid:
    """Quadratic quads that fill the unit disk."""

    points: Array
    """(nodes, 2)"""
    quads: Index
    """(quads, 3, 3): node of each element at local coordinates (-1, 0, 1) x (-1, 0, 1), positively oriented."""
    wall: Index
    """Nodes on the unit circle, counter-clockwise from the diagonal; even entries are element corners."""

    @cached_property
    def interior(self) -> Index:
        """Nodes that are not on the wall."""
        return np.setdiff1d(np.arange(len(self.points)), self.wall)

    @cached_property
    def corners(self) -> Index:
        """Nodes that carry a pressure, ascending."""
        return np.unique(self.quads[:, ::2, ::2])

    @cached_property
    def triangles(self) -> Index:
        """(triangles, 3): every quad as 2 x 2 squares of two triangles, counter-clockwise."""
        return np.concatenate([split_squares(self.quads[:, i : i + 2, j : j + 2]) for i in (0, 1) for j in (0, 1)])


@lru_cache(maxsize=8)
def disk_grid(core: int, rings: int) -> DiskGrid:
    """Build the O-grid: `core` x `core` quads inside, `rings` rings of 4 * `core` quads around them.

    Corners are placed by formula, middle nodes halfway between them: grading the middle nodes of quadratic elements
    ruins their accuracy. Only the outermost middle nodes leave the chord, for the circle.
    """
    u = np.tan(np.linspace(-np.pi / 4, np.pi / 4, core + 1))  # equal angles as seen from the centre
    a, b = np.meshgrid(u, u, indexing="ij")
    square = np.stack([a, b], axis=-1)
    norm = np.maximum(np.linalg.norm(square, axis=-1), 1e-300)
    disk = square * (np.abs(square).max(axis=-1) / norm)[..., None]
    block = CORE * ((1 - ROUNDING) * square + ROUNDING * disk)
    around = np.concatenate([block[:-1, 0], block[-1, :-1], block[:0:-1, -1], block[0, :0:-1]])
    thickness = RING_GRADING ** -np.arange(rings, dtype=float)
    outward = np.concatenate([[0.0], np.cumsum(thickness) / thickness.sum()])
    angles = np.linspace(-0.75 * np.pi, 1.25 * np.pi, 8 * core, endpoint=False)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)

    corners = [_refine(block)[i : i + 3, j : j + 3] for i in range(0, 2 * core, 2) for j in range(0, 2 * core, 2)]
    ring = np.stack([(1 - w) * around + w * circle[::2] for w in outward])  # (rings + 1, 4 core, 2)
    ring = _refine(np.concatenate([ring, ring[:, :1]], axis=1))
    ring[-1] = circle[np.arange(8 * core + 1) % (8 * core)]
    ring[-2] = (ring[-3] + ring[-1]) / 2
    # the first index runs outwards and the second counter-clockwise, as (radius, angle)
    corners += [ring[i : i + 3, j : j + 3] for i in range(0, 2 * rings, 2) for j in range(0, 8 * core, 2)]
    return _merge(np.array(corners), circle)


@dataclass(frozen=True, eq=False)
class TubeGrid:
    """Connectivity of the swept mesh; equal for all vessels of one resolution."""

    disk: DiskGrid
    layers: int

    @property
    def planes(self) -> int:
        """Number of cross-sectional node planes."""
        return 2 * self.layers + 1

    @property
    def nodes(self) -> int:
        """Number of velocity nodes."""
        return self.planes * len(self.disk.points)

    @cached_property
    def elements(self) -> Index:
        """(elements, 27): nodes, the local index is 9 * axial + 3 * first + second; layer after layer."""
        plane = np.arange(3)[:, None, None] * len(self.disk.points)
        layer = 2 * np.arange(self.layers)[:, None, None, None, None] * len(self.disk.points)
        return (layer + plane + self.disk.quads[:, None]).reshape(-1, 27)

    @cached_property
    def pressure_number(self) -> Index:
        """(nodes,): number of the pressure unknown at a node, -1 where there is none."""
        number = np.full((self.planes, len(self.disk.points)), -1)
        corners = self.disk.corners
        number[::2, corners] = np.arange((self.layers + 1) * len(corners)).reshape(-1, len(corners))
        return number.ravel()

    @cached_property
    def element_pressures(self) -> Index:
        """(elements, 8): pressure numbers at the corners of each element, local order as in `elements`."""
        corners = self.elements.reshape(-1, 3, 3, 3)[:, ::2, ::2, ::2].reshape(-1, 8)
        return self.pressure_number[corners]

    @cached_property
    def wall(self) -> Index:
        """(planes, around): wall nodes."""
        return np.arange(self.planes)[:, None] * len(self.disk.points) + self.disk.wall

    @cached_property
    def inlet(self) -> Index:
        """All nodes of the first plane."""
        return np.arange(len(self.disk.points))

    @cached_property
    def outlet(self) -> Index:
        """All nodes of the last plane."""
        return self.inlet + (self.planes - 1) * len(self.disk.points)

    @cached_property
    def surface(self) -> tuple[Index, Index]:
        """Closed triangulated boundary, caps included: (node of each vertex, triangles (m, 3) facing outwards)."""
        ring = np.concatenate([self.wall, self.wall[:, :1]], axis=1)
        squares = np.stack([ring[:-1, :-1], ring[:-1, 1:], ring[1:, :-1], ring[1:, 1:]], axis=-1)
        wall = split_squares(squares.reshape(-1, 2, 2).transpose(0, 2, 1))
        caps = [self.inlet[self.disk.triangles[:, ::-1]], self.outlet[self.disk.triangles]]
        nodes, triangles = np.unique(np.concatenate([wall, *caps]), return_inverse=True)
        return nodes, triangles.reshape(-1, 3)


@lru_cache(maxsize=4)
def tube_grid(resolution: Resolution) -> TubeGrid:
    """The mesh connectivity of a resolution, shared by all arteries of a run."""
    return TubeGrid(disk_grid(resolution.core, resolution.rings), resolution.layers)


def split_squares(squares: Index) -> Index:
    """(n, 2, 2) positively oriented squares [first, second] -> (2 n, 3) triangles of the same orientation."""
    a, b, c, d = squares[:, 0, 0], squares[:, 1, 0], squares[:, 1, 1], squares[:, 0, 1]
    return np.stack([np.stack([a, b, c], axis=1), np.stack([a, c, d], axis=1)], axis=1).reshape(-1, 3)


def _refine(corners: Array) -> Array:
    """Insert the midpoints between the corners of a (n, m, 2) lattice."""
    n, m, _ = corners.shape
    out = np.empty((2 * n - 1, 2 * m - 1, 2))
    out[::2, ::2] = corners
    out[1::2, ::2] = (corners[1:] + corners[:-1]) / 2
    out[:, 1::2] = (out[:, 2::2] + out[:, :-2:2]) / 2
    return out


def _merge(patches: Array, circle: Array) -> DiskGrid:
    """Number the nodes of (quads, 3, 3, 2) patches, identifying equal positions."""
    keys, first, number = np.unique(
        np.round(patches.reshape(-1, 2), 9) + 0.0, axis=0, return_index=True, return_inverse=True
    )
    lookup = {tuple(key): i for i, key in enumerate(keys)}
    wall = np.array([lookup[tuple(np.round(point, 9) + 0.0)] for point in circle])
    return DiskGrid(patches.reshape(-1, 2)[first], number.reshape(-1, 3, 3), wall)
