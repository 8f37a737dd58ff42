"""Make an artery file: draw geometries, solve their flow, keep every rejection on record; parallel and resumable.

Each finished artery is committed as a file of its own by an atomic rename, so a kill at any moment loses only the
arteries in the making. When all are there they are assembled into the data file.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from anygatr.files.whole import write_text
from anygatr.lab.data.arteries.config import MESHES, ArteryConfig
from anygatr.lab.data.arteries.flow.grid import Resolution
from anygatr.lab.data.arteries.flow.newton import NoConvergenceError
from anygatr.lab.data.arteries.flow.solve import DENSITY, VISCOSITY, Flow, solve_flow
from anygatr.lab.data.arteries.flow.wall import nodal_pressure, wall_shear_stress
from anygatr.lab.data.arteries.store import Artery, new_file, sample_name, write_artery
from anygatr.lab.data.arteries.vessel import Vessel, random_vessel

MIN_CLEARANCE = 0.5  # diameters between walls of parts that are not neighbours
MAX_BACKFLOW = 1e-3
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class ArteryProgress:
    """Where a run stands."""

    done: int
    total: int
    rejected: int
    """Geometries rejected so far."""
    seconds: float
    """Wall time of this run."""
    eta: float | None
    """Estimated seconds to go, None until the first artery of this run is finished."""

    def __str__(self) -> str:
        eta = "?" if self.eta is None else f"{self.eta / 60:.1f} min"
        return f"{self.done}/{self.total} arteries, {self.rejected} geometries rejected, {eta} to go"


@dataclass(frozen=True)
class ArteryReport:
    """What a run made."""

    path: Path
    count: int
    rejections: tuple[dict[str, Any], ...]
    """One entry per rejected geometry: artery, attempt, reason, parameters."""
    cpu_seconds: float
    """Mean per artery, rejected attempts included."""

    @property
    def rejection_rate(self) -> float:
        """Rejected over drawn geometries."""
        return len(self.rejections) / (len(self.rejections) + self.count)

    def __str__(self) -> str:
        lines = [f"{self.path}: {self.count} arteries, {self.cpu_seconds:.1f} CPU-s each"]
        lines.append(f"rejected {len(self.rejections)} geometries ({100 * self.rejection_rate:.1f} %)")
        lines += [f"  {sample_name(r['artery'])} attempt {r['attempt']}: {r['reason']}" for r in self.rejections]
        return "\n".join(lines)


def generate(config: ArteryConfig, progress: Callable[[ArteryProgress], None] = lambda _: None) -> ArteryReport:
    """Make, or continue, the file of a configuration.

    `progress` is called once at the start and after each artery.
    """
    present = _present(config)
    _claim(config)
    done = present | {n for n in range(config.count) if _part(config, n).exists()}
    todo = [n for n in range(config.count) if n not in done]
    started, rejected = time.monotonic(), len(_rejections(config, present))

    def report(finished: int) -> None:
        seconds = time.monotonic() - started
        eta = seconds / finished * (len(todo) - finished) if finished else None
        progress(ArteryProgress(config.count - len(todo) + finished, config.count, rejected, seconds, eta))

    report(0)
    for finished, (_, attempts) in enumerate(_run(config, todo), start=1):
        rejected += attempts
        report(finished)
    _assemble(config, present)
    return summarise(config.out)


def summarise(path: Path) -> ArteryReport:
    """The report of a finished file, from its attributes."""
    with h5py.File(path, "r") as file:
        rejections = [r for group in file.values() for r in json.loads(group.attrs["rejected"])]
        seconds = float(np.mean([group.attrs["cpu_seconds"] for group in file.values()]))
        return ArteryReport(path, len(file), tuple(rejections), seconds)


def make_artery(config: ArteryConfig, number: int) -> Artery:
    """Draw geometries for artery `number` until one is solved; the rejected ones are in its attributes."""
    started = time.process_time()
    rejected: list[dict[str, Any]] = []
    for attempt in range(config.attempts):
        vessel = random_vessel(np.random.default_rng([config.seed, number, attempt]))
        try:
            flow = solve_vessel(vessel, config)
        except RejectedError as error:
            reason = {"artery": number, "attempt": attempt, "reason": str(error), "parameters": vessel.parameters()}
            rejected.append(reason)
            continue
        provenance = {
            **config.determines(),
            "attempt": attempt,
            "parameters": json.dumps(vessel.parameters()),
            "rejected": json.dumps(rejected),
            "steps": json.dumps([asdict(step) for step in flow.steps]),
            "imbalance": flow.imbalance,
            "backflow": flow.backflow,
            "cpu_seconds": time.process_time() - started,
        }
        return wall_of(flow, sample_name(number), provenance)
    reasons = "; ".join(r["reason"] for r in rejected)
    raise RuntimeError(f"{sample_name(number)}: all {config.attempts} geometries were rejected: {reasons}")


class RejectedError(ValueError):
    """A geometry that cannot be used, with the reason."""


def solve_vessel(vessel: Vessel, config: ArteryConfig) -> Flow:
    """Solve a vessel's flow on the mesh of a configuration; raises RejectedError with the reason."""
    if (clearance := vessel.clearance()) < MIN_CLEARANCE:
        raise RejectedError(f"the wall comes within {clearance:.2f} diameters of itself")
    try:
        flow = solve_flow(vessel, Resolution(*MESHES[config.resolution]), config.tolerance)
    except (NoConvergenceError, ValueError, np.linalg.LinAlgError) as error:
        raise RejectedError(str(error)) from error
    if flow.backflow > MAX_BACKFLOW:
        raise RejectedError(f"backflow of {100 * flow.backflow:.2f} % at the outlet")
    return flow


