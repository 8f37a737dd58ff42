"""Data sets that we make: one .npz per set in a directory, each kept once it is finished."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

import anygatr
from anygatr.lab.data.files.arrays import NpzWriter, read_metadata

Chunk = tuple[dict[str, np.ndarray], dict[str, int]]
"""Rows of each array, and counts of what happened while they were made."""
Progress = Callable[[str, int, int], None]
"""Called with (set, samples done, samples in all) after every chunk."""


@dataclass(frozen=True)
class MadeSets:
    """What is made, where, how many samples of each set, and what decides them."""

    name: str
    out: Path
    sizes: Mapping[str, int]
    """Set -> samples; a set of none is left out."""
    parameters: Mapping[str, Any]
    """All that decides a sample."""
    overwrite: bool = False

    def write(self, samples: Callable[[str, int], Iterator[Chunk]], progress: Progress | None = None) -> dict[str, Path]:
        """Write the sets that are not there, and return the paths of all; `samples(set, size)` makes a set in chunks.

        Stopped and started again, it continues with the first set that is not complete.
        """
        wanted = {split: self.out / f"{split}.npz" for split, size in self.sizes.items() if size}
        missing = [split for split, path in wanted.items() if self.overwrite or not self._is_finished(split, path)]
        for split in missing:
            self._write(split, wanted[split], samples(split, self.sizes[split]), progress or (lambda *_: None))
        return wanted

    def _write(self, split: str, path: Path, chunks: Iterator[Chunk], progress: Progress) -> None:
        size, done = self.sizes[split], 0
        totals: dict[str, int] = {}
        first = next(chunks)
        shapes = {name: (size, *rows.shape[1:]) for name, rows in first[0].items()}
        with NpzWriter(path, shapes) as writer:
            for rows, counts in chain([first], chunks):
                writer.append(**rows)
                totals = {name: totals.get(name, 0) + count for name, count in counts.items()}
                done += len(next(iter(rows.values())))
                progress(split, done, size)
            versions = {"anygatr": anygatr.__version__, "numpy": np.__version__}
            about = {"data": self.name, "split": split, "parameters": dict(self.parameters), "versions": versions}
            writer.metadata = about | {"samples": size} | totals

    def _is_finished(self, split: str, path: Path) -> bool:
        """Whether a set is there already; raises if it is one that must not be replaced without being asked."""
        if not path.exists():
            return False
        stored = read_metadata(path)
        theirs, ours = stored.get("parameters", {}), json.loads(json.dumps(dict(self.parameters)))
        if (stored.get("data"), stored.get("split")) != (self.name, split) or theirs != ours:
            other = ", ".join(f"{key}={theirs.get(key)}" for key in ours if theirs.get(key) != ours[key])
            raise ValueError(
                f"out={str(self.out)!r} holds another {path.name} ({other}); choose another directory or overwrite"
            )
        size = self.sizes[split]
        if stored["samples"] > size:
            raise ValueError(
                f"{split}={size}, but {path} holds {stored['samples']} samples, of which those are the first; "
                "keep it and train on a subset, or overwrite"
            )
        return stored["samples"] == size


def made_of(path: str | Path) -> dict[str, Any]:
    """The metadata of sets of ours at a path, a directory or a file; empty where there are none."""
    path = Path(path)
    file = path / "train.npz" if path.is_dir() else path
    if file.suffix != ".npz" or not file.exists():
        return {}
    try:
        return read_metadata(file)
    except (ValueError, OSError):
        return {}
