"""NPZ files as named arrays: headers are read and checked before a byte of the arrays is, and nothing is ever unpickled."""

import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy

from anygatr.files.reading import UnreadableFileError, reading
from anygatr.lab.system.memory import Budget

PIECE = 2**20
SAVE = "save plain numbers with np.savez(path, name=array, ...)"
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def read_npz(path: Path, is_wanted: Callable[[str], bool], budget: Budget) -> dict[str, np.ndarray]:
    """The wanted arrays by name; members that are no .npy files are passed over."""
    with reading(path, "a .npz file"):
        _check_kind(path)
        with zipfile.ZipFile(path) as archive:
            members = {
                info.filename.removesuffix(".npy"): info for info in archive.infolist() if info.filename[-4:] == ".npy"
            }
            return {name: _member(archive, info, path, budget) for name, info in members.items() if is_wanted(name)}


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path, budget: Budget) -> np.ndarray:
    name = info.filename.removesuffix(".npy")
    with archive.open(info) as file:
        version = npy.read_magic(file)
        if version not in _HEADERS:
            raise ValueError(f"the array {name!r} has format {version}; {SAVE}")
        shape, is_fortran, dtype = _HEADERS[version](file)
        if dtype.hasobject:
            raise UnreadableFileError(
                f"data={str(path)!r} is or holds a pickle (the array {name!r} of dtype object), which is never loaded "
                f"because unpickling runs code; {SAVE}; pack samples of different size as (N, columns) with 'offsets'"
            )
        budget.take(f"data={str(path)!r}: the array {name!r}", shape, max(dtype.itemsize, 1))
        size = int(np.prod(shape, dtype=object)) * dtype.itemsize
        if info.file_size - file.tell() != size:
            raise ValueError(f"the array {name!r} has {info.file_size - file.tell():,} bytes for the shape {shape}")
        raw = _filled(file, size)
    array = raw.view(dtype) if dtype.itemsize else np.zeros(int(np.prod(shape)), dtype)
    if dtype.kind == "U" and size and raw.view(np.dtype(np.uint32).newbyteorder(dtype.byteorder)).max() > sys.maxunicode:
        raise ValueError(f"the array {name!r} holds text that is no Unicode")  # Python would fail on it much later
    return array.reshape(shape[::-1]).T if is_fortran else array.reshape(shape)


def _filled(file: IO[bytes], size: int) -> np.ndarray:
    """The next `size` bytes, read piece by piece into their place; at the end the archive compares its checksum."""
    raw = np.empty(size, np.uint8)
    for start in range(0, size, PIECE):
        piece = file.read(min(PIECE, size - start))
        raw[start : start + len(piece)] = np.frombuffer(piece, np.uint8)
        if not piece:
            raise ValueError("it ends too early")
    return raw


def _check_kind(path: Path) -> None:
    """Say what a file is that is none of ours but looks like one."""
    with path.open("rb") as file:
        start = file.read(6)
    if start == b"\x93NUMPY":
        raise UnreadableFileError(f"data={str(path)!r} is a single array in .npy format; {SAVE}")
    if start[:1] == b"\x80":
        raise UnreadableFileError(f"data={str(path)!r} is a pickle, which is never loaded: unpickling runs code; {SAVE}")
