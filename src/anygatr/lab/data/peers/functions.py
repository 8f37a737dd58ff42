"""Functions of normal vectors and points: signed volumes in O(3), the O(5) regression, volumes of convex hulls."""

from collections.abc import Callable, Iterator

import numpy as np

from anygatr.lab.data.made import Chunk
from anygatr.lab.data.peers.config import SPLITS, BenchmarkConfig, HullsConfig, O3Config, O5Config

CHUNK = 4_096
"""Samples with one random stream."""

Draw = Callable[[np.random.Generator], dict[str, np.ndarray]]


def o3_samples(config: O3Config, split: str, size: int) -> Iterator[Chunk]:
    """Vectors a, b, c with a tenth of their determinant; each sample is one token."""

    def draw(random: np.random.Generator) -> dict[str, np.ndarray]:
        vectors = random.standard_normal((CHUNK, 3, 3))
        a, b, c = vectors.transpose(1, 0, 2)
        return {"a": a[:, None], "b": b[:, None], "c": c[:, None], "volume": np.linalg.det(vectors)[:, None] / 10}

    return _chunks(config, split, size, draw)


def o5_samples(config: O5Config, split: str, size: int) -> Iterator[Chunk]:
    """Vectors a, b with sin |a| - |b|^3 / 2 + a.b / (|a| |b|); each sample is one token."""

    def draw(random: np.random.Generator) -> dict[str, np.ndarray]:
        a, b = random.standard_normal((2, CHUNK, 5))
        la, lb = np.linalg.norm(a, axis=-1), np.linalg.norm(b, axis=-1)
        y = np.sin(la) - lb**3 / 2 + (a * b).sum(-1) / (la * lb)
        return {"a": a[:, None], "b": b[:, None], "y": y[:, None]}

    return _chunks(config, split, size, draw)


def hull_samples(config: HullsConfig, split: str, size: int) -> Iterator[Chunk]:
    """Points with the volume of their convex hull."""
    from scipy.spatial import ConvexHull

    def draw(random: np.random.Generator) -> dict[str, np.ndarray]:
        points = random.standard_normal((CHUNK, config.points, config.dim))
        return {"x": points, "volume": np.array([ConvexHull(cloud).volume for cloud in points])}

    return _chunks(config, split, size, draw)


def _chunks(config: BenchmarkConfig, split: str, size: int, draw: Draw) -> Iterator[Chunk]:
    """Whole chunks are drawn, and the last is cut: so a smaller set is a prefix of a bigger one."""
    for chunk, start in enumerate(range(0, size, CHUNK)):
        random = np.random.default_rng([config.seed, SPLITS.index(split), chunk])
        yield {name: rows[: size - start] for name, rows in draw(random).items()}, {}
