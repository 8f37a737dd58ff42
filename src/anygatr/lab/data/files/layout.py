"""The ways in which files tell which tokens belong to which sample, all brought to `offsets`."""

import numpy as np

from anygatr.lab.data.files.arrays import Arrays, without_padding


def with_offsets(arrays: Arrays) -> Arrays:
    """The same arrays with `offsets` (B + 1,) where samples differ in size.

    Understood are `offsets` itself, a `mask` (B, n) of padded tokens, and PyTorch Geometric's `ptr` (B + 1,) and `batch`
    (N,), the number of each token's sample.
    """
    plain = {name: array for name, array in arrays.items() if name not in ("ptr", "batch")}
    if "offsets" in arrays:
        return plain
    if "ptr" in arrays:
        return plain | {"offsets": arrays["ptr"]}
    if "batch" in arrays:
        return plain | {"offsets": _offsets_of(arrays["batch"])}
    return without_padding(arrays)


def _offsets_of(batch: np.ndarray) -> np.ndarray:
    batch = np.asarray(batch)
    if batch.ndim != 1 or not len(batch) or batch.dtype.kind not in "iu" or batch[0] != 0 or (np.diff(batch) < 0).any():
        raise ValueError(
            f"batch, of shape {batch.shape} and type {batch.dtype}, must be the number of each token's sample, integers "
            "0, 0, 1, ... that never fall; sort the tokens by sample, or rename the array"
        )
    counts = np.bincount(batch)
    if not counts.all():
        raise ValueError(f"batch: sample {int(np.argmin(counts))} has no token; number the samples 0, 1, ... without gaps")
    return np.concatenate([[0], np.cumsum(counts)])
