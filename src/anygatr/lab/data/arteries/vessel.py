"""Random single coronary arteries: a curved, tapering lumen with eccentric stenoses between straight extensions.

Arc length s runs from the inlet (s = 0) along the centreline; lengths are centimetres. The frame (M1, M2, T) is
parallel-transported, T' = k1 M1 + k2 M2, M1' = -k1 T, M2' = -k2 T, so cross-sections do not twist.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicHermiteSpline, CubicSpline
from scipy.spatial.transform import Rotation

Array = NDArray[np.float64]

EXTENSION_DIAMETERS = 5.0  # the published preprocessing cuts four inlet diameters and masks one more
MAX_STENOSES = 3
EXTENSION_DENSITY = 0.3  # axial elements per length at the far end of an extension, relative to the artery
STENOSIS_DENSITY = 5.0  # additional elements per length at a throat, times the severity
STATION_SPACING = 0.01  # cm between the stations where the frame equation is integrated


@dataclass(frozen=True)
class Stenosis:
    """A narrowing of the diameter by `severity`, one cosine bump long `length`, shifted towards the wall."""

    position: float
    """Arc length of the throat from the start of the artery proper (behind the inlet extension), cm."""
    length: float
    """Extent of the narrowing, cm."""
    severity: float
    """Fraction of the diameter that is lost at the throat, 0 to 0.5."""
    eccentricity: float
    """0: concentric; 1: the lumen keeps touching the healthy wall on one side."""
    angle: float
    """Direction of the shift in the cross-section, radians."""

    def __post_init__(self) -> None:
        _within("severity", self.severity, 0.0, 0.5, "a stenosis above 50 % is not resolved by the meshes")
        _within("eccentricity", self.eccentricity, 0.0, 1.0, "at 1 the lumen already touches the healthy wall")
        if not 0 < self.length < np.inf:
            raise ValueError(f"stenosis length={self.length} cm must be positive")
        for name in ("position", "angle"):
            if not np.isfinite(getattr(self, name)):
                raise ValueError(f"stenosis {name}={getattr(self, name)} must be finite")


@dataclass(frozen=True)
class Vessel:
    """One artery and the flow it carries; every field is a number, so it is written to the file as it is."""

    radius: float
    """Inlet radius, cm."""
    outlet_ratio: float
    """Outlet radius over inlet radius: the taper, linear in arc length."""
    length: float
    """Length of the artery between its straight extensions, cm."""
    reynolds: float
    """Inlet Reynolds number, mean velocity times diameter over kinematic viscosity."""
    bending: tuple[tuple[float, float], ...] = ()
    """Sine coefficients (k1, k2) of the two curvatures, 1/cm; empty is straight."""
    stenoses: tuple[Stenosis, ...] = ()
    """Narrowings, ordered along the artery, not overlapping."""

    def __post_init__(self) -> None:
        for name in ("radius", "length", "reynolds"):
            if not 0 < getattr(self, name) < np.inf:
                raise ValueError(f"{name}={getattr(self, name)} must be positive and finite")
        _within("outlet_ratio", self.outlet_ratio, 0.5, 1.5, "taper beyond a factor of two is not an artery segment")
        if not np.isfinite(self.bending).all():
            raise ValueError(f"bending={self.bending} must be finite")
        if self.reynolds > 400:
            raise ValueError(f"reynolds={self.reynolds} must be at most 400; steady flow is not expected above")
        if len(self.stenoses) > MAX_STENOSES:
            raise ValueError(f"stenoses: {len(self.stenoses)} given, at most {MAX_STENOSES}")
        ends = [0.0]
        for stenosis in self.stenoses:
            if stenosis.position - stenosis.length / 2 < ends[-1]:
                raise ValueError(
                    f"stenosis at position={stenosis.position} cm overlaps its neighbour or the inlet extension; "
                    f"it must begin after {ends[-1]:.3f} cm"
                )
            ends.append(stenosis.position + stenosis.length / 2)
        if ends[-1] > self.length:
            raise ValueError(f"the last stenosis ends at {ends[-1]:.3f} cm, beyond length={self.length} cm")

    @property
    def extension(self) -> float:
        """Length of each straight extension, cm."""
        return EXTENSION_DIAMETERS * 2 * self.radius

    @property
    def total_length(self) -> float:
        """Arc length from inlet to outlet, extensions included, cm."""
        return self.length + 2 * self.extension

    def curvatures(self, s: Array) -> Array:
        """(k1, k2) at s: sine series of the artery's arc length, zero with zero slope in the extensions."""
        x = np.clip((s - self.extension) / self.length, 0.0, 1.0)
        window = np.minimum(1.0, 4 * x * (1 - x)) * np.sin(np.pi * x)
        series = [np.outer(np.sin((n + 0.5) * np.pi * x + n), k) for n, k in enumerate(self.bending)]
        return window[:, None] * np.sum(series, axis=0) if series else np.zeros((len(s), 2))

    def healthy_radius(self, s: Array) -> Array:
        """Radius without stenoses: constant in the extensions, linear between."""
        x = np.clip((s - self.extension) / self.length, 0.0, 1.0)
        return self.radius * (1 + (self.outlet_ratio - 1) * x)

    def lumen_radius(self, s: Array) -> Array:
        """Radius of the open lumen at s."""
        loss = [stenosis.severity * self._bump(stenosis, s) for stenosis in self.stenoses]
        return self.healthy_radius(s) * (1 - np.sum(loss, axis=0, initial=0.0))

    def lumen_centre(self, s: Array) -> Array:
        """Shift (M1, M2) of the lumen's centre from the centreline at s."""
        shift = np.zeros((len(s), 2))
        for st in self.stenoses:
            size = st.eccentricity * st.severity * self._bump(st, s) * self.healthy_radius(s)
            shift += size[:, None] * np.array([np.cos(st.angle), np.sin(st.angle)])
        return shift

    def lumen(self, s: Array, disk: Array) -> Array:
        """Points of the lumen: stations s (n,) times points of the unit disk (m, 2) -> (n, m, 3)."""
        position, m1, m2, _ = self.frames(s)
        plane = self.lumen_centre(s)[:, None, :] + self.lumen_radius(s)[:, None, None] * disk
        return position[:, None, :] + plane[..., :1] * m1[:, None, :] + plane[..., 1:] * m2[:, None, :]

    def frames(self, s: Array) -> tuple[Array, Array, Array, Array]:
        """Centreline point and unit vectors M1, M2, T at s, each (n, 3)."""
        path, vectors = self._frame_splines
        m1, m2, tangent = np.moveaxis(_orthonormal(vectors(s).reshape(-1, 3, 3)), 1, 0)
        return path(s), m1, m2, tangent

    def axial_stations(self, elements: int) -> Array:
        """Ends of `elements` axial elements: coarser in the extensions, finer in the stenoses, smoothly varying."""
        s = np.linspace(0.0, self.total_length, 4001)
        outside = np.maximum(self.extension - s, s - self.extension - self.length) / (2 * self.radius)
        density = 1 - (1 - EXTENSION_DENSITY) * np.clip(outside / 2, 0.0, 1.0)
        for stenosis in self.stenoses:
            centre = self.extension + stenosis.position
            density += STENOSIS_DENSITY * stenosis.severity * np.exp(-(((s - centre) / (0.6 * stenosis.length)) ** 2))
        cumulative = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
        return np.interp(np.linspace(0.0, cumulative[-1], elements + 1), cumulative, s)

    def clearance(self) -> float:
        """Smallest gap between walls of parts that are not neighbours along the vessel, over the inlet diameter."""
        s = np.linspace(0.0, self.total_length, 200)
        position, radius = self.frames(s)[0], self.healthy_radius(s)
        gap = np.linalg.norm(position[:, None] - position[None], axis=-1) - radius[:, None] - radius[None]
        apart = np.abs(s[:, None] - s[None]) > 8 * self.radius
        return float(gap[apart].min() / (2 * self.radius))

    def parameters(self) -> dict[str, Any]:
        """The fields as plain numbers and lists, for the provenance attributes."""
        return asdict(self)

    @classmethod
    def from_parameters(cls, parameters: dict[str, Any]) -> Vessel:
        """The vessel whose `parameters()` these are."""
        bending = tuple((float(a), float(b)) for a, b in parameters["bending"])
        stenoses = tuple(Stenosis(**stenosis) for stenosis in parameters["stenoses"])
        return cls(**{**parameters, "bending": bending, "stenoses": stenoses})

    def _bump(self, stenosis: Stenosis, s: Array) -> Array:
        x = (s - self.extension - stenosis.position) / stenosis.length
        return np.where(np.abs(x) < 0.5, 0.5 * (1 + np.cos(2 * np.pi * x)), 0.0)

    @cached_property
    def _frame_splines(self) -> tuple[CubicHermiteSpline, CubicSpline]:
        n = int(np.ceil(self.total_length / STATION_SPACING))
        s = np.linspace(0.0, self.total_length, n + 1)
        step = s[1] - s[0]
        k1, k2 = self.curvatures((s[1:] + s[:-1]) / 2).T
        # over a step of constant curvature the frame turns about the axis k1 M2 - k2 M1, in its own coordinates
        turns = Rotation.from_rotvec(step * np.stack([-k2, k1, np.zeros(n)], axis=1)).as_matrix()
        frames = np.stack(list(accumulate(turns, np.matmul, initial=np.eye(3))))
        vectors = frames.transpose(0, 2, 1)  # rows M1, M2, T
        tangent = vectors[:, 2]
        middle = (tangent[1:] + tangent[:-1]) / 2
        middle /= np.linalg.norm(middle, axis=1, keepdims=True)
        steps = step / 6 * (tangent[1:] + 4 * middle + tangent[:-1])
        position = np.concatenate([np.zeros((1, 3)), np.cumsum(steps, axis=0)])
        return CubicHermiteSpline(s, position, tangent), CubicSpline(s, vectors.reshape(n + 1, 9))


