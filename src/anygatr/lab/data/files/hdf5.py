"""HDF5 files as named arrays: flat, with a group per split, or with a group per sample."""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from anygatr.lab.data.splits import split_name

Arrays = dict[str, np.ndarray]


def read_hdf5(path: Path, is_wanted: Callable[[str], bool]) -> dict[str, np.ndarray]:
    """The wanted arrays by name; those in groups called train, val, ... as train/name, val/name, ...

    With one group per sample, arrays of equal shape become (B, ...); otherwise arrays with a row per token are packed
    as (N, ...) with `offsets`. Numbers may also be attributes of the groups.
    """
    try:
        import h5py
    except ImportError as error:
        raise ImportError(f"data={str(path)!r} needs h5py: pip install 'anygatr[lab]', or save it as .npz") from error
    try:
        with h5py.File(path, "r") as file:
            groups = [key for key in file if isinstance(file[key], h5py.Group)]
            if groups and all(split_name(key) for key in groups):
                return {f"{key}/{name}": a for key in groups for name, a in _read_group(file[key], h5py, is_wanted).items()}
            return _read_group(file, h5py, is_wanted)
    except OSError as error:
        raise ValueError(f"data={str(path)!r} is truncated or no HDF5 file ({error}); copy or save it again") from error


def _read_group(group: Any, h5py: Any, is_wanted: Callable[[str], bool]) -> Arrays:
    def datasets(items: Any) -> Arrays:
        return {k: x[()] for k, x in items.items() if is_wanted(k) and isinstance(x, h5py.Dataset)}

    names = sorted((key for key in group if isinstance(group[key], h5py.Group)), key=_natural)
    samples = [{k: x for k, x in group[n].attrs.items() if is_wanted(k)} | datasets(group[n]) for n in names]
    arrays = datasets(group) | (_stack_samples(samples, names) if samples else {})
    return {key: _decoded(np.asarray(a)) for key, a in arrays.items()}


def _stack_samples(samples: list[Arrays], names: list[str]) -> Arrays:
    """One array from those of each sample; tokens are counted by the length that most arrays of a sample share."""
    keys = set(samples[0]).intersection(*samples)
    if missing := set().union(*samples) - keys:
        lacking = next(name for name, sample in zip(names, samples, strict=True) if missing - set(sample))
        raise ValueError(f"the group {lacking!r} lacks {sorted(missing)}, which other samples have; complete or remove it")
    shapes = {key: {np.shape(sample[key]) for sample in samples} for key in sorted(keys)}
    stacked = {key: np.stack([s[key] for s in samples]) for key in shapes if len(shapes[key]) == 1}
    if len(stacked) == len(shapes):
        return stacked
    counts = np.array([_token_count(sample[key] for key in keys - set(stacked)) for sample in samples])
    packed = {
        key: np.concatenate([sample[key] for sample in samples])
        for key in shapes
        if key not in stacked and len({shape[1:] for shape in shapes[key]}) == 1
    }
    return stacked | packed | {"offsets": np.concatenate([[0], np.cumsum(counts)])}


def _token_count(arrays: Iterable[np.ndarray]) -> int:
    # floating point numbers first: faces and edges of a mesh are integers and have lengths of their own
    rows = sorted((np.asarray(a) for a in arrays if np.ndim(a)), key=lambda a: a.dtype.kind != "f")
    return Counter(len(a) for a in rows).most_common(1)[0][0] if rows else 0


def _decoded(array: np.ndarray) -> np.ndarray:
    """Strings, which HDF5 stores as bytes, as text."""
    if array.dtype.kind not in "SO":
        return array
    text = [item.decode() if isinstance(item, bytes) else str(item) for item in array.ravel().tolist()]
    return np.array(text).reshape(array.shape)


def _natural(name: str) -> list[tuple[str, int]]:
    """Sort key that puts sample_9 before sample_10."""
    return [(text, int(digits or 0)) for text, digits in re.findall(r"(\D*)(\d*)", name)]
