"""A user's own artery wall: read .vtp, .stl or .ply, find the inlet cap, prepare it for prediction."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from anygatr.files.reading import reading
from anygatr.lab.data.arteries.mesh import face_areas, face_normals, surface_problems
from anygatr.lab.data.arteries.preprocess import Kind, Sample, preprocess
from anygatr.lab.data.arteries.store import INLET_KEYS, Artery, BadArteryError
from anygatr.lab.data.ply import read_ply
from anygatr.lab.data.vtp import read_vtp
from anygatr.lab.system.memory import Budget

Index = NDArray[np.int64]

CAP_ANGLE = 10.0  # degrees between neighbouring faces of one flat cap
TEXT = 32  # bytes that Python takes for each byte of a text that it splits into words
CAP_ROUNDNESS = 0.5  # 4 pi area / perimeter^2: 1 for a disk, 0.1 for a strip of wall faces


@dataclass(frozen=True, eq=False)
class SurfaceMesh:
    """A triangulated surface as it is in its file."""

    pos: NDArray[np.float64]
    """(N, 3), in the file's unit."""
    face: Index
    """(M, 3)."""
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    """Point data, where the format has them."""


def read_surface(path: str | Path) -> SurfaceMesh:
    """Read a surface by the ending of its name; polygons are split into triangles, equal STL corners merged."""
    path = Path(path)
    readers = {".vtp": _read_vtp, ".stl": _read_stl, ".ply": _read_ply}
    if path.suffix.lower() not in readers:
        raise ValueError(f"path={path} must end in one of {', '.join(readers)}")
    with reading(path, f"a {path.suffix.lower()} file"):
        surface = readers[path.suffix.lower()](path)
        if surface.face.size and not 0 <= surface.face.min() <= surface.face.max() < len(surface.pos):
            raise ValueError(f"faces refer to vertices {surface.face.min()} to {surface.face.max()} of {len(surface.pos)}")
    return surface


def surface_sample(
    path: str | Path, inlet: tuple[float, float, float] | None = None, *, scale: float = 1.0, kind: Kind = "single"
) -> Sample:
    """Prepare a surface file for prediction; its stress is zero, being unknown.

    The inlet is the flat cap nearest to the point `inlet`, or the non-zero entries of a point array named inlet_idcs
    or inlet_idx. `scale` converts the file's unit to centimetres (0.1 for millimetres).
    """
    if scale <= 0:
        raise ValueError(f"scale={scale} must be positive: centimetres per unit of the file")
    surface = read_surface(path)
    if problems := surface_problems(surface.pos, surface.face):
        raise BadArteryError(f"{path}: {'; '.join(problems)}")
    marked = next((surface.arrays[key] for key in INLET_KEYS if key in surface.arrays), None)
    if inlet is not None:
        cap = find_cap(surface, inlet)
    elif marked is not None:
        cap = np.flatnonzero(marked)
    else:
        raise ValueError(f"{path} does not mark its inlet; give inlet=(x, y, z), a point near the centre of its inlet cap")
    pos = (scale * surface.pos).astype(np.float32)
    return preprocess(Artery(Path(path).name, pos, surface.face, np.zeros_like(pos), cap), kind)


def find_cap(surface: SurfaceMesh, near: tuple[float, float, float]) -> Index:
    """Vertices of the flat part of the surface that contains the face nearest to a point."""
    normals = face_normals(surface.pos, surface.face)
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    edges = np.sort(surface.face[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), axis=1)
    order = np.lexsort(edges.T)
    left, right = order[:-1], order[1:]
    same = (edges[left] == edges[right]).all(axis=1)
    a, b = left[same] // 3, right[same] // 3
    flat = (normals[a] * normals[b]).sum(axis=1) > np.cos(np.radians(CAP_ANGLE))
    links = coo_matrix((np.ones(flat.sum()), (a[flat], b[flat])), shape=(len(normals), len(normals)))
    label = connected_components(links, directed=False)[1]
    distance = np.linalg.norm(surface.pos[surface.face].mean(axis=1) - np.asarray(near), axis=1)
    nearest = distance.argmin()
    cap = label == label[nearest]
    width = 2 * np.sqrt(face_areas(surface.pos, surface.face[cap]).sum() / np.pi)
    if distance[nearest] > width:
        raise BadArteryError(
            f"inlet={tuple(near)} is {distance[nearest]:.3g} away from the surface, whose nearest flat part is {width:.3g} "
            "wide; give a point near the centre of the inlet cap, in the file's unit"
        )
    bent = (normals[cap] @ normals[nearest]).min() < np.cos(np.radians(CAP_ANGLE))
    if bent or _roundness(surface.pos, surface.face[cap]) < CAP_ROUNDNESS:
        raise BadArteryError(f"the face nearest to {tuple(near)} is on the curved wall; give a point on the inlet cap")
    return np.unique(surface.face[cap])


def _roundness(pos: NDArray[np.float64], face: Index) -> float:
    edges = np.sort(face[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), axis=1)
    unique, counts = np.unique(edges, axis=0, return_counts=True)
    ends = pos[unique[counts == 1]]
    perimeter = np.linalg.norm(ends[:, 0] - ends[:, 1], axis=1).sum()
    return float(4 * np.pi * face_areas(pos, face).sum() / perimeter**2) if perimeter else 0.0


def _read_vtp(path: Path) -> SurfaceMesh:
    points, polygons, data = read_vtp(path)
    return SurfaceMesh(points.astype(np.float64), _fans(polygons), data)


def _read_stl(path: Path) -> SurfaceMesh:
    Budget().take(f"{path}: its triangles", (path.stat().st_size,), TEXT)
    raw = path.read_bytes()
    count = int(np.frombuffer(raw[80:84], "<u4")[0]) if len(raw) >= 84 else -1
    if len(raw) == 84 + 50 * count:
        record = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attribute", "<u2")])
        corners = np.frombuffer(raw, record, offset=84)["corners"].reshape(-1, 3).astype(np.float64)
    elif raw.lstrip()[:5].lower() == b"solid":
        rows = [line.split()[1:4] for line in raw.decode().splitlines() if line.strip().lower().startswith("vertex")]
        corners = np.array(rows, dtype=np.float64).reshape(-1, 3)
    else:
        raise ValueError(f"{len(raw)} bytes for {count} triangles")
    pos, number = np.unique(corners, axis=0, return_inverse=True)
    return SurfaceMesh(pos, number.reshape(-1, 3).astype(np.int64))


def _read_ply(path: Path) -> SurfaceMesh:
    points, polygons, columns = read_ply(path)
    return SurfaceMesh(points, _fans(polygons), columns)


def _fans(polygons: list[Index]) -> Index:
    """Triangles of convex polygons, each fanned out from its first corner."""
    fans = [np.stack([np.full(len(p) - 2, p[0]), p[1:-1], p[2:]], axis=1) for p in polygons if len(p) >= 3]
    return np.concatenate(fans) if fans else np.zeros((0, 3), dtype=np.int64)
