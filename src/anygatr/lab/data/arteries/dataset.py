"""An artery file as a sequence of prepared samples: split, rotated or canonical, cached one by one beside the file."""

from __future__ import annotations

import hashlib
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Literal

import numpy as np

from anygatr.files.whole import replacing
from anygatr.lab.data.arteries.preprocess import Kind, Sample, preprocess, rotate
from anygatr.lab.data.arteries.store import ArteryFile, BadArteryError

Split = Literal["train", "val", "test"]

PREPROCESSING_VERSION = 2  # part of the cache's name: raise it when `preprocess` changes its result


class ArteryDataset:
    """Samples of one split of a file, in the order of the group names; one artery is in memory at a time.

    A damaged artery is skipped by iteration with a warning that names it and is listed in `problems`;
    asking for it by index raises.
    """

    def __init__(
        self, path: str | Path, split: Split | None = None, *, rotated: bool = False, kind: Kind = "single"
    ) -> None:
        self.file = ArteryFile(path)
        self.kind: Kind = kind
        self.rotated = rotated
        self.names = self.file.names if split is None else splits(self.file.names)[split]
        self.problems: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> Sample:
        sample = self._prepared(self.names[index])
        return rotate(sample) if self.rotated else sample

    def __iter__(self) -> Iterator[Sample]:
        for index, name in enumerate(self.names):
            try:
                sample = self[index]
            except BadArteryError as error:
                if name not in self.problems:
                    warnings.warn(f"artery skipped: {error}", stacklevel=2)
                self.problems[name] = str(error)
                continue
            yield sample

    def prepare(self, progress: Callable[[int, int], None] = lambda done, total: None) -> None:
        """Fill the cache and drop the damaged arteries from `names`, so that every index is usable."""
        for done, name in enumerate(list(self.names), start=1):
            try:
                self._prepared(name)
            except BadArteryError as error:
                warnings.warn(f"artery dropped: {error}", stacklevel=2)
                self.problems[name] = str(error)
            progress(done, len(self.names))
        self.names = [name for name in self.names if name not in self.problems]

    @property
    def cache(self) -> Path:
        """Directory of the prepared samples; it changes with the file, the kind and the preprocessing."""
        stat = self.file.path.stat()
        key = f"{stat.st_size} {stat.st_mtime_ns} {self.kind} {PREPROCESSING_VERSION}"
        folder = self.file.path.with_name(self.file.path.name + ".cache")
        return folder / hashlib.sha256(key.encode()).hexdigest()[:12]

    def _prepared(self, name: str) -> Sample:
        path = self.cache / f"{name}.npz"
        try:
            return _load(path, name)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):  # absent or damaged: make it again
            sample = preprocess(self.file.read(name), self.kind)
        try:
            _save(path, sample)
        except OSError as error:  # a read-only or full disk costs time, not the result
            warnings.warn(f"{path} is not cached: {error}", stacklevel=3)
        return sample


def splits(names: list[str]) -> dict[str, list[str]]:
    """Train, validation and test names, in order: a tenth each for validation and test, at least one of three.

    For the 2000 published arteries this is the 1600/200/200 of their authors.
    """
    ordered = sorted(names)
    held_out = max(round(len(ordered) / 10), min(1, len(ordered) // 3))
    first, second = len(ordered) - 2 * held_out, len(ordered) - held_out
    return {"train": ordered[:first], "val": ordered[first:second], "test": ordered[second:]}


def label_scale(samples: Iterable[Sample]) -> float:
    """Root mean square of |wss| over all nodes of the samples: the unit in which a network predicts."""
    total, count = 0.0, 0
    for sample in samples:
        total += float((sample.wss.astype(np.float64) ** 2).sum())
        count += len(sample.wss)
    if not count:
        raise ValueError("samples is empty: the label scale needs at least one artery")
    return float(np.sqrt(total / count))


def _load(path: Path, name: str) -> Sample:
    with np.load(path, allow_pickle=False) as arrays:
        return Sample(name=name, **{f.name: arrays[f.name] for f in fields(Sample) if f.name != "name"})


def _save(path: Path, sample: Sample) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {f.name: getattr(sample, f.name) for f in fields(Sample) if f.name != "name"}
    with replacing(path) as temporary, temporary.open("wb") as stream:
        np.savez(stream, **arrays)
