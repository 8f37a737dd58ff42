"""Wall shear stress from the force that the wall holds (consistent boundary flux).

The residual of the momentum equation at a wall node is the integral of the traction times its shape function. Dividing
by the integral of the shape function gives the traction; its tangential part is the wall shear stress. This converges
faster than differentiating the velocity, but alternates by a few percent between corner and middle nodes of the
quadratic elements, which a five-point filter, exact for cubics, removes along both directions of the wall.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anygatr.lab.data.arteries.flow.element import GAUSS, GAUSS_WEIGHTS, linear, quadratic
from anygatr.lab.data.arteries.flow.grid import TubeGrid
from anygatr.lab.data.arteries.flow.solve import Flow

Array = NDArray[np.float64]

FILTER = np.array([-1.0, 4.0, 10.0, 4.0, -1.0]) / 16


def wall_shear_stress(flow: Flow) -> Array:
    """(planes, around, 3): tangential force of the fluid on the wall per area, dyn/cm^2."""
    area, normal = wall_measure(flow.grid, flow.points)
    traction = -flow.reaction[flow.grid.wall] / area[..., None]
    # the inlet and outlet rims also carry the reaction of the caps: take the values next to them
    traction[0], traction[-1] = traction[1], traction[-2]
    tangential = _tangential(traction, normal)
    return _tangential(smooth(tangential), normal)


def nodal_pressure(flow: Flow) -> Array:
    """(nodes,): the linear pressure at all nodes, dyn/cm^2."""
    half = linear(np.array([-1.0, 0.0, 1.0]))
    corners_to_nodes = np.einsum("il,jm,kn->ijklmn", half, half, half).reshape(27, 8)
    pressure = np.empty(flow.grid.nodes)
    pressure[flow.grid.elements] = flow.pressure[flow.grid.element_pressures] @ corners_to_nodes.T
    return pressure


def wall_measure(grid: TubeGrid, points: Array) -> tuple[Array, Array]:
    """Integral of each wall shape function (planes, around) and the unit outward normal weighted by it."""
    ring = np.concatenate([grid.wall, grid.wall[:, :1]], axis=1)
    layers, sectors = grid.layers, grid.wall.shape[1] // 2
    rows = (2 * np.arange(layers)[:, None] + np.arange(3))[:, None, :, None]
    columns = (2 * np.arange(sectors)[:, None] + np.arange(3))[None, :, None, :]
    patches = points[ring[rows, columns]]  # (layers, sectors, axial, around, 3)
    value, slope = quadratic(GAUSS)
    axial = np.einsum("pi,qj,ksijc->kspqc", slope, value, patches)
    around = np.einsum("pi,qj,ksijc->kspqc", value, slope, patches)
    weights = np.outer(GAUSS_WEIGHTS, GAUSS_WEIGHTS)[..., None]
    element = np.cross(around, axial) * weights
    flux = np.einsum("pi,qj,kspqc->ksijc", value, value, element)
    size = np.einsum("pi,qj,kspq->ksij", value, value, np.linalg.norm(element, axis=-1))
    area, normal = np.zeros(grid.wall.shape), np.zeros((*grid.wall.shape, 3))
    place = np.broadcast_arrays(rows, columns % grid.wall.shape[1])
    np.add.at(area, tuple(place), size)
    np.add.at(normal, tuple(place), flux)
    return area, normal / np.linalg.norm(normal, axis=-1, keepdims=True)


def smooth(field: Array) -> Array:
    """Apply the filter around the circumference and along the axis, where the two end planes are kept."""
    padded = np.concatenate([field[:, -2:], field, field[:, :2]], axis=1)
    field = sum(w * padded[:, k : k + field.shape[1]] for k, w in enumerate(FILTER))
    along = field.copy()
    along[2:-2] = sum(w * field[k : len(field) - 4 + k] for k, w in enumerate(FILTER))
    return along


def _tangential(vectors: Array, normal: Array) -> Array:
    return vectors - (vectors * normal).sum(axis=-1, keepdims=True) * normal
