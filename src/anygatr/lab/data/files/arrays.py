"""Named arrays in files: read without ever unpickling, written whole or not at all."""

import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from anygatr.files.reading import reading, shortened
from anygatr.files.whole import replacing
from anygatr.lab.data.files.hdf5 import read_hdf5
from anygatr.lab.data.files.xyz import read_xyz
from anygatr.lab.data.kinds import nearest
from anygatr.lab.data.splits import split_name, split_order
from anygatr.lab.system.memory import Budget
from anygatr.lab.system.npz import read_npz

Arrays = dict[str, np.ndarray]
Location = str | Path | Mapping[str, str | Path]

SUFFIXES = (".npz", ".h5", ".hdf5", ".xyz", ".extxyz")
RESERVED = ("offsets", "ptr", "batch", "mask", "split", "metadata")
"""Arrays that describe the layout of a file and are no fields."""
WHOLE = "all"
"""The name of the only part of a file that declares no splits."""


def read_parts(source: Location, only: Collection[str] | None = None) -> dict[str, Arrays]:
    """Split -> arrays, from one file, a directory with a file per split, or a mapping split -> file.

    In one file, splits are keys `train_x, val_x, ...` (.npz) or groups `train/x, val/x, ...` (.h5).
    `only` names the arrays to read; others cost nothing.
    """
    budget = Budget()
    if isinstance(source, Mapping):
        return {split_name(name) or name: read_arrays(path, only, budget) for name, path in source.items()}
    path = Path(source)
    if path.is_dir():
        files = _split_files(path)
        return {name: read_arrays(files[name], only, budget) for name in sorted(files, key=split_order)}
    return _parts(read_arrays(path, only, budget))


def array_names(path: str | Path) -> set[str]:
    """The names of the arrays in a file or in the files of a directory, of which only the tables of contents are read."""
    path, names = Path(path), set[str]()

    def note(key: str) -> bool:
        names.add(_cut_prefix(key)[1])
        return False

    for file in _split_files(path).values() if path.is_dir() else [path]:
        _read(file, note)
    return names


def read_arrays(path: str | Path, only: Collection[str] | None = None, budget: Budget | None = None) -> Arrays:
    """The arrays of a .npz or .h5 file; groups of an .h5 are either splits or one group per sample."""
    return _read(Path(path), lambda key: only is None or key in only or _cut_prefix(key)[1] in only, budget)


def read_metadata(path: str | Path) -> dict[str, Any]:
    """The JSON that NpzWriter stored under `metadata`; empty for a file without it."""
    stored = read_arrays(path, only=("metadata",))
    with reading(path, "a file of ours: its metadata are no JSON object"):
        found = json.loads(str(stored["metadata"])) if stored else {}
        if not isinstance(found, dict):
            raise ValueError(f"a {type(found).__name__}")
        return found


def checked_offsets(offsets: np.ndarray) -> np.ndarray:
    """Where the samples of packed tokens begin, (B + 1,), as integers; raises if they make no sense."""
    offsets = np.asarray(offsets)
    if offsets.dtype.kind not in "iu":
        raise ValueError(f"offsets hold {offsets.dtype}, not integers; np.cumsum of the counts of tokens makes them")
    offsets = offsets.astype(np.int64)  # np.diff of unsigned integers, or of int8, would wrap around
    if offsets.ndim != 1 or len(offsets) < 2 or offsets[0] != 0 or (np.diff(offsets) <= 0).any():
        raise ValueError(
            f"offsets={shortened(offsets, 200)} must be 0 and then the growing end of each sample, (B + 1,), none of them "
            "empty; np.concatenate([[0], np.cumsum(counts)]) makes them"
        )
    return offsets


def without_padding(arrays: Arrays) -> Arrays:
    """Padded tokens with a `mask` (B, n) of the real ones, as packed tokens with `offsets`."""
    if "mask" not in arrays or "offsets" in arrays:
        return arrays
    mask = arrays["mask"].astype(bool)
    if mask.ndim != 2 or not mask.any(axis=1).all():
        raise ValueError(f"mask has shape {mask.shape}; give (samples, tokens), True for at least one token of each sample")
    packed = {name: a[mask] if a.shape[:2] == mask.shape else a for name, a in arrays.items() if name != "mask"}
    return packed | {"offsets": np.concatenate([[0], np.cumsum(mask.sum(1))])}


