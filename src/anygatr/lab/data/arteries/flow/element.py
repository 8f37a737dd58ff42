"""Integrals over quadratic hexahedra (27 nodes) with linear pressure (8 nodes): Taylor-Hood, batched over elements.

# axes: e element, q quadrature point, i j velocity nodes, l pressure node, a b space
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

GAUSS = np.array([-np.sqrt(0.6), 0.0, np.sqrt(0.6)])
GAUSS_WEIGHTS = np.array([5.0, 8.0, 5.0]) / 9


def quadratic(x: Array) -> tuple[Array, Array]:
    """Values and slopes (points, 3) of the quadratic Lagrange polynomials of the nodes -1, 0, 1."""
    values = np.stack([x * (x - 1) / 2, 1 - x * x, x * (x + 1) / 2], axis=-1)
    return values, np.stack([x - 0.5, -2 * x, x + 0.5], axis=-1)


def linear(x: Array) -> Array:
    """Values (points, 2) of the linear polynomials of the nodes -1, 1."""
    return np.stack([(1 - x) / 2, (1 + x) / 2], axis=-1)


@lru_cache(maxsize=1)
def reference() -> tuple[Array, Array, Array, Array]:
    """At the 27 Gauss points: velocity shapes (q, i), their slopes (q, i, a), pressure shapes (q, l), weights (q,)."""
    value, slope = quadratic(GAUSS)
    shapes = _tensor(value, value, value)
    slopes = np.stack([_tensor(slope, value, value), _tensor(value, slope, value), _tensor(value, value, slope)], -1)
    pressure = _tensor(linear(GAUSS), linear(GAUSS), linear(GAUSS))
    weights = np.einsum("i,j,k->ijk", GAUSS_WEIGHTS, GAUSS_WEIGHTS, GAUSS_WEIGHTS).ravel()
    return shapes, slopes, pressure, weights


@dataclass(frozen=True, eq=False)
class ElementIntegrals:
    """The geometry of a batch of elements and the matrices of the flow equations on them."""

    coordinates: Array
    """(e, 27, 3) node positions."""

    def __post_init__(self) -> None:
        if not np.all(self.weights > 0):
            folded = int((self.weights <= 0).any(axis=1).sum())
            raise ValueError(f"{folded} of {len(self.weights)} elements are folded: the vessel bends or narrows too fast")

    @cached_property
    def _jacobian(self) -> Array:
        return np.einsum("qia,eib->eqab", reference()[1], self.coordinates, optimize=True)  # d x_b / d xi_a

    @cached_property
    def weights(self) -> Array:
        """(e, q): quadrature weight times volume element."""
        # the local axes (axial, first, second) are positively oriented for counter-clockwise quads
        return np.linalg.det(self._jacobian) * reference()[3]

    @cached_property
    def gradients(self) -> Array:
        """(e, q, a, i): gradients of the velocity shapes in space."""
        return np.linalg.inv(self._jacobian) @ np.swapaxes(reference()[1], 1, 2)

    @cached_property
    def stiffness(self) -> Array:
        """(e, i, j): integral of grad N_i . grad N_j."""
        g = (self.gradients * np.sqrt(self.weights)[:, :, None, None]).reshape(len(self.weights), -1, 27)
        return np.swapaxes(g, 1, 2) @ g

    @cached_property
    def divergence(self) -> Array:
        """(e, l, a, i): minus the integral of M_l d_a N_i, the weak divergence and the transposed pressure gradient."""
        weighted = (self.gradients * self.weights[:, :, None, None]).reshape(len(self.weights), -1, 81)
        return -(reference()[2].T @ weighted).reshape(-1, 8, 3, 27)

    def velocity(self, nodal: Array) -> Array:
        """(e, q, a): the field (e, i, a) at the quadrature points."""
        return reference()[0] @ nodal

    def velocity_gradient(self, nodal: Array) -> Array:
        """(e, q, b, a): d_b u_a of the field (e, i, a)."""
        return self.gradients @ nodal[:, None]

    def convection(self, nodal: Array) -> Array:
        """(e, i, j): integral of N_i (u . grad N_j)."""
        u = self.velocity(nodal) * self.weights[:, :, None]
        return reference()[0].T @ (u[:, :, None] @ self.gradients)[:, :, 0]

    def reaction(self, nodal: Array) -> Array:
        """(e, b, a, i, j): integral of N_i N_j d_b u_a, the second part of Newton's linearised convection."""
        shapes = reference()[0]
        outer = (shapes[:, :, None] * shapes[:, None, :]).reshape(-1, 27 * 27)  # (q, i j)
        slopes = (self.velocity_gradient(nodal) * self.weights[:, :, None, None]).reshape(len(nodal), -1, 9)
        return (np.swapaxes(slopes, 1, 2) @ outer).reshape(-1, 3, 3, 27, 27)

    def acceleration(self, nodal: Array) -> Array:
        """(e, i, a): integral of N_i (u . grad) u."""
        rate = (self.velocity(nodal)[:, :, None] @ self.velocity_gradient(nodal))[:, :, 0]
        return reference()[0].T @ (rate * self.weights[:, :, None])


def _tensor(a: Array, b: Array, c: Array) -> Array:
    """Tensor product of one-dimensional shapes, points and nodes in row-major order."""
    return np.einsum("pi,qj,rk->pqrijk", a, b, c).reshape(len(a) * len(b) * len(c), -1)
