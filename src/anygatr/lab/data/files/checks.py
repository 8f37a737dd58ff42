"""Checks of raw arrays that loading and inspecting share: finite numbers, coincident points, repeated samples."""

from hashlib import blake2b

import numpy as np

LARGEST = 1e100
"""Of a field's values: variances and errors are their squares, summed."""


def sample_of_rows(array: np.ndarray, offsets: np.ndarray | None) -> np.ndarray:
    """For each row along the first axis, the sample it belongs to."""
    if offsets is None or len(array) != offsets[-1]:
        return np.arange(len(array))
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


def nonfinite_samples(array: np.ndarray, offsets: np.ndarray | None = None) -> np.ndarray:
    """The samples that hold a NaN or an infinity."""
    bad = ~np.isfinite(array).reshape(len(array), -1).all(axis=1)
    return np.unique(sample_of_rows(array, offsets)[bad])


def require_finite(name: str, array: np.ndarray, offsets: np.ndarray | None = None) -> None:
    """Raise if a field holds a NaN or an infinity, naming the first sample, or values too large to be squared."""
    bad = nonfinite_samples(array, offsets)
    if len(bad):
        raise ValueError(
            f"field {name!r}: {len(bad)} of the samples hold NaN or infinite values, the first is sample {bad[0]}; "
            "remove them or repair the file (`anygatr inspect` lists them)"
        )
    if array.size and np.abs(array).max() > LARGEST:
        raise ValueError(
            f"field {name!r} holds values as large as {np.abs(array).max():.2g}, whose squares are no longer numbers; "
            f"change its unit so that they are below {LARGEST:g}"
        )


def coincident_samples(points: np.ndarray, offsets: np.ndarray | None = None) -> np.ndarray:
    """The samples in which two points have exactly the same coordinates; points (B, n, d), or (N, d) with offsets."""
    rows = points.reshape(-1, points.shape[-1])
    sample = np.repeat(sample_of_rows(points, offsets), 1 if points.ndim == 2 else points.shape[1])
    order = np.lexsort((*rows.T, sample))
    rows, sample = rows[order], sample[order]
    same = (sample[1:] == sample[:-1]) & (rows[1:] == rows[:-1]).all(axis=1)
    return np.unique(sample[1:][same])


def sample_digests(arrays: list[np.ndarray], offsets: np.ndarray | None = None) -> list[bytes]:
    """A fingerprint of each sample: equal if and only if all its arrays are equal bit for bit."""
    digests = []
    for pieces in zip(*(_by_sample(array, offsets) for array in arrays), strict=True):
        digest = blake2b(digest_size=16)
        for piece in pieces:
            digest.update(np.ascontiguousarray(piece).data)
        digests.append(digest.digest())
    return digests


def _by_sample(array: np.ndarray, offsets: np.ndarray | None) -> list[np.ndarray]:
    if offsets is None or len(array) != offsets[-1]:
        return list(array.reshape(len(array), -1))
    return np.split(array, offsets[1:-1])
