"""Solve steady flow equations: Picard steps, then damped Newton; where that stalls, along growing inlet velocities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from anygatr.lab.data.arteries.flow.linear import FlowMatrix, LayeredLU, Unknowns

Array = NDArray[np.float64]

PICARD_STEPS = 3
NEWTON_STEPS = 14
REFACTOR_ABOVE = 25  # GMRES iterations on an old factorisation that cost less than a new one
SMALL_DAMPING = 0.1  # two such steps in a row: Newton has stalled
# The Poiseuille guess itself balances to about 1e-2, so only a flow well below that is worth continuing from.
PATH_TOLERANCE = 1e-5
FIRST_FRACTION = 0.5  # of the inlet velocity, where a continuation begins
GROWTH = 1.5  # of the velocity step after a success; a failure halves it
SMALLEST_STEP = 0.02
MAX_FACTORISATIONS = 30  # about a minute at standard resolution


class NoConvergenceError(RuntimeError):
    """The nonlinear iteration did not reach its tolerance: the geometry has to be rejected."""


@dataclass(frozen=True)
class NewtonStep:
    """One nonlinear step, for the record."""

    method: str
    """picard or newton"""
    fraction: float
    """Inlet velocity over that of the vessel, below one on the way of a continuation."""
    imbalance: float
    """Unbalanced force over the force held by the walls, before the step."""
    iterations: int
    """GMRES iterations, zero for a state that was accepted."""
    damping: float
    """Part of the update that was taken."""


@dataclass(frozen=True, eq=False)
class FlowState:
    """Velocity and pressure at all nodes, given values included."""

    velocity: Array
    pressure: Array

    def moved(self, direction: FlowState, length: float) -> FlowState:
        """This state plus `length` times the direction."""
        return FlowState(self.velocity + length * direction.velocity, self.pressure + length * direction.pressure)

    def sped_up(self, factor: float) -> FlowState:
        """A guess for the inlet velocity times `factor`: the pressure grows between linearly and with the square."""
        return FlowState(factor * self.velocity, factor**1.5 * self.pressure)


class Equations(Protocol):
    """What the iteration needs to know of the discrete equations."""

    unknowns: Unknowns

    def guess(self) -> FlowState:
        """A flow to start from; its inlet velocity is the boundary condition."""

    def with_inlet(self, state: FlowState, fraction: float) -> FlowState:
        """The state with a fraction of the boundary condition at its inlet."""

    def residual(self, state: FlowState) -> tuple[Array, Array]:
        """Momentum (nodes, 3) and continuity (pressures,) residuals."""

    def matrix(self, state: FlowState, newton: bool) -> FlowMatrix:
        """Derivative of the residual, or with the convecting velocity frozen."""

    def imbalance(self, momentum: Array, continuity: Array) -> float:
        """Relative size of a residual."""


class Iteration:
    """The nonlinear iteration for one vessel, with its record and the factors that its steps share."""

    def __init__(self, equations: Equations, tolerance: float) -> None:
        self.equations = equations
        self.tolerance = tolerance
        self.steps: list[NewtonStep] = []
        self.factorisations = 0
        self._factors: LayeredLU | None = None

    def solve(self) -> FlowState:
        """The flow at full velocity; raises NoConvergenceError."""
        try:
            return self.iterate(self.equations.guess(), 1.0, PICARD_STEPS)
        except NoConvergenceError:
            return self.continuation()

    def continuation(self) -> FlowState:
        """Raise the inlet velocity in steps that adapt to success, each flow predicted from the two before it."""
        path: list[tuple[float, FlowState]] = []
        reached, step = 0.0, FIRST_FRACTION
        while reached < 1.0:
            fraction = reached + step
            try:
                state = self.iterate(self._predict(path, fraction), fraction, 0 if path else PICARD_STEPS)
            except NoConvergenceError:
                step /= 2
                if step < SMALLEST_STEP or self.factorisations == MAX_FACTORISATIONS:
                    raise
                continue
            path, reached = [*path[-1:], (fraction, state)], fraction
            step = min(GROWTH * step, 1.0 - reached)
        return state

    def iterate(self, state: FlowState, fraction: float, picard_steps: int) -> FlowState:
        """Solve for `fraction` of the inlet velocity, starting from `state`."""
        state = self.equations.with_inlet(state, fraction)
        tolerance = self.tolerance if fraction == 1.0 else max(self.tolerance, PATH_TOLERANCE)
        size, rtol, small = np.inf, 1e-2, 0
        for n in range(picard_steps + NEWTON_STEPS):
            newton = n >= picard_steps
            method = "newton" if newton else "picard"
            residual, imbalance = self._residual(state)
            if imbalance < tolerance:
                self.steps.append(NewtonStep(method, fraction, imbalance, 0, 1.0))
                return state
            if not np.isfinite(imbalance):
                break
            matrix = self.equations.matrix(state, newton)
            before, size = size, float(np.linalg.norm(residual))
            if newton and n:  # as accurate as Newton's own quadratic convergence deserves (Eisenstat and Walker)
                rtol = float(np.clip(0.5 * (size / before) ** 2, 1e-4, 1e-1))
            update, iterations = self._linear_solve(matrix, -residual, rtol)
            direction = FlowState(*self.equations.unknowns.spread(update))
            damping = self._damping(state, direction, residual, matrix @ update) if newton else 1.0
            self.steps.append(NewtonStep(method, fraction, imbalance, iterations, damping))
            small = small + 1 if damping < SMALL_DAMPING else 0
            if small == 2:
                break
            state = state.moved(direction, damping)
        raise NoConvergenceError(f"imbalance {imbalance:.1e} after {n} steps at {100 * fraction:.0f} % of the velocity")

    def _damping(self, state: FlowState, direction: FlowState, residual: Array, slope: Array) -> float:
        """The step length in (0, 1] of the smallest residual, exactly.

        The residual is quadratic, r + t s + t^2 c, so its squared norm is a quartic of the length t.
        """
        curved = self._residual(state.moved(direction, 1.0))[0] - residual - slope
        quartic = [
            curved @ curved,
            2 * slope @ curved,
            slope @ slope + 2 * residual @ curved,
            2 * residual @ slope,
            residual @ residual,
        ]
        roots = np.roots(np.polyder(quartic))
        lengths = np.append(roots.real[(np.abs(roots.imag) < 1e-9) & (roots.real > 0) & (roots.real < 1)], 1.0)
        return float(lengths[np.polyval(quartic, lengths).argmin()])

    def _predict(self, path: list[tuple[float, FlowState]], fraction: float) -> FlowState:
        """The line through the last two flows, or the last one, or the guess; each sped up to the velocity first."""
        if not path:
            return self.equations.guess().sped_up(fraction)
        last, state = path[-1]
        scaled = state.sped_up(fraction / last)
        if len(path) == 1:
            return scaled
        earlier, old = path[0]
        change = scaled.moved(old.sped_up(fraction / earlier), -1.0)
        return scaled.moved(change, (fraction - last) / (last - earlier))

    def _residual(self, state: FlowState) -> tuple[Array, float]:
        momentum, continuity = self.equations.residual(state)
        return self.equations.unknowns.gather(momentum, continuity), self.equations.imbalance(momentum, continuity)

    def _linear_solve(self, matrix: FlowMatrix, rhs: Array, rtol: float) -> tuple[Array, int]:
        """Solve with the factors of an earlier matrix if they still serve, else with new ones."""
        if self._factors is not None:
            x, iterations, converged = self._factors.solve(matrix, rhs, rtol, REFACTOR_ABOVE)
            if converged:
                return x, iterations
        if self.factorisations == MAX_FACTORISATIONS:
            raise NoConvergenceError(f"{MAX_FACTORISATIONS} factorisations did not suffice")
        self.factorisations += 1
        try:
            self._factors = LayeredLU(matrix)
        except np.linalg.LinAlgError as error:
            raise NoConvergenceError(str(error)) from error
        x, iterations, converged = self._factors.solve(matrix, rhs, rtol, 2 * REFACTOR_ABOVE)
        if not converged:
            raise NoConvergenceError(f"GMRES with fresh factors stopped after {iterations} iterations")
        return x, iterations