class NpzWriter:
    """Write the arrays of an .npz chunk by chunk, in constant memory; the file appears when it is complete.

        with NpzWriter(path, {"x": (100, 3)}) as writer:
            for rows in chunks:
                writer.append(x=rows)
            writer.metadata["seed"] = 1

    The same rows give the same bytes: members carry no time stamp.
    """

    def __init__(self, path: str | Path, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.path = Path(path)
        self.shapes = dict(shapes)
        self.metadata: dict[str, Any] = {}
        self._rows = dict.fromkeys(self.shapes, 0)

    def __enter__(self) -> "NpzWriter":
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._folder = tempfile.TemporaryDirectory(prefix=".rows.", dir=self.path.parent)
        self._files = {}
        for name, shape in self.shapes.items():
            self._files[name] = open(Path(self._folder.name) / f"{name}.npy", "wb+")
            header = {"descr": "<f8", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(self._files[name], header)
        return self

    def append(self, **chunk: np.ndarray) -> None:
        """Add rows to every array."""
        for name, rows in chunk.items():
            self._files[name].write(np.ascontiguousarray(rows, dtype="<f8").tobytes())
            self._rows[name] += len(rows)

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        try:
            if error is None:
                self._assemble()
        finally:
            for file in self._files.values():
                file.close()
            self._folder.cleanup()

    def _assemble(self) -> None:
        for name, shape in self.shapes.items():
            assert self._rows[name] == shape[0], f"{name}: {self._rows[name]} rows written, {shape[0]} announced"
        with replacing(self.path) as whole, zipfile.ZipFile(whole, "w", zipfile.ZIP_STORED) as archive:
            for name, file in self._files.items():
                file.seek(0)
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                    shutil.copyfileobj(file, member, 1 << 20)
            with archive.open(zipfile.ZipInfo("metadata.npy"), "w") as member:
                np.lib.format.write_array(member, np.array(json.dumps(self.metadata, sort_keys=True)))


def _split_files(directory: Path) -> dict[str, Path]:
    """The files of a directory that are named after splits."""
    files = {name: f for f in directory.iterdir() if f.suffix in SUFFIXES and (name := split_name(f.stem))}
    if "train" not in files:
        held = ", ".join(sorted(f.name for f in directory.iterdir())) or "nothing"
        raise ValueError(f"data={str(directory)!r} is a directory without train.npz (it holds {held}); name one file")
    return files


def _read(path: Path, is_wanted: Callable[[str], bool], budget: Budget | None = None) -> Arrays:
    budget = budget or Budget()
    if not path.exists():
        beside = [f.name for f in path.parent.iterdir()] if path.parent.is_dir() else []
        raise FileNotFoundError(f"data={str(path)!r} does not exist; {nearest(path.name, beside)}")
    if path.suffix not in SUFFIXES:
        raise ValueError(f"data={str(path)!r} has the unknown suffix {path.suffix!r}; save it as .npz or .h5")
    if path.suffix in (".xyz", ".extxyz"):
        budget.take(f"data={str(path)!r}, as numbers", (path.stat().st_size,), 4)
        return {name: array for name, array in read_xyz(path).items() if is_wanted(name)}
    return read_npz(path, is_wanted, budget) if path.suffix == ".npz" else read_hdf5(path, is_wanted, budget)


def _parts(arrays: Arrays) -> dict[str, Arrays]:
    parts: dict[str, Arrays] = {}
    for key, array in arrays.items():
        split, name = _cut_prefix(key)
        if split:
            parts.setdefault(split, {})[name] = array
    return {name: parts[name] for name in sorted(parts, key=split_order)} if "train" in parts else {WHOLE: arrays}


def _cut_prefix(key: str) -> tuple[str | None, str]:
    """train_x or train/x -> (train, x); anything else -> (None, key)."""
    prefix, _, name = key.replace("/", "_", 1).partition("_")
    return (split_name(prefix), name) if split_name(prefix) and name else (None, key)
