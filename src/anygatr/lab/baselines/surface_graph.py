"""The tangent planes of a surface at several scales: directions to neighbours, parallel transport, pooling.

Nodes have a position, a normal and a gauge: which tangent direction counts as angle zero. The log map takes a neighbour to
its displacement, laid into the tangent plane; parallel transport turns the neighbour's tangent plane by the smallest
rotation that aligns the normals. Both give angles that depend on the gauges of the two nodes and on nothing else.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anygatr.lab.baselines.neighbours import farthest_points, nearest, padded, within

Array = NDArray[np.float64]
Index = NDArray[np.int64]

RATIOS = (1.0, 0.4, 0.1)
"""The part of the nodes of the scale above that each scale keeps."""
RADII = (1.3, 2.0, 10.0)
"""Of each scale's neighbourhoods, in spacings of the training meshes: a dozen neighbours at each."""
MOST = 64
"""Neighbours of a node at most, the nearest."""


@dataclass(frozen=True)
class Scale:
    """One scale of a surface; m nodes with up to k neighbours each."""

    near: Tensor
    """(m, k): the neighbours of each node."""
    weight: Tensor
    """(m, k): one over the number of real neighbours; zero for padding."""
    distance: Tensor
    """(m, k): in parts of the radius."""
    direction: Tensor
    """(m, k): the angle of the log map."""
    transport: Tensor
    """(m, k): the angle by which the neighbour's tangent vectors turn on their way to the node."""
    kept: Tensor
    """(m,): the nodes of the finer scale that these are."""
    cluster: Tensor
    """(n,): the node of this scale to which each node of the finer scale belongs."""
    share: Tensor
    """(n,): one over the size of its cluster."""
    descent: Tensor
    """(n,): the angle by which tangent vectors turn on their way from a node of the finer scale to its cluster."""


@dataclass(frozen=True)
class SurfaceGraph:
    """The scales, finest first, and the frames of the finest."""

    scales: list[Scale]
    frames: Tensor
    """(n, 3, 3): two tangent directions, of which the first is the gauge, and the normal."""
    offsets: Tensor
    """(n, k, 3): displacements to the neighbours in the frame of the node, in parts of the radius."""
    normals: Tensor
    """(n, k, 3): the neighbours' normals in the frame of the node."""


def surface(points: Array, normals: Array, gauge: Array, spacing: float) -> SurfaceGraph:
    """Build all scales; `gauge` (n,) turns the frame of every node, which a network must not notice."""
    normals = normals / np.linalg.norm(normals, axis=1, keepdims=True)
    frames = tangent_frames(normals, gauge)
    scales, first = [], None
    for ratio, radius in zip(RATIOS, RADII, strict=True):
        kept = np.arange(len(points)) if ratio == 1 else farthest_points(points, max(1, round(ratio * len(points))))
        cluster = nearest(points[kept], points, 1)[1][:, 0]
        descent = transport_angles(frames[kept][cluster], frames)
        share = 1.0 / np.bincount(cluster, minlength=len(kept))[cluster]
        points, frames = points[kept], frames[kept]
        near, real = _neighbours(points, frames[:, 2], radius * spacing)
        away = np.einsum("mkc,mac->mka", points[near] - points[:, None], frames) / (radius * spacing)
        scales.append(
            Scale(
                near=torch.from_numpy(near),
                weight=_tensor(real / np.maximum(real.sum(axis=1, keepdims=True), 1)),
                distance=_tensor(np.linalg.norm(away, axis=2)),
                direction=_tensor(np.arctan2(away[..., 1], away[..., 0])),
                transport=_tensor(transport_angles(np.broadcast_to(frames[:, None], (*near.shape, 3, 3)), frames[near])),
                kept=torch.from_numpy(kept),
                cluster=torch.from_numpy(cluster),
                share=_tensor(share),
                descent=_tensor(descent),
            )
        )
        first = first or (away, np.einsum("mkc,mac->mka", frames[near][:, :, 2], frames), frames)
    assert first is not None
    return SurfaceGraph(scales, _tensor(first[2]), _tensor(first[0]), _tensor(first[1]))


def tangent_frames(normals: Array, gauge: Array) -> Array:
    """(n, 3, 3): right-handed frames [first tangent, second tangent, normal], the tangents turned by the gauge."""
    axis = np.eye(3)[np.abs(normals).argmin(axis=1)]  # the coordinate axis that is farthest from the normal
    first = np.cross(axis, normals)
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    second = np.cross(normals, first)
    cosine, sine = np.cos(gauge)[:, None], np.sin(gauge)[:, None]
    return np.stack([cosine * first + sine * second, cosine * second - sine * first, normals], axis=1)


def transport_angles(to: Array, source: Array) -> Array:
    """(...,): the angle in the frames `to` (..., 3, 3) of the first tangents of `source`, once the normals are aligned."""
    a, b, v = source[..., 2, :], to[..., 2, :], source[..., 0, :]
    axis = np.cross(a, b)
    turned = np.cross(axis, v)
    cosine = (a * b).sum(-1, keepdims=True)
    # Rodrigues' formula for the rotation that takes a to b; opposite normals, for which there is none, are no neighbours
    aligned = v + turned + np.cross(axis, turned) / np.maximum(1 + cosine, 1e-6)
    return np.arctan2((aligned * to[..., 1, :]).sum(-1), (aligned * to[..., 0, :]).sum(-1))


def _neighbours(points: Array, normals: Array, radius: float) -> tuple[Index, NDArray[np.bool_]]:
    """(m, k) neighbours on the same side of the wall, and which are real; a node is no neighbour of itself.

    Across a narrow lumen the nearest nodes in space are far away along the surface, which their normals show.
    """
    rows, columns = within(points, points, radius)
    distance = np.linalg.norm(points[rows] - points[columns], axis=1)
    order = np.lexsort((distance, rows))
    rows, columns = rows[order], columns[order]
    same = ((normals[rows] * normals[columns]).sum(axis=1) > 0) & (rows != columns)
    rows, columns = rows[same], columns[same]
    rank = np.arange(len(rows)) - np.searchsorted(rows, rows)
    rows, columns = rows[rank < MOST], columns[rank < MOST]
    lonely = np.setdiff1d(np.arange(len(points)), rows)
    rows, columns = np.concatenate([rows, lonely]), np.concatenate([columns, lonely])
    order = np.argsort(rows, kind="stable")
    near, real = padded(rows[order], columns[order], len(points))
    is_lonely = np.isin(np.arange(len(points)), lonely)  # they stand for themselves in the table, with no weight
    return near.numpy(), real.numpy() & ~is_lonely[:, None]


def _tensor(x: Array) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(x, dtype=np.float64))
