"""Steady Navier-Stokes in a vessel: the discrete equations, and their solution."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from anygatr.lab.data.arteries.flow.element import ElementIntegrals
from anygatr.lab.data.arteries.flow.grid import Resolution, TubeGrid, tube_grid
from anygatr.lab.data.arteries.flow.linear import FlowMatrix, Unknowns
from anygatr.lab.data.arteries.flow.newton import FlowState, Iteration, NewtonStep, NoConvergenceError
from anygatr.lab.data.arteries.vessel import Vessel

Array = NDArray[np.float64]

VISCOSITY = 0.04  # poise
DENSITY = 1.06  # g / cm^3


@dataclass(frozen=True, eq=False)
class Flow:
    """A solved flow on its mesh."""

    grid: TubeGrid
    points: Array
    """(nodes, 3), cm."""
    velocity: Array
    """(nodes, 3), cm/s."""
    pressure: Array
    """(pressures,), dyn/cm^2; the do-nothing outlet fixes its level near zero there."""
    reaction: Array
    """(nodes, 3), dyn: residual of the momentum equation where the velocity is given, the force held by the wall."""
    steps: tuple[NewtonStep, ...]
    """The nonlinear iteration, failed attempts included."""
    backflow: float
    """Inward over outward volume flux at the outlet."""

    @property
    def imbalance(self) -> float:
        """Final unbalanced force over the force held by the walls."""
        return self.steps[-1].imbalance


def solve_flow(vessel: Vessel, resolution: Resolution, tolerance: float = 1e-8) -> Flow:
    """Solve the flow in a vessel; raises NoConvergenceError, and ValueError where the mesh folds."""
    problem = FlowProblem(vessel, resolution)
    iteration = Iteration(problem, tolerance)
    try:
        state = iteration.solve()
    except NoConvergenceError as error:
        raise NoConvergenceError(
            f"no convergence at Re {vessel.reynolds:.0f} after {len(iteration.steps)} steps, continuation included: {error}"
        ) from error
    reaction, _ = problem.residual(state)
    return Flow(
        problem.grid,
        problem.points,
        state.velocity,
        state.pressure,
        reaction,
        tuple(iteration.steps),
        problem.backflow(state),
    )


class FlowProblem:
    """The discrete equations of one vessel."""

    def __init__(self, vessel: Vessel, resolution: Resolution) -> None:
        self.unknowns = _unknowns(resolution)
        self.grid = self.unknowns.grid
        ends = vessel.axial_stations(resolution.layers)
        # middle planes halfway along the arc: graded middle nodes would ruin the quadratic elements
        self.stations = np.interp(np.arange(self.grid.planes) / 2, np.arange(len(ends)), ends)
        self.vessel = vessel
        self.points = vessel.lumen(self.stations, self.grid.disk.points).reshape(-1, 3)
        self.integrals = ElementIntegrals(self.points[self.grid.elements])

    def guess(self) -> FlowState:
        """The Poiseuille profile of the local radius along the centreline; its inlet plane is the boundary condition."""
        radius = self.vessel.lumen_radius(self.stations)
        mean = self.vessel.reynolds * VISCOSITY / (DENSITY * 2 * self.vessel.radius)
        profile = 2 * mean * np.maximum(0.0, 1 - (self.grid.disk.points**2).sum(axis=1))
        profile[self.grid.disk.wall] = 0.0
        speed = (self.vessel.radius / radius[:, None]) ** 2 * profile
        velocity = speed[:, :, None] * self.vessel.frames(self.stations)[3][:, None]
        return FlowState(velocity.reshape(-1, 3), np.zeros(len(self.unknowns.pressure)))

    def with_inlet(self, state: FlowState, fraction: float) -> FlowState:
        """The state with a fraction of the inflow as its inlet plane."""
        velocity = state.velocity.copy()
        velocity[self.grid.inlet] = fraction * self.guess().velocity[self.grid.inlet]
        return FlowState(velocity, state.pressure)

    def residual(self, state: FlowState) -> tuple[Array, Array]:
        """Momentum (nodes, 3) and continuity (pressures,) residuals, the equations of given velocities included."""
        integrals, nodes, corners = self.integrals, self.grid.elements, self.grid.element_pressures
        u, p = state.velocity[nodes], state.pressure[corners]
        gradient = np.swapaxes(integrals.divergence.reshape(-1, 8, 81), 1, 2) @ p[:, :, None]
        force = np.swapaxes(gradient.reshape(-1, 3, 27), 1, 2)
        momentum = VISCOSITY * (integrals.stiffness @ u) + DENSITY * integrals.acceleration(u) + force
        continuity = integrals.divergence.reshape(-1, 8, 81) @ np.swapaxes(u, 1, 2).reshape(-1, 81, 1)
        columns = [np.bincount(nodes.ravel(), momentum[..., a].ravel(), self.grid.nodes) for a in range(3)]
        volume = np.bincount(corners.ravel(), continuity.ravel(), len(state.pressure)).astype(np.float64)
        return np.stack(columns, axis=1), volume

    def matrix(self, state: FlowState, newton: bool) -> FlowMatrix:
        """Derivative of the residual; without `newton` the convecting velocity is frozen (Picard)."""
        integrals, u = self.integrals, state.velocity[self.grid.elements]
        blocks = np.zeros((len(u), 89, 89))
        diagonal = VISCOSITY * integrals.stiffness + DENSITY * integrals.convection(u)
        slopes = DENSITY * integrals.reaction(u) if newton else None
        for a in range(3):
            rows = slice(27 * a, 27 * (a + 1))
            blocks[:, rows, rows] = diagonal
            if slopes is not None:
                for b in range(3):
                    blocks[:, rows, 27 * b : 27 * (b + 1)] += slopes[:, b, a]
        blocks[:, 81:, :81] = integrals.divergence.reshape(-1, 8, 81)
        blocks[:, :81, 81:] = np.swapaxes(blocks[:, 81:, :81], 1, 2)
        return FlowMatrix(self.unknowns, blocks)

    def backflow(self, state: FlowState) -> float:
        """Inward over outward volume flux through the outlet."""
        outlet = self.grid.outlet
        corners = self.points[outlet][self.grid.disk.triangles]
        area = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]) / 2
        through = (state.velocity[outlet][self.grid.disk.triangles].mean(axis=1) * area).sum(axis=1)
        return float(np.abs(through[through < 0]).sum() / through[through > 0].sum())

    def imbalance(self, momentum: Array, continuity: Array) -> float:
        """The larger of: unbalanced over held force; lost volume flux over inflow."""
        free = self.unknowns.velocity >= 0
        mean = self.vessel.reynolds * VISCOSITY / (DENSITY * 2 * self.vessel.radius)
        inflow = mean * np.pi * self.vessel.radius**2
        forces = np.linalg.norm(momentum[free]) / np.linalg.norm(momentum[~free])
        return float(max(forces, np.linalg.norm(continuity) / inflow))


@lru_cache(maxsize=2)
def _unknowns(resolution: Resolution) -> Unknowns:
    return Unknowns(tube_grid(resolution))