def wall_of(flow: Flow, name: str, attributes: dict[str, Any]) -> Artery:
    """The closed surface of a solved flow in the published layout; the stress is zero inside the caps."""
    nodes, face = flow.grid.surface
    wss = np.zeros_like(flow.points)
    wss[flow.grid.wall] = wall_shear_stress(flow)
    return Artery(
        name=name,
        pos=flow.points[nodes].astype(np.float32),
        face=face,
        wss=wss[nodes].astype(np.float32),
        inlet=np.searchsorted(nodes, flow.grid.inlet),
        pressure=nodal_pressure(flow)[nodes, None].astype(np.float32),
        attributes=attributes,
    )


def _run(config: ArteryConfig, todo: list[int]) -> Iterator[tuple[int, int]]:
    """Make the missing arteries in worker processes; yields (artery, rejected attempts) as they finish."""
    if not todo:
        return
    with _single_threaded(), ProcessPoolExecutor(config.workers, mp_context=get_context("spawn")) as pool:
        waiting: set[Future[tuple[int, int]]] = {pool.submit(_make_part, config, number) for number in todo}
        try:
            while waiting:
                finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in finished)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _make_part(config: ArteryConfig, number: int) -> tuple[int, int]:
    artery = make_artery(config, number)
    with new_file(_part(config, number)) as file:
        write_artery(file.create_group(artery.name), artery)
    return number, len(json.loads(artery.attributes["rejected"]))


@contextmanager
def _single_threaded() -> Iterator[None]:
    """Spawned workers read the number of BLAS threads from the environment when they start."""
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _claim(config: ArteryConfig) -> None:
    """Write the configuration beside the parts, or check that the parts there belong to it."""
    config.parts.mkdir(parents=True, exist_ok=True)
    settings, path = config.determines(), config.parts / "config.json"
    if path.exists():
        found = json.loads(path.read_text())
        if found != settings:
            raise ValueError(f"{config.parts} holds arteries of {found}, not of {settings}; choose another out")
        return
    write_text(path, json.dumps(settings))


def _present(config: ArteryConfig) -> set[int]:
    """Arteries that an earlier run has put into the file."""
    if not config.out.exists():
        return set()
    with h5py.File(config.out, "r") as file:
        if (found := json.loads(file.attrs.get("settings", "null"))) != config.determines():
            raise ValueError(f"out={config.out} exists with settings {found}; choose another name or delete it")
        if len(file) > config.count:
            raise ValueError(f"count={config.count} is less than the {len(file)} arteries in {config.out}")
        return {int(name.removeprefix("sample_")) for name in file}


def _rejections(config: ArteryConfig, present: set[int]) -> list[dict[str, Any]]:
    sources = [config.out] if present else []
    sources += [_part(config, n) for n in range(config.count) if n not in present and _part(config, n).exists()]
    found: list[dict[str, Any]] = []
    for source in sources:
        found += summarise(source).rejections
    return found


def _assemble(config: ArteryConfig, present: set[int]) -> None:
    """Copy all arteries into one new file, then drop the parts."""
    parts = [n for n in range(config.count) if n not in present]
    if parts:
        with new_file(config.out) as target:
            if present:
                with h5py.File(config.out, "r") as old:
                    for name in old:
                        old.copy(name, target)
            for n in parts:
                with h5py.File(_part(config, n), "r") as part:
                    part.copy(sample_name(n), target)
            target.attrs.update(_file_attributes(config))
    for part in config.parts.iterdir():
        part.unlink()
    config.parts.rmdir()


def _file_attributes(config: ArteryConfig) -> dict[str, Any]:
    return {
        "settings": json.dumps(config.determines()),
        "mesh": json.dumps(MESHES[config.resolution]),
        "units": "cm, g, s; stress in dyn/cm^2",
        "viscosity": VISCOSITY,
        "density": DENSITY,
        "solver": "Taylor-Hood Q2-Q1, Picard and Newton, layered LU in single precision with GMRES",
        "versions": json.dumps({name: version(name) for name in ("anygatr", "numpy", "scipy", "h5py")}),
    }


def _part(config: ArteryConfig, number: int) -> Path:
    return config.parts / f"{sample_name(number)}.h5"
