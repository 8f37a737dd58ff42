"""Neighbour search and farthest point sampling on point sets, and a memory for what is built from them once per mesh."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from torch import Tensor

Points = NDArray[np.float64]
Index = NDArray[np.int64]
T = TypeVar("T")


def farthest_points(points: Points, count: int) -> Index:
    """(count,): the first point, then always the one farthest from those chosen; the first of equals."""
    if not 0 < count <= len(points):
        raise ValueError(f"count={count} must lie in 1..{len(points)}, the number of points")
    chosen = np.zeros(count, dtype=np.int64)
    distance = np.full(len(points), np.inf)
    for i in range(1, count):
        distance = np.minimum(distance, ((points - points[chosen[i - 1]]) ** 2).sum(axis=1))
        chosen[i] = distance.argmax()
    return chosen


def within(points: Points, centres: Points, radius: float) -> tuple[Index, Index]:
    """All pairs (centre, point) no farther apart than the radius, sorted; a centre without any gets its nearest point."""
    tree = cKDTree(points)
    found = tree.query_ball_point(centres, radius, return_sorted=True)
    nearest = tree.query(centres)[1]
    lists = [np.asarray(near or [nearest[i]], dtype=np.int64) for i, near in enumerate(found)]
    return np.repeat(np.arange(len(centres)), [len(near) for near in lists]), np.concatenate(lists)


def nearest(points: Points, centres: Points, count: int) -> tuple[Points, Index]:
    """Distances and numbers (centres, count) of the nearest points, nearest first; fewer if there are fewer points."""
    count = min(count, len(points))
    distance, index = cKDTree(points).query(centres, k=range(1, count + 1))
    return distance, index.astype(np.int64)


def spacing(points: Points) -> float:
    """The median distance of a point to its fourth neighbour: the edge length of a regular mesh of squares."""
    return float(np.median(nearest(points, points, 5)[0][:, -1]))


def padded(rows: Index, columns: Index, count: int) -> tuple[Tensor, Tensor]:
    """Pairs sorted by row as (count, width) columns, and which of them are real; padding repeats the row's first."""
    sizes = np.bincount(rows, minlength=count)
    starts = np.cumsum(sizes) - sizes
    place = np.arange(max(int(sizes.max()), 1))
    real = place < sizes[:, None]
    table = columns[np.where(real, starts[:, None] + place, starts[:, None])]
    return torch.from_numpy(table), torch.from_numpy(real)


class PerMesh(Generic[T]):
    """Remembers what was made of the latest meshes, so that each is prepared once and not at every step."""

    def __init__(self, make: Callable[..., T], size: int = 512):
        self.make, self.size = make, size
        self.made: OrderedDict[bytes, T] = OrderedDict()

    def __call__(self, *arrays: np.ndarray, **settings: float) -> T:
        """What `make` gives for these arrays and settings."""
        digest = blake2b(repr(sorted(settings.items())).encode(), digest_size=16)
        for array in arrays:
            digest.update(np.ascontiguousarray(array).data)
        key = digest.digest()
        if key not in self.made:
            self.made[key] = self.make(*arrays, **settings)
            if len(self.made) > self.size:
                self.made.popitem(last=False)
        self.made.move_to_end(key)
        return self.made[key]

    def __deepcopy__(self, memo: object) -> "PerMesh[T]":
        return self  # what is remembered never changes: copies of a network share it


def samples(fields: dict[str, Tensor], offsets: Tensor | None) -> Iterator[dict[str, Tensor]]:
    """The fields of one sample after the other, each (n, ...), from packed or dense ones."""
    if offsets is None:
        for i in range(len(next(iter(fields.values())))):
            yield {name: x[i] for name, x in fields.items()}
        return
    for start, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        yield {name: x[start:end] for name, x in fields.items()}


def array(x: Tensor) -> Points:
    """Numbers for SciPy."""
    return x.detach().cpu().double().numpy()
