"""N-body data as a kind of data set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anygatr.lab.config.commands import PredictConfig
from anygatr.lab.data.nbody.config import NBodyConfig
from anygatr.lab.data.spec import DatasetKind, DataSpec

if TYPE_CHECKING:
    from rich.progress import Progress

    from anygatr.lab.data.dataset import Dataset

DEFAULT = NBodyConfig(train=3_000, val=500, eval=500, generalization=500)
"""What "nbody" stands for when there is no such directory yet; a minute's work for `anygatr data` replaces it."""


class NBody(DatasetKind):
    """Gravitating bodies, ours or official: where they end up after a while."""

    name = "nbody"
    home = DEFAULT.out
    config = NBodyConfig
    origin = "mass"
    normalise = False  # as in the paper

    def recognises(self, path: str) -> bool:
        """By the names of the arrays; the default set is known by its place, because it may still have to be made."""
        from anygatr.lab.data.files.arrays import array_names
        from anygatr.lab.data.nbody.dataset import NAMES

        if path == self.home:
            return True
        try:
            return not array_names(path).isdisjoint(NAMES)
        except (ValueError, OSError, ImportError):
            return False

    def load(self, spec: DataSpec) -> Dataset:
        """Read the sets; the default ones are made first if they are not there."""
        from anygatr.lab.data.nbody.dataset import generate, load

        if spec.path == self.home and not Path(spec.path).exists():
            generate(DEFAULT)
        return load(spec.path)

    def load_inputs(self, spec: DataSpec, path: str, options: PredictConfig | None = None) -> Dataset:
        """Masses, positions and velocities of a file."""
        from anygatr.lab.data.files.dataset import load
        from anygatr.lab.data.nbody.dataset import INPUTS, NAMES

        return load(path, INPUTS, {}, dim=3, fractions=None).rename(NAMES)

    def describe(self, spec: DataSpec) -> str:
        """The physics, where the file tells."""
        from anygatr.lab.data.files.arrays import read_metadata

        train = Path(spec.path) / "train.npz"
        physics = read_metadata(train).get("parameters", {}) if train.exists() else {}
        if not physics:
            return f"n-body data from {spec.path}"
        return f"gravitational n-body, {physics['bodies']} bodies, {physics['clusters']}-cluster, {physics['steps']} steps"

    def title(self, spec: DataSpec) -> str:
        """The same wherever the data are."""
        return self.name

    def make(self, config: NBodyConfig, bar: Progress) -> str:
        """Write the sets that are missing."""
        from anygatr.lab.data.nbody.dataset import generate

        tasks = {split: bar.add_task(split, total=size) for split, size in config.sizes.items() if size}
        files = generate(config, lambda split, done, total: bar.update(tasks[split], completed=done, total=total))
        lines = [f"{split}: {path}" for split, path in files.items()]
        return "\n".join([*lines, f"next: anygatr compare --data {config.out} --models E P iP C transformer"])

    def is_implied_by(self, record: Mapping[str, Any]) -> bool:
        """Neither declared inputs nor the nodes of a wall."""
        return not record["inputs"] and "nodes" not in record
