"""Measure the artery generator; results go to results/arteries-data as JSON, pictures to docs/img.

Run with OMP_NUM_THREADS=1: the limits are CPU seconds of one core.
"""

import argparse
import json
import resource
import time
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
from scipy.interpolate import RectBivariateSpline

from anygatr.lab.data.arteries.config import MESHES, ArteryConfig
from anygatr.lab.data.arteries.dataset import ArteryDataset, label_scale
from anygatr.lab.data.arteries.flow.grid import Resolution, tube_grid
from anygatr.lab.data.arteries.flow.solve import DENSITY, VISCOSITY, FlowProblem, solve_flow
from anygatr.lab.data.arteries.flow.wall import wall_shear_stress
from anygatr.lab.data.arteries.generate import RejectedError, solve_vessel, summarise
from anygatr.lab.data.arteries.preprocess import preprocess
from anygatr.lab.data.arteries.store import Artery
from anygatr.lab.data.arteries.vessel import Stenosis, Vessel, random_vessel
from benchmarks.harness.files import PICTURES, RESULTS, put_json

OUT = RESULTS / "arteries-data"
LIMIT_CPU_SECONDS = 60.0


def fresh_vessel(number: int) -> Vessel:
    """Geometries that were not looked at when the meshes were chosen."""
    return random_vessel(np.random.default_rng([1, number, 0]))


def describe(vessel: Vessel) -> dict:
    severities = [round(100 * s.severity) for s in vessel.stenoses]
    return {"reynolds": round(vessel.reynolds), "stenoses_percent": severities, "length_cm": round(vessel.length, 2)}


def solve(vessel: Vessel, mesh: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray, float]:
    started = time.process_time()
    resolution = Resolution(*mesh)
    stress = wall_shear_stress(solve_flow(vessel, resolution))
    return FlowProblem(vessel, resolution).stations, stress, time.process_time() - started


def resample(stations: np.ndarray, stress: np.ndarray, at: np.ndarray, around: int) -> np.ndarray:
    """Spline of the stress over (arc length, angle), the angle continued periodically."""
    n = stress.shape[1]
    angle, tiled = np.arange(-n, 2 * n) / n, np.concatenate([stress] * 3, axis=1)
    splines = [RectBivariateSpline(stations, angle, tiled[..., c]) for c in range(3)]
    return np.stack([spline(at, np.arange(around) / around) for spline in splines], axis=-1)


def convergence(number: int, reference: tuple[int, int, int]) -> None:
    """Error of each resolution against a finer mesh on a fresh geometry, per area of the artery proper."""
    vessel = fresh_vessel(number)
    fine_stations, fine_stress, seconds = solve(vessel, reference)
    rows = [{"geometry": number, **describe(vessel), "reference": reference, "cpu_seconds": round(seconds, 1)}]
    for name, mesh in MESHES.items():
        if mesh[0] >= reference[0]:
            continue
        stations, stress, seconds = solve(vessel, mesh)
        exact = resample(fine_stations, fine_stress, stations, stress.shape[1])
        inside = (stations > vessel.extension) & (stations < vessel.extension + vessel.length)
        weight = (np.gradient(stations) * vessel.lumen_radius(stations))[inside, None, None]
        error, scale = (stress - exact)[inside], exact[inside]
        row = {
            "geometry": number,
            "resolution": name,
            "mesh": mesh,
            "wall_nodes": Resolution(*mesh).wall_nodes,
            "cpu_seconds": round(seconds, 1),
            "relative_l2": float(np.sqrt((weight * error**2).sum() / (weight * scale**2).sum())),
            "largest": float(np.linalg.norm(error, axis=-1).max() / np.linalg.norm(scale, axis=-1).max()),
        }
        rows.append(row)
        print(row, flush=True)
        put_json(OUT / f"convergence-{number}.json", rows)


def timing(resolution: str, geometries: list[int]) -> None:
    """CPU seconds and peak memory of fresh geometries at one resolution, and the limit of the standard one."""
    mesh = Resolution(*MESHES[resolution])
    unknowns = FlowProblem(fresh_vessel(geometries[0]), mesh).unknowns.count
    rows = []
    for number in geometries:
        vessel = fresh_vessel(number)
        seconds = solve(vessel, MESHES[resolution])[2]
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9  # of the process so far
        cost = {"cpu_seconds": round(seconds, 1), "peak_gb": round(memory, 2)}
        rows.append({"geometry": number, **describe(vessel), "wall_nodes": mesh.wall_nodes, **cost})
        print(rows[-1], flush=True)
        put_json(OUT / f"timing-{resolution}.json", {"resolution": resolution, "unknowns": unknowns, "arteries": rows})
    if resolution == "standard":
        assert max(row["cpu_seconds"] for row in rows) < LIMIT_CPU_SECONDS


