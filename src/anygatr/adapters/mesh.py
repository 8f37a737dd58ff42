"""Meshes of trimesh or meshio, recognised by their attributes, or files that one of them reads."""

from pathlib import Path
from typing import Any

import numpy as np

from anygatr.lab.data.files.packing import Fields


def from_mesh(mesh: Any) -> Fields:
    """position (n, 3), normal (n, 3) and plane (n, 6) of every vertex, `faces` (m, 3), and point data by name.

    Normals are means over the triangles at a vertex, weighted by area; a plane is the normal and the point of a vertex.
    A path is read by trimesh or meshio, whichever is installed.
    """
    mesh = _read(Path(mesh)) if isinstance(mesh, str | Path) else mesh
    if hasattr(mesh, "vertices"):
        points, faces, data = np.asarray(mesh.vertices), np.asarray(mesh.faces), getattr(mesh, "vertex_attributes", {})
    elif hasattr(mesh, "points") and hasattr(mesh, "cells_dict"):
        points, data = np.asarray(mesh.points), mesh.point_data
        faces = _triangles(mesh.cells_dict)
    else:
        raise ValueError(f"mesh is a {type(mesh).__name__}; pass a mesh of trimesh or meshio, or the path of a file")
    points = np.asarray(points, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != 3 or not len(points):
        raise ValueError(f"the mesh has points of shape {points.shape}; (n, 3) is needed")
    normal = vertex_normals(points, faces)
    found = {"position": points, "normal": normal, "plane": np.concatenate([normal, points], axis=1), "faces": faces}
    return found | {name: np.asarray(x) for name, x in dict(data).items() if len(np.asarray(x)) == len(points)}


def vertex_normals(points: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Unit normals, the sum of the area vectors of the triangles at each vertex; zero where there is none."""
    area = np.cross(points[faces[:, 1]] - points[faces[:, 0]], points[faces[:, 2]] - points[faces[:, 0]])
    total = np.zeros_like(points)
    for corner in range(3):
        np.add.at(total, faces[:, corner], area)
    length = np.linalg.norm(total, axis=1, keepdims=True)
    return np.divide(total, length, out=np.zeros_like(total), where=length > 0)


def _triangles(cells: dict[str, Any]) -> np.ndarray:
    found = [np.asarray(cells["triangle"])] if "triangle" in cells else []
    if "quad" in cells:
        quads = np.asarray(cells["quad"])
        found += [quads[:, [0, 1, 2]], quads[:, [0, 2, 3]]]
    if not found:
        raise ValueError(f"the mesh has {', '.join(cells) or 'no cells'}, but no triangles; take its surface first")
    return np.concatenate(found).astype(np.int64)


def _read(path: Path) -> Any:
    if not path.exists():
        raise FileNotFoundError(f"mesh={str(path)!r} does not exist")
    try:
        import trimesh

        return trimesh.load(path, process=False, force="mesh")
    except ImportError:
        pass
    try:
        import meshio

        return meshio.read(path)
    except ImportError:
        raise ImportError(f"reading {path.name} needs trimesh or meshio: pip install 'anygatr[mesh]'") from None