def random_vessel(rng: np.random.Generator) -> Vessel:
    """Draw one artery: radius 1.4-2.0 mm, 11-15 diameters long, Re 50-200, 0-3 stenoses of 15-50 % diameter."""
    radius = rng.uniform(0.14, 0.20)
    length = 2 * radius * rng.uniform(11.0, 15.0)
    bending = tuple((float(a), float(b)) for a, b in rng.normal(0.0, 0.45, (3, 2)))
    return Vessel(
        radius=float(radius),
        outlet_ratio=float(rng.uniform(0.75, 1.0)),
        length=float(length),
        reynolds=float(rng.uniform(50.0, 200.0)),
        bending=bending,
        stenoses=_random_stenoses(rng, int(rng.integers(0, MAX_STENOSES + 1)), radius, length),
    )


def _random_stenoses(rng: np.random.Generator, count: int, radius: float, length: float) -> tuple[Stenosis, ...]:
    """Place `count` narrowings by sharing out the free length at random, so that none is ever redrawn for overlap."""
    diameter = 2 * radius
    lengths = diameter * rng.uniform(1.5, 2.2, count)
    margins = np.array([0.5, *[1.0] * (count - 1), 1.5])[: count + 1] * diameter
    free = length - lengths.sum() - margins.sum()
    assert free > 0, "three stenoses fit into the shortest artery"
    gaps = margins[:count] + free * rng.dirichlet(np.ones(count + 1))[:count]
    starts = np.cumsum(gaps) + np.concatenate([[0.0], np.cumsum(lengths)])[:count]
    return tuple(
        Stenosis(
            position=float(start + extent / 2),
            length=float(extent),
            severity=float(rng.uniform(0.15, 0.5)),
            eccentricity=float(rng.uniform(0.0, 1.0)),
            angle=float(rng.uniform(0.0, 2 * np.pi)),
        )
        for start, extent in zip(starts, lengths, strict=True)
    )


def _orthonormal(matrices: Array) -> Array:
    u, _, vt = np.linalg.svd(matrices)
    return u @ vt


def _within(name: str, value: float, low: float, high: float, why: str) -> None:
    if not low <= value <= high:
        raise ValueError(f"{name}={value} must lie between {low} and {high}: {why}")