def rejections(resolution: str, count: int) -> None:
    """Which of the first drawn geometries of seed 0 a resolution rejects; a quick look at the rate, nothing is kept."""
    config = ArteryConfig(Path("unused.h5"), resolution=resolution)
    reasons = {}
    for number in reversed(range(count)):
        try:
            solve_vessel(random_vessel(np.random.default_rng([config.seed, number, 0])), config)
        except RejectedError as error:
            reasons[number] = str(error)
        put_json(OUT / f"rejections-{resolution}.json", {"drawn": count - number, "first": number, "rejected": reasons})


def preprocessing() -> None:
    """CPU seconds to prepare a wall of more than 7000 nodes."""
    problem = FlowProblem(fresh_vessel(0), Resolution(4, 1, 110))
    nodes, face = problem.grid.surface
    pos = problem.points[nodes].astype(np.float32)
    artery = Artery("sample_0000", pos, face, np.zeros_like(pos), np.searchsorted(nodes, problem.grid.inlet))
    seconds = []
    for _ in range(3):
        started = time.process_time()
        preprocess(artery)
        seconds.append(round(time.process_time() - started, 2))
    put_json(OUT / "preprocess.json", {"nodes": len(pos), "cpu_seconds": seconds})
    print(len(pos), "nodes:", seconds, "CPU-s")


def statistics(path: Path) -> None:
    """Rejections, residuals, cost and stress of a generated file."""
    report, samples = summarise(path), ArteryDataset(path)
    with h5py.File(path) as file:
        attributes = {k: np.array([g.attrs[k] for g in file.values()]) for k in ("imbalance", "backflow", "cpu_seconds")}
        vessels = [Vessel.from_parameters(json.loads(g.attrs["parameters"])) for g in file.values()]
    sizes = [len(s.pos) for s in samples]
    peaks = [np.linalg.norm(s.wss[s.mask], axis=1).max() for s in samples]
    put_json(
        OUT / "statistics.json",
        {
            "arteries": report.count,
            "rejected": len(report.rejections),
            "rejection_rate": report.rejection_rate,
            "reasons": [r["reason"] for r in report.rejections],
            "cpu_seconds": quantiles(attributes["cpu_seconds"]),
            "imbalance": quantiles(attributes["imbalance"]),
            "largest_backflow": float(attributes["backflow"].max()),
            "nodes_after_cut": quantiles(sizes),
            "label_scale": label_scale(samples),
            "peak_stress": quantiles(peaks),
            "reynolds": quantiles([v.reynolds for v in vessels]),
            "stenoses": np.bincount([len(v.stenoses) for v in vessels], minlength=4).tolist(),
            "off_tangent": float(max(np.abs((s.wss * s.normals).sum(1)).max() / np.abs(s.wss).max() for s in samples)),
        },
    )
    print((OUT / "statistics.json").read_text())


