"""HDF5 files as named arrays: flat, with a group per split, or with a group per sample."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anygatr.files.reading import reading
from anygatr.lab.data.splits import split_name
from anygatr.lab.system.memory import Budget, confined

Arrays = dict[str, np.ndarray]


def read_hdf5(path: Path, is_wanted: Callable[[str], bool], budget: Budget) -> dict[str, np.ndarray]:
    """The wanted arrays by name; those in groups called train, val, ... as train/name, val/name, ...

    With one group per sample, arrays of equal shape become (B, ...); otherwise arrays with a row per token are packed
    as (N, ...) with `offsets`. Numbers may also be attributes of the groups. Links, external storage and virtual data sets,
    by which a file reads others, are refused.
    """
    try:
        import h5py
    except ImportError as error:
        raise ImportError(f"data={str(path)!r} needs h5py: pip install 'anygatr[lab]', or save it as .npz") from error
    with reading(path, "an HDF5 file"), confined(), h5py.File(path, "r") as file:
        source = _Source(path, is_wanted, budget)
        groups = source.groups(file)
        if groups and all(split_name(key) for key in groups):
            return {f"{key}/{name}": a for key, group in groups.items() for name, a in source.read(group).items()}
        return source.read(file)


@dataclass(frozen=True)
class _Source:
    """A file that is being read: where it is, what is wanted of it, and how much it may take."""

    path: Path
    is_wanted: Callable[[str], bool]
    budget: Budget

    def groups(self, group: Any) -> dict[str, Any]:
        """The groups in a group, by name."""
        import h5py

        return {key: item for key, item in own_items(group) if isinstance(item, h5py.Group)}

    def read(self, group: Any) -> Arrays:
        """The wanted arrays of a group, those of its own groups put together."""
        inner = self.groups(group)
        names = sorted(inner, key=_natural)
        samples = [self._attributes(inner[name]) | self._datasets(inner[name]) for name in names]
        arrays = self._datasets(group) | (_stack_samples(samples, names) if samples else {})
        return {key: _decoded(np.asarray(a)) for key, a in arrays.items()}

    def _datasets(self, group: Any) -> Arrays:
        import h5py

        found = {k: x for k, x in own_items(group) if self.is_wanted(k) and isinstance(x, h5py.Dataset)}
        return {key: checked(x, self.budget)[()] for key, x in found.items()}

    def _attributes(self, group: Any) -> Arrays:
        wanted = [key for key in group.attrs if self.is_wanted(key)]
        for key in wanted:
            about = group.attrs.get_id(key)
            self.budget.take(f"{self.path}: the attribute {key!r}", about.shape, about.dtype.itemsize)
        return {key: group.attrs[key] for key in wanted}


def own_items(group: Any) -> Iterator[tuple[str, Any]]:
    """The groups and data sets of a group, none of them behind a link, which may lead to other files."""
    import h5py

    for key in group:
        if not isinstance(group.get(key, getlink=True), h5py.HardLink):
            raise ValueError(f"{group.name}/{key} is a link to another place, which is not followed")
        yield key, group[key]


def checked(x: Any, budget: Budget) -> Any:
    """A data set whose numbers are in this file and fit the budget, those of one chunk included."""
    if x.is_virtual or x.external:
        raise ValueError(f"{x.name} keeps its numbers in other files, which are not opened")
    if x.shape is None:
        raise ValueError(f"{x.name} is empty")
    budget.take(x.name, x.shape, x.dtype.itemsize)
    if x.chunks:
        Budget(budget.size).take(f"a chunk of {x.name}", x.chunks, x.dtype.itemsize)
    return x


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
