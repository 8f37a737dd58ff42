"""Direct solver for the flow matrix of a tube: block elimination along the axis with dense blocks.

A tube is long and thin: the unknowns of an element layer touch only those of the two next ones, so the matrix is block
tridiagonal with blocks of a few hundred rows, and dense LAPACK eliminates them faster than a general sparse solver.
Unknowns of a layer's middle plane touch that layer alone and are condensed first. The factors are kept in single
precision; GMRES in double precision with the element matrices removes the rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from anygatr.lab.data.arteries.flow.grid import TubeGrid

Array = NDArray[np.float64]
Single = NDArray[np.float32]
Index = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Unknowns:
    """Numbering of the free unknowns: plane after plane, in each the velocities of the interior nodes, then pressures.

    Velocities on the wall and on the inlet are given; the pressure is free everywhere.
    """

    grid: TubeGrid

    @cached_property
    def velocity(self) -> Index:
        """(nodes, 3): number of a velocity component, -1 where it is given."""
        return self._numbers[0]

    @cached_property
    def pressure(self) -> Index:
        """(pressures,): number of a pressure."""
        return self._numbers[1]

    @cached_property
    def offsets(self) -> Index:
        """(planes + 1,): first number of each plane."""
        return self._numbers[2]

    @property
    def count(self) -> int:
        """Number of unknowns."""
        return int(self.offsets[-1])

    @cached_property
    def elements(self) -> Index:
        """(elements, 89): numbers of 3 x 27 velocities and 8 pressures of an element, -1 where given."""
        velocity = np.swapaxes(self.velocity[self.grid.elements], 1, 2).reshape(-1, 81)
        return np.concatenate([velocity, self.pressure[self.grid.element_pressures]], axis=1)

    def gather(self, velocity: Array, pressure: Array) -> Array:
        """The free unknowns of nodal velocities (nodes, 3) and pressures."""
        x = np.empty(self.count)
        free = self.velocity >= 0
        x[self.velocity[free]] = velocity[free]
        x[self.pressure] = pressure
        return x

    def spread(self, x: Array) -> tuple[Array, Array]:
        """Nodal velocities (zero where given) and pressures of the free unknowns."""
        return np.append(x, 0.0)[self.velocity], x[self.pressure]

    @cached_property
    def _numbers(self) -> tuple[Index, Index, Index]:
        disk, planes = self.grid.disk, self.grid.planes
        free = np.zeros((planes, len(disk.points), 4), dtype=bool)
        free[1:, disk.interior, :3] = True
        free[::2, disk.corners, 3] = True
        # velocities first within a plane, then pressures: the order of the second and third axes
        mask = np.concatenate([free[..., :3].reshape(planes, -1), free[..., 3]], axis=1)
        number = np.where(mask, np.cumsum(mask.ravel()).reshape(mask.shape) - 1, -1)
        velocity = number[:, : 3 * len(disk.points)].reshape(-1, 3)
        pressure = number[::2, 3 * len(disk.points) :][:, disk.corners].ravel()
        return velocity, pressure, np.concatenate([[0], np.cumsum(mask.sum(axis=1))])


@dataclass(frozen=True, eq=False)
class FlowMatrix:
    """A matrix over the free unknowns, stored as one dense matrix per element."""

    unknowns: Unknowns
    blocks: Array
    """(elements, 89, 89)"""

    def __matmul__(self, x: Array) -> Array:
        padded = np.append(x, 0.0)  # entry -1 is the given values
        local = (self.blocks @ padded[self.unknowns.elements][:, :, None])[:, :, 0]
        number = self.unknowns.elements.ravel() + 1  # given values collect in entry 0
        total = np.bincount(number, local.ravel(), minlength=self.unknowns.count + 1)[1:]
        return total.astype(np.float64)

    def layer(self, k: int) -> Single:
        """The dense matrix of element layer k over the unknowns of its three planes."""
        per_layer = len(self.blocks) // self.unknowns.grid.layers
        here = slice(k * per_layer, (k + 1) * per_layer)
        first, last = self.unknowns.offsets[2 * k], self.unknowns.offsets[2 * k + 3]
        size = last - first
        number = np.where(self.unknowns.elements[here] < 0, size, self.unknowns.elements[here] - first)
        flat = number[:, :, None] * (size + 1) + number[:, None, :]
        dense = np.bincount(flat.ravel(), self.blocks[here].ravel(), minlength=(size + 1) ** 2)
        return dense.reshape(size + 1, size + 1)[:-1, :-1].astype(np.float32)


class LayeredLU:
    """Factors of a FlowMatrix, and their use as the preconditioner that solves with it or with a nearby matrix."""

    def __init__(self, matrix: FlowMatrix) -> None:
        self.offsets = matrix.unknowns.offsets
        self.middle: list[_Factor] = []
        self.condensed: list[_Condensed] = []
        carry: Single | None = None
        for k in range(matrix.unknowns.grid.layers):
            carry = self._eliminate(k, matrix.layer(k), carry)
        assert carry is not None, "a tube has at least one layer"
        self.last = _Factor(carry)

    def precondition(self, b: Array) -> Array:
        """One forward and backward substitution in single precision."""
        planes = [b[i:j].astype(np.float32) for i, j in zip(self.offsets[:-1], self.offsets[1:], strict=True)]
        for k, c in enumerate(self.condensed):
            planes[2 * k + 1] = self.middle[k].solve(planes[2 * k + 1])
            pull = c.outer_middle @ planes[2 * k + 1]
            planes[2 * k] = c.diagonal.solve(planes[2 * k] - pull[: c.split])
            planes[2 * k + 2] = planes[2 * k + 2] - pull[c.split :] - c.lower @ planes[2 * k]
        planes[-1] = self.last.solve(planes[-1])
        for k, c in reversed(list(enumerate(self.condensed))):
            planes[2 * k] -= c.upper @ planes[2 * k + 2]
            planes[2 * k + 1] -= c.middle_outer @ np.concatenate([planes[2 * k], planes[2 * k + 2]])
        return np.concatenate(planes).astype(np.float64)

    def solve(self, matrix: FlowMatrix, b: Array, rtol: float, max_iterations: int) -> tuple[Array, int, bool]:
        """Solve matrix x = b to |b - A x| <= rtol |b|; returns x, the iterations used and whether they sufficed.

        Right-preconditioned GMRES: the norm it minimises is that of the true residual, which the left-preconditioned
        form of SciPy is not.
        """
        basis, directions = [b / np.linalg.norm(b)], []
        hessenberg = np.zeros((max_iterations + 1, max_iterations))
        target = np.zeros(max_iterations + 1)
        target[0] = np.linalg.norm(b)
        for n in range(max_iterations):
            directions.append(self.precondition(basis[n]))
            w = matrix @ directions[n]
            for i, v in enumerate(basis):
                hessenberg[i, n] = v @ w
                w -= hessenberg[i, n] * v
            hessenberg[n + 1, n] = np.linalg.norm(w)
            square = hessenberg[: n + 2, : n + 1]
            y = np.linalg.lstsq(square, target[: n + 2], rcond=None)[0]
            if np.linalg.norm(target[: n + 2] - square @ y) <= rtol * target[0]:
                return np.stack(directions, axis=1) @ y, n + 1, True
            basis.append(w / hessenberg[n + 1, n])
        return np.stack(directions, axis=1) @ y, max_iterations, False

    def _eliminate(self, k: int, layer: Single, carry: Single | None) -> Single:
        """Eliminate the middle, then the first plane of layer k; returns what is left for its last plane."""
        first, middle, last, end = self.offsets[2 * k : 2 * k + 4] - self.offsets[2 * k]
        inner = slice(middle, last)
        outer = np.r_[first:middle, last:end]
        factor = _Factor(layer[inner, inner])
        middle_outer = factor.solve(layer[inner][:, outer])
        outer_middle = np.ascontiguousarray(layer[outer][:, inner])
        schur = layer[np.ix_(outer, outer)] - outer_middle @ middle_outer
        if carry is not None:
            schur[:middle, :middle] += carry
        diagonal = _Factor(schur[:middle, :middle])
        upper = diagonal.solve(schur[:middle, middle:])
        lower = np.ascontiguousarray(schur[middle:, :middle])
        self.middle.append(factor)
        self.condensed.append(_Condensed(int(middle), diagonal, lower, upper, outer_middle, middle_outer))
        return schur[middle:, middle:] - lower @ upper


@dataclass(frozen=True, eq=False)
class _Condensed:
    split: int
    diagonal: _Factor
    lower: Single
    upper: Single
    outer_middle: Single
    middle_outer: Single


class _Factor:
    """LU factors of one dense block."""

    def __init__(self, matrix: Single) -> None:
        self.lu, self.pivots, info = lapack.sgetrf(matrix)
        if info > 0:
            raise np.linalg.LinAlgError(f"singular block of {len(matrix)} unknowns in the flow matrix")

    def solve(self, b: Single) -> Single:
        x, _ = lapack.sgetrs(self.lu, self.pivots, b)
        return x
