"""The flow solver against closed forms, an independent sparse solver and its own symmetries."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import coo_matrix
from scipy.sparse.linalg import spsolve
from scipy.spatial.transform import Rotation

from anygatr.lab.data.arteries.config import MESHES
from anygatr.lab.data.arteries.flow import newton
from anygatr.lab.data.arteries.flow.element import ElementIntegrals
from anygatr.lab.data.arteries.flow.grid import Resolution, disk_grid, tube_grid
from anygatr.lab.data.arteries.flow.linear import LayeredLU
from anygatr.lab.data.arteries.flow.newton import FlowState, Iteration, NoConvergenceError
from anygatr.lab.data.arteries.flow.solve import VISCOSITY, FlowProblem, solve_flow
from anygatr.lab.data.arteries.flow.wall import FILTER, nodal_pressure, smooth, wall_measure, wall_shear_stress
from anygatr.lab.data.arteries.mesh import surface_problems, vertex_normals
from anygatr.lab.data.arteries.vessel import Stenosis, Vessel, random_vessel

STRAIGHT = Vessel(radius=0.2, outlet_ratio=1.0, length=2.0, reynolds=100)
BENT = Vessel(
    radius=0.17,
    outlet_ratio=0.85,
    length=2.0,
    reynolds=60,
    bending=((0.6, 0.3), (-0.4, 0.5)),
    stenoses=(Stenosis(position=0.9, length=0.7, severity=0.3, eccentricity=0.8, angle=0.7),),
)
SMALL = Resolution(2, 2, 14)


def poiseuille_stress(vessel):
    return 4 * VISCOSITY * vessel.reynolds * 0.04 / (1.06 * 2 * vessel.radius) / vessel.radius


def test_poiseuille_stress_and_pressure_converge():
    errors = []
    for resolution in (Resolution(2, 2, 6), Resolution(3, 2, 10)):
        flow = solve_flow(STRAIGHT, resolution)
        exact = poiseuille_stress(STRAIGHT)
        errors.append(np.abs(np.linalg.norm(wall_shear_stress(flow), axis=-1) / exact - 1).max())
        drop = nodal_pressure(flow)[flow.grid.inlet].mean()
        assert drop == pytest.approx(2 * exact * STRAIGHT.total_length / STRAIGHT.radius, rel=3e-3)
    assert errors[0] < 3e-3
    assert errors[1] < errors[0] / 2


def test_stenosis_peaks_upstream_and_reverses_downstream():
    vessel = Vessel(radius=0.17, outlet_ratio=1.0, length=3.4, reynolds=100, stenoses=(Stenosis(1.0, 0.68, 0.5, 0.0, 0.0),))
    resolution = Resolution(2, 2, 30)
    stress = wall_shear_stress(solve_flow(vessel, resolution))[..., 2].mean(axis=1) / poiseuille_stress(vessel)
    behind = FlowProblem(vessel, resolution).stations - vessel.extension - 1.0
    assert 15.5 < stress.max() < 19  # 17.2 on fine meshes
    assert -0.08 < behind[stress.argmax()] < 0.0
    reversed_ = behind[(stress < 0) & (behind > 0)]
    assert 0.05 < reversed_.min() < 0.2
    assert 0.6 < reversed_.max() < 1.2
    healthy = wall_shear_stress(solve_flow(STRAIGHT, Resolution(2, 2, 6)))[..., 2]
    assert healthy.min() > 0  # without a stenosis nothing reverses


@pytest.fixture(scope="module")
def bent():
    return solve_flow(BENT, SMALL)


def test_stress_is_tangential(bent):
    stress = wall_shear_stress(bent)
    _, normal = wall_measure(bent.grid, bent.points)
    assert np.abs((stress * normal).sum(axis=-1)).max() < 1e-10 * np.abs(stress).max()
    nodes, face = bent.grid.surface
    everywhere = np.zeros_like(bent.points)
    everywhere[bent.grid.wall[1:-1]] = stress[1:-1]  # at the rims the caps tilt the vertex normals
    off = (everywhere[nodes] * vertex_normals(bent.points[nodes], face)).sum(axis=1)
    assert np.abs(off).max() < 0.1 * np.abs(stress).max()  # triangles approximate the wall
    reaction = -bent.reaction[bent.grid.wall]
    assert np.abs((reaction * normal).sum(axis=-1)).max() > 0.5 * np.abs(reaction).max()  # pressure is normal


def test_stress_turns_with_the_vessel(bent):
    rotation = Rotation.from_rotvec([0.4, -1.1, 0.7]).as_matrix()

    class Turned(Vessel):
        def frames(self, s):
            return tuple(x @ rotation.T for x in super().frames(s))

    turned = solve_flow(Turned.from_parameters(BENT.parameters()), SMALL)
    expected = wall_shear_stress(bent) @ rotation.T
    assert np.abs(wall_shear_stress(turned) - expected).max() < 1e-5 * np.abs(expected).max()
    assert np.abs(wall_shear_stress(bent) - expected).max() > 0.1 * np.abs(expected).max()


def test_stress_of_the_mirror_image(bent):
    parameters = BENT.parameters()
    parameters["bending"] = [(a, -b) for a, b in parameters["bending"]]
    parameters["stenoses"] = [{**s, "angle": -s["angle"]} for s in parameters["stenoses"]]
    image = wall_shear_stress(solve_flow(Vessel.from_parameters(parameters), SMALL))
    points = bent.grid.disk.points[bent.grid.disk.wall]
    partner = [np.linalg.norm(points - p * [1, -1], axis=1).argmin() for p in points]
    expected = wall_shear_stress(bent)[:, partner] * [1, -1, 1]
    assert np.abs(image - expected).max() < 1e-5 * np.abs(expected).max()


def test_volume_is_conserved(bent):
    assert bent.imbalance < 1e-8
    assert bent.backflow < 1e-12
    problem = FlowProblem(BENT, SMALL)
    _, continuity = problem.residual(FlowState(bent.velocity, bent.pressure))
    assert np.abs(continuity).max() < 1e-7


def test_layered_lu_solves_like_a_sparse_solver():
    problem = FlowProblem(BENT, Resolution(1, 1, 5))
    matrix = problem.matrix(problem.guess(), newton=True)
    unknowns = matrix.unknowns
    rows = np.broadcast_to(unknowns.elements[:, :, None], matrix.blocks.shape)
    columns = np.broadcast_to(unknowns.elements[:, None, :], matrix.blocks.shape)
    free = (rows >= 0) & (columns >= 0)
    sparse = coo_matrix((matrix.blocks[free], (rows[free], columns[free]))).tocsc()
    b = np.random.default_rng(0).normal(size=unknowns.count)
    np.testing.assert_allclose(matrix @ b, sparse @ b, rtol=0, atol=1e-12 * np.abs(sparse @ b).max())
    x, iterations, converged = LayeredLU(matrix).solve(matrix, b, rtol=1e-11, max_iterations=30)
    assert converged
    assert iterations < 10
    exact = spsolve(sparse, b)
    assert np.linalg.norm(x - exact) < 1e-7 * np.linalg.norm(exact)
    _, iterations, converged = LayeredLU(matrix).solve(matrix, b, rtol=1e-11, max_iterations=1)
    assert (iterations, converged) == (1, False)  # single precision alone is not enough, and says so


def test_newton_matrix_is_the_derivative_of_the_residual():
    problem = FlowProblem(BENT, Resolution(1, 1, 4))
    unknowns, state, rng = problem.unknowns, problem.guess(), np.random.default_rng(1)
    x = rng.normal(size=unknowns.count)
    velocity, pressure = unknowns.spread(x)

    def residual(step):
        moved = FlowState(state.velocity + step * velocity, state.pressure + step * pressure)
        return unknowns.gather(*problem.residual(moved))

    slope = (residual(0.5) - residual(-0.5)) / 1.0  # exact: the residual is quadratic
    np.testing.assert_allclose(problem.matrix(state, newton=True) @ x, slope, atol=1e-10 * np.abs(slope).max())
    picard = problem.matrix(state, newton=False) @ x
    assert np.abs(picard - slope).max() > 1e-3 * np.abs(slope).max()


def test_damping_minimises_the_residual():
    problem = FlowProblem(replace(BENT, reynolds=190), Resolution(1, 1, 8))
    iteration, state = Iteration(problem, 1e-8), problem.guess()
    lengths = np.linspace(0.0, 1.0, 201)[1:]
    dampings = []
    for scale in (1.0, 30.0):  # a direction that is taken in full, and one that goes too far
        residual = problem.unknowns.gather(*problem.residual(state))
        matrix = problem.matrix(state, newton=True)
        update = scale * LayeredLU(matrix).solve(matrix, -residual, 1e-6, 30)[0]
        direction = FlowState(*problem.unknowns.spread(update))
        sizes = [np.linalg.norm(problem.unknowns.gather(*problem.residual(state.moved(direction, t)))) for t in lengths]
        dampings.append(iteration._damping(state, direction, residual, matrix @ update))
        assert dampings[-1] == pytest.approx(lengths[np.argmin(sizes)], abs=0.005)
    assert dampings[1] < 0.1 < dampings[0]


def test_continuation_reaches_the_flow_where_the_direct_way_fails(bent, monkeypatch):
    monkeypatch.setattr(newton, "PICARD_STEPS", 1)
    monkeypatch.setattr(newton, "NEWTON_STEPS", 4)
    iteration = Iteration(FlowProblem(BENT, SMALL), 1e-8)
    with pytest.raises(NoConvergenceError, match="100 % of the velocity"):
        iteration.iterate(iteration.equations.guess(), 1.0, newton.PICARD_STEPS)
    state = iteration.solve()
    fractions = [step.fraction for step in iteration.steps]
    assert fractions[-1] == 1.0 > min(fractions)
    assert np.abs(state.velocity - bent.velocity).max() < 1e-6 * np.abs(bent.velocity).max()
    monkeypatch.setattr(newton, "MAX_FACTORISATIONS", 0)
    with pytest.raises(NoConvergenceError, match="0 factorisations"):
        Iteration(FlowProblem(BENT, SMALL), 1e-8).solve()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "number", "mesh"), [(0, 28, "standard"), (1, 2, "standard"), (0, 28, "coarse"), (0, 7, "coarse")]
)
def test_hard_geometries_converge(seed, number, mesh):
    """Above Re 170 with stenoses near 50 %: Newton without damping, or with a ramp of unsolved flows, does not."""
    vessel = random_vessel(np.random.default_rng([seed, number, 0]))
    assert vessel.reynolds > 170
    flow = solve_flow(vessel, Resolution(*MESHES[mesh]))
    assert flow.imbalance < 1e-8
    assert flow.backflow < 1e-3


def test_filter_keeps_cubics_and_removes_alternation():
    x = np.arange(-2, 3)
    for power in range(4):
        assert FILTER @ x**power == pytest.approx(0.0**power, abs=1e-15)
    assert FILTER @ (-1.0) ** x == pytest.approx(0.0, abs=1e-15)
    alternating = (-1.0) ** np.arange(16)[None, :, None] * np.ones((9, 16, 1))
    assert np.abs(smooth(alternating)).max() < 1e-14


@pytest.mark.parametrize(("core", "rings"), [(1, 1), (2, 2), (3, 2), (4, 3)])
def test_grid_is_sound(core, rings):
    disk = disk_grid(core, rings)
    assert len(disk.points) == (2 * core + 1) ** 2 + 16 * core * rings
    np.testing.assert_allclose(np.linalg.norm(disk.points[disk.wall], axis=1), 1.0)
    grid = tube_grid(Resolution(core, rings, 3))
    points = STRAIGHT.lumen(np.linspace(0, 1, grid.planes), disk.points).reshape(-1, 3)
    nodes, face = grid.surface
    assert surface_problems(points[nodes], face) == []
    volume = ElementIntegrals(points[grid.elements]).weights.sum()
    assert volume == pytest.approx(np.pi * STRAIGHT.radius**2, rel=0.02 / core**3)


def test_folded_mesh_is_refused():
    tight = Vessel(radius=0.3, outlet_ratio=1.0, length=1.0, reynolds=50, bending=((9.0, 0.0),))
    with pytest.raises(ValueError, match="folded"):
        FlowProblem(tight, Resolution(1, 1, 8))
