"""Gravitational n-body data: stars with planets, in one cluster or several; the target is where the bodies end up."""

from pathlib import Path

from anygatr.lab.data.dataset import Dataset
from anygatr.lab.data.files import dataset as files
from anygatr.lab.data.files.checks import coincident_samples
from anygatr.lab.data.made import MadeSets, Progress
from anygatr.lab.data.nbody.config import NBodyConfig
from anygatr.lab.data.nbody.simulation import samples

NAMES = {"m": "mass", "x_initial": "position", "v_initial": "velocity", "x_final": "final"}
"""Key in a file -> name of the field."""
INPUTS = {"x_initial": "point", "v_initial": "vector", "m": "scalar"}
"""Key in a file -> kind of the field."""


def generate(config: NBodyConfig, progress: Progress | None = None) -> dict[str, Path]:
    """Write one .npz per non-empty set and return their paths; a finished file of the same parameters is kept."""
    sets = MadeSets("nbody", Path(config.out), config.sizes, config.physics(), config.overwrite)
    return sets.write(lambda split, size: samples(config, split, size), progress)


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
