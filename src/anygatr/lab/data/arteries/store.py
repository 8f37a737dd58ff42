"""The HDF5 layout of the published data set: one group `sample_NNNN` per artery, read one at a time, written atomically.

pos (N, 3) float32 cm, face (M, 3) int, wss (N, 3) float32 dyn/cm^2, inlet_idcs or inlet_idx (n,) int; generated files
add pressure (N, 1) and provenance attributes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from anygatr.files.reading import UnreadableFileError, reading
from anygatr.files.whole import replacing
from anygatr.lab.data.files.hdf5 import checked, own_items
from anygatr.lab.system.memory import Budget, confined

INLET_KEYS = ("inlet_idcs", "inlet_idx")


class BadArteryError(UnreadableFileError):
    """An artery that cannot be used; the message names the file, the group and the problem."""


@dataclass(frozen=True, eq=False)
class Artery:
    """One artery wall as it is stored: a closed triangulated surface with its inlet cap and stress vectors."""

    name: str
    pos: NDArray[np.float32]
    """(N, 3), cm."""
    face: NDArray[np.int64]
    """(M, 3)."""
    wss: NDArray[np.float32]
    """(N, 3), dyn/cm^2."""
    inlet: NDArray[np.int64]
    """Vertices of the inlet cap."""
    pressure: NDArray[np.float32] | None = None
    """(N, 1), dyn/cm^2, where the file has it."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """HDF5 attributes of the group."""

    @property
    def number(self) -> int:
        """The number in the group's name."""
        return sample_number(self.name)


class ArteryFile:
    """A data file, opened for each access, so that it travels to worker processes and is never held in memory."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise FileNotFoundError(
                f"no artery file at {self.path}; make one with: anygatr data arteries --out {self.path} --count 50"
            )
        with reading(self.path, "a readable HDF5 file"), confined(), h5py.File(self.path, "r") as file:
            self.names = sorted(name for name in file if isinstance(file.get(name, getlink=True), h5py.HardLink))
            self.attributes = dict(file.attrs)

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[Artery]:
        return (self.read(name) for name in self.names)

    def read(self, name: str) -> Artery:
        """Read one group; raises BadArteryError with the reason if it is corrupt."""
        try:
            with reading(self.path, "an artery file"), confined(), h5py.File(self.path, "r") as file:
                return _read_group(file, name)
        except BadArteryError as error:
            raise BadArteryError(f"{self.path}: {name}: {error}") from None
        except UnreadableFileError as error:
            raise BadArteryError(f"{name}: unreadable: {error}") from error


def write_artery(group: h5py.Group, artery: Artery) -> None:
    """Write one artery's arrays and attributes into its group, arrays compressed."""
    arrays = {"pos": artery.pos, "face": artery.face, "wss": artery.wss, "inlet_idcs": artery.inlet}
    if artery.pressure is not None:
        arrays["pressure"] = artery.pressure
    for key, array in arrays.items():
        group.create_dataset(key, data=array, compression="gzip", shuffle=True)
    group.attrs.update(artery.attributes)


@contextmanager
def new_file(path: Path) -> Iterator[h5py.File]:
    """An HDF5 file that appears under its name only when it is complete and on disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary, h5py.File(temporary, "w") as file:
        yield file


def sample_name(number: int) -> str:
    """Group name of an artery."""
    return f"sample_{number:04d}"


def sample_number(name: str) -> int:
    """The number in a group's name; published names end in one."""
    match = re.search(r"(\d+)$", name)
    if match is None:
        raise BadArteryError(f"group name {name!r} does not end in a number, which fixes its rotation")
    return int(match.group(1))


def _read_group(file: h5py.File, name: str) -> Artery:
    if name not in file:
        raise BadArteryError(f"no such group; the file has {len(file)} groups")
    group = file[name]
    if not isinstance(group, h5py.Group):
        raise BadArteryError("is a dataset, not a group")
    inlet_key = next((key for key in INLET_KEYS if key in group), None)
    missing = [key for key in ("pos", "face", "wss") if key not in group]
    if inlet_key is None:
        missing.append(" or ".join(INLET_KEYS))
    if missing or inlet_key is None:
        raise BadArteryError(f"missing {', '.join(missing)}; it has {', '.join(group) or 'nothing'}")
    found, budget = dict(own_items(group)), Budget()
    pos = _array(found, "pos", "f", (None, 3), budget).astype(np.float32)
    face = _array(found, "face", "i", (None, 3), budget).astype(np.int64)
    wss = _array(found, "wss", "f", (len(pos), 3), budget).astype(np.float32)
    inlet = _array(found, inlet_key, "i", (None,), budget).astype(np.int64)
    for key, index in (("face", face), (inlet_key, inlet)):
        if index.size == 0:
            raise BadArteryError(f"{key} is empty")
        if index.min() < 0 or index.max() >= len(pos):
            raise BadArteryError(f"{key} has indices {index.min()} to {index.max()}, outside the {len(pos)} vertices")
    for key, values in (("pos", pos), ("wss", wss)):
        if not np.isfinite(values).all():
            raise BadArteryError(f"{key} has {int((~np.isfinite(values)).any(axis=1).sum())} rows that are not finite")
    pressure = _array(found, "pressure", "f", (len(pos), 1), budget).astype(np.float32) if "pressure" in found else None
    return Artery(name, pos, face, wss, inlet, pressure, dict(group.attrs))


def _array(found: dict[str, Any], key: str, kind: str, shape: tuple[int | None, ...], budget: Budget) -> NDArray[Any]:
    if not isinstance(found[key], h5py.Dataset):
        raise BadArteryError(f"{key} is a group, not a dataset")
    array = checked(found[key], budget)
    fits = len(array.shape) == len(shape) and all(n is None or n == m for n, m in zip(shape, array.shape, strict=True))
    if not fits:
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        raise BadArteryError(f"{key} has shape {array.shape}, expected ({wanted})")
    if array.dtype.kind not in {"f": "f", "i": "iu"}[kind]:
        raise BadArteryError(f"{key} has type {array.dtype}, expected {'floating point' if kind == 'f' else 'integers'}")
    return np.asarray(array)
