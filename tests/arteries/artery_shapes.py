"""Surfaces with known geometry for the artery tests."""

import h5py
import numpy as np

from anygatr.lab.data.arteries.flow.grid import Resolution, tube_grid
from anygatr.lab.data.arteries.store import Artery
from anygatr.lab.data.arteries.vessel import Vessel


def sphere(subdivisions):
    """Unit sphere of a subdivided octahedron: vertices, faces."""
    pos = np.array([[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1], [0, 0, -1]], dtype=float)
    face = np.array([[0, 2, 4], [2, 1, 4], [1, 3, 4], [3, 0, 4], [2, 0, 5], [1, 2, 5], [3, 1, 5], [0, 3, 5]])
    for _ in range(subdivisions):
        edges = np.sort(face[:, [[0, 1], [1, 2], [2, 0]]], axis=-1)
        unique, number = np.unique(edges.reshape(-1, 2), axis=0, return_inverse=True)
        middle = len(pos) + number.reshape(-1, 3)
        pos = np.concatenate([pos, pos[unique].mean(axis=1)])
        pos /= np.linalg.norm(pos, axis=1, keepdims=True)
        a, b, c = face.T
        ab, bc, ca = middle.T
        quarters = [[a, ab, ca], [ab, b, bc], [ca, bc, c], [ab, bc, ca]]
        face = np.concatenate([np.stack(q, axis=1) for q in quarters])
    return pos, face


SHORT = Resolution(2, 1, 30)


def tube(name="sample_0000", radius=0.2, length=2.0, resolution=SHORT, seed=0):
    """A closed straight tube with extensions, and random stress on it, as a stored artery."""
    vessel = Vessel(radius=radius, outlet_ratio=1.0, length=length, reynolds=100)
    grid = tube_grid(resolution)
    stations = np.linspace(0.0, vessel.total_length, grid.planes)
    nodes, face = grid.surface
    pos = vessel.lumen(stations, grid.disk.points).reshape(-1, 3)[nodes].astype(np.float32)
    wss = np.random.default_rng(seed).normal(size=pos.shape).astype(np.float32)
    return Artery(name, pos, face, wss, np.searchsorted(nodes, grid.inlet))


def published_file(path, arteries, inlet_key="inlet_idcs"):
    """Write arteries exactly as the published file has them: bare datasets, 32-bit indices, no attributes."""
    with h5py.File(path, "w") as file:
        for artery in arteries:
            group = file.create_group(artery.name)
            group["pos"] = artery.pos
            group["face"] = artery.face.astype(np.int32)
            group["wss"] = artery.wss
            group[inlet_key] = artery.inlet.astype(np.int32)
            group["pressure"] = np.zeros((len(artery.pos), 1), dtype=np.float32)
    return path