def pictures(path: Path) -> None:
    """The mesh, the stress on three walls and the flow through a stenosis, for the documentation."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    samples = ArteryDataset(path)
    figure = plt.figure(figsize=(9, 3.6))
    draw_disk(figure.add_subplot(1, 2, 1))
    draw_wall(figure.add_subplot(1, 2, 2, projection="3d"), near_peak(samples[0]), edges=True)
    figure.subplots_adjust(left=0, right=1, bottom=0, top=0.92, wspace=0)
    save_picture(figure, "arteries-mesh.png")
    figure = plt.figure(figsize=(9, 3.6))
    for k in range(3):
        draw_wall(figure.add_subplot(1, 3, k + 1, projection="3d"), samples[k + 1])
    figure.subplots_adjust(left=0, right=1, bottom=0, top=0.92, wspace=0)
    save_picture(figure, "arteries-stress.png")
    figure, axes = plt.subplots(2, 1, figsize=(9, 4.5), sharex=True, layout="constrained")
    draw_stenosis(axes)
    save_picture(figure, "arteries-stenosis.png")


def draw_disk(ax) -> None:
    disk = tube_grid(Resolution(*MESHES["standard"])).disk
    for quad in disk.quads:
        rim = quad[[0, 1, 2, 2, 2, 1, 0, 0, 0], [0, 0, 0, 1, 2, 2, 2, 1, 0]]
        ax.plot(*disk.points[rim].T, color="0.3", lw=0.8)
    ax.plot(*disk.points.T, ".", color="tab:blue", ms=3, label="velocity")
    ax.plot(*disk.points[disk.corners].T, "o", mfc="none", color="tab:red", ms=5, label="pressure")
    ax.set(aspect="equal", title="cross-section")
    ax.axis("off")
    ax.legend(loc="lower right", frameon=False, fontsize=8)


def draw_wall(ax, sample, edges: bool = False) -> None:
    from matplotlib import colormaps
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection

    speed = np.linalg.norm(sample.wss, axis=1)[sample.face].mean(axis=1)
    colours = colormaps["viridis"](np.clip(speed / np.quantile(speed, 0.98), 0, 1))
    line = {"edgecolor": "0.2", "linewidth": 0.15} if edges else {"edgecolor": "none"}
    ax.add_collection3d(Poly3DCollection(sample.pos[sample.face], facecolors=colours, **line))
    used = sample.pos[np.unique(sample.face)]
    low, high = used.min(axis=0), used.max(axis=0)
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), zlim=(low[2], high[2]))
    ax.set_box_aspect(high - low, zoom=1.1)
    ax.set_axis_off()
    ax.set_title(f"{sample.name}, 98 % below {np.quantile(speed, 0.98):.0f} dyn/cm²", fontsize=8)


def near_peak(sample):
    """The part of a wall within 8 mm of its largest stress."""
    peak = sample.pos[np.linalg.norm(sample.wss, axis=1).argmax()]
    close = (np.linalg.norm(sample.pos - peak, axis=1) < 0.8)[sample.face].all(axis=1)
    return replace(sample, face=sample.face[close])


def draw_stenosis(axes) -> None:
    colours = {100: "tab:blue", 200: "tab:red"}
    for reynolds, colour in colours.items():
        narrowing = Stenosis(position=1.2, length=0.68, severity=0.5, eccentricity=0.0, angle=0.0)
        vessel = Vessel(radius=0.17, outlet_ratio=1.0, length=4.0, reynolds=reynolds, stenoses=(narrowing,))
        flow = solve_flow(vessel, Resolution(*MESHES["standard"]))
        z = flow.points[flow.grid.wall[:, 0], 2] - vessel.extension - narrowing.position
        poiseuille = 4 * VISCOSITY * reynolds * VISCOSITY / (DENSITY * 2 * vessel.radius) / vessel.radius
        stress = wall_shear_stress(flow)[..., 2].mean(axis=1) / poiseuille
        axes[1].plot(z, stress, ".-", ms=3, lw=0.8, color=colour, label=f"Re {reynolds}")
    line = np.flatnonzero(np.abs(flow.grid.disk.points[:, 1]) < 1e-9)
    nodes = (np.arange(flow.grid.planes)[:, None] * len(flow.grid.disk.points) + line).ravel()
    x, y, speed = (
        flow.points[nodes, 2] - vessel.extension - narrowing.position,
        flow.points[nodes, 0],
        flow.velocity[nodes, 2],
    )
    order = np.argsort(flow.grid.disk.points[line, 0])
    shape = (flow.grid.planes, len(line))
    x, y, speed = (values.reshape(shape)[:, order] for values in (x, y, speed))
    image = axes[0].contourf(x, y, speed, levels=np.linspace(-10, 120, 27), cmap="viridis", extend="both")
    axes[0].contour(x, y, speed, levels=[0.0], colors="white", linewidths=1.0)
    axes[0].figure.colorbar(image, ax=axes[0], label="axial velocity, cm/s")
    axes[0].set(
        ylabel="x, cm", title="axial velocity at Re 200 (white: zero), and wall shear stress over its Poiseuille value"
    )
    axes[1].axhline(0, color="0.6", lw=0.8)
    axes[1].set(xlabel="distance behind the throat, cm", ylabel="axial stress / Poiseuille", xlim=(-1.0, 2.5))
    axes[1].set_yscale("symlog", linthresh=1.0)
    axes[1].legend(frameon=False)


def save_picture(figure, name: str) -> None:
    figure.savefig(PICTURES / name, dpi=100)


def quantiles(values: list[float] | np.ndarray) -> dict[str, float]:
    low, middle, high = np.quantile(values, [0, 0.5, 1])
    return {"min": float(low), "median": float(middle), "max": float(high)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["time", "preprocess", "convergence", "rejections", "statistics", "pictures"])
    parser.add_argument("file", type=Path, nargs="?", help="generated set, for statistics and pictures")
    parser.add_argument(
        "--geometry", type=int, nargs="+", default=[0], help="numbers of fresh geometries: convergence, time"
    )
    parser.add_argument("--reference", type=int, nargs=3, default=(4, 3, 84), help="mesh to compare with")
    parser.add_argument("--resolution", default="coarse", choices=list(MESHES), help="for rejections and time")
    parser.add_argument("--count", type=int, default=50, help="for rejections")
    args = parser.parse_args()
    commands = {
        "time": lambda: timing(args.resolution, args.geometry),
        "preprocess": preprocessing,
        "convergence": lambda: [convergence(n, tuple(args.reference)) for n in args.geometry],
        "rejections": lambda: rejections(args.resolution, args.count),
        "statistics": lambda: statistics(args.file),
        "pictures": lambda: pictures(args.file),
    }
    commands[args.what]()
