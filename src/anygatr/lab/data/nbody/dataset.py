"""Gravitational n-body data: stars with planets, in one cluster or several; the target is where the bodies end up."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import anygatr
from anygatr.lab.data.dataset import Dataset
from anygatr.lab.data.files import dataset as files
from anygatr.lab.data.files.arrays import NpzWriter, read_metadata
from anygatr.lab.data.files.checks import coincident_samples
from anygatr.lab.data.nbody.config import SPLITS, NBodyConfig
from anygatr.lab.data.nbody.simulation import samples

NAMES = {"m": "mass", "x_initial": "position", "v_initial": "velocity", "x_final": "final"}
"""Key in a file -> name of the field."""
INPUTS = {"x_initial": "point", "v_initial": "vector", "m": "scalar"}
"""Key in a file -> kind of the field."""


def generate(config: NBodyConfig, progress: Callable[[str, int, int], None] | None = None) -> dict[str, Path]:
    """Write one .npz per non-empty set and return their paths; a finished file of the same parameters is kept.

    progress(split, done, total) is called after every chunk. Stopped and started again, it continues with the first
    set that is not complete.
    """
    paths = {split: Path(config.out) / f"{split}.npz" for split in SPLITS}
    done = {split: not config.overwrite and _is_finished(path, config, split) for split, path in paths.items()}
    wanted = [split for split, size in config.sizes.items() if size]
    for split in wanted:
        if not done[split]:
            _write(config, split, paths[split], progress or (lambda *_: None))
    return {split: paths[split] for split in wanted}


def load(path: str | Path) -> Dataset:
    """The sets of a directory (or one file, which is then split at random), ours or official, as one Dataset."""
    data = files.load(path, INPUTS, {"x_final": "point"}, dim=3).rename(NAMES)
    offsets = None if data.offsets is None else data.offsets.numpy()
    bad = coincident_samples(data.fields["position"].numpy(), offsets)
    if len(bad):
        raise ValueError(
            f"data={str(path)!r}: in {len(bad)} samples, the first is {bad[0]}, two bodies coincide, "
            "where gravity is infinite; remove these samples"
        )
    if not bool((data.fields["mass"] > 0).all()):
        raise ValueError(f"data={str(path)!r}: field 'm' holds masses that are not positive; repair or remove their samples")
    return data


def _write(config: NBodyConfig, split: str, path: Path, progress: Callable[[str, int, int], None]) -> None:
    size, bodies, done, rejected = config.sizes[split], config.bodies_of(split), 0, 0
    shapes: dict[str, tuple[int, ...]] = {"m": (size, bodies)}
    shapes |= dict.fromkeys(("x_initial", "v_initial", "x_final"), (size, bodies, 3))
    if config.trajectories:
        shapes["trajectories"] = (size, bodies, config.steps + 1, 3)
    with NpzWriter(path, shapes) as writer:
        for chunk, thrown in samples(config, split, size):
            writer.append(**chunk)
            done, rejected = done + len(chunk["m"]), rejected + thrown
            progress(split, done, size)
        writer.metadata = _metadata(config, split) | {"samples": size, "rejected": rejected}


def _metadata(config: NBodyConfig, split: str) -> dict[str, Any]:
    versions = {"anygatr": anygatr.__version__, "numpy": np.__version__}
    return {"data": "nbody", "split": split, "parameters": config.physics(), "versions": versions}


def _is_finished(path: Path, config: NBodyConfig, split: str) -> bool:
    """Whether a file is there already; raises if it is one that must not be replaced without being asked."""
    if not path.exists():
        return False
    stored = read_metadata(path)
    theirs, ours = stored.get("parameters", {}), json.loads(json.dumps(config.physics()))
    if stored.get("split") != split or theirs != ours:
        other = ", ".join(f"{key}={theirs.get(key)}" for key in ours if theirs.get(key) != ours[key])
        raise ValueError(f"out={config.out!r} holds another {path.name} ({other}); choose another directory or overwrite")
    size = config.sizes[split]
    if stored["samples"] > size > 0:
        raise ValueError(
            f"{split}={size}, but {path} holds {stored['samples']} samples, of which those are the first; "
            "keep it and train on a subset, or overwrite"
        )
    return stored["samples"] == size
