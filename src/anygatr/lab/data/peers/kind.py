"""The peers' benchmarks as kinds of data sets."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anygatr.lab.config.commands import PredictConfig
from anygatr.lab.data.peers.config import BenchmarkConfig, ChargedConfig, HullsConfig, O3Config, O5Config
from anygatr.lab.data.spec import DatasetKind, DataSpec

if TYPE_CHECKING:
    from rich.progress import Progress

    from anygatr.lab.data.dataset import Dataset


class PeerBenchmark(DatasetKind):
    """Inputs and targets of known kinds, made by a generator; recognised by the name in its files' metadata."""

    def __init__(
        self,
        name: str,
        config: type[Any],
        text: str,
        inputs: dict[str, str],
        targets: dict[str, str],
        per: str = "token",
    ) -> None:
        self.name, self.config, self.home = name, config, config.out
        self.text, self.inputs, self.targets, self.per = text, inputs, targets, per

    def recognises(self, path: str) -> bool:
        """By the metadata; the default set is known by its place, because it may still have to be made."""
        from anygatr.lab.data.made import made_of

        return path == self.home or made_of(path).get("data") == self.name

    def load(self, spec: DataSpec) -> Dataset:
        """Read the sets; the default ones are made first if they are not there."""
        from anygatr.lab.data.files.dataset import load

        if spec.path == self.home and not Path(spec.path).exists():
            self.generate(self._defaults())
        return load(spec.path, self.inputs, self.targets, dim=self._dim(spec.path), per=self.per)  # type: ignore[arg-type]

    def load_inputs(self, spec: DataSpec, path: str, options: PredictConfig | None = None) -> Dataset:
        """The inputs of another file."""
        from anygatr.lab.data.files.dataset import load

        return load(path, self.inputs, {}, dim=self._dim(spec.path), fractions=None)

    def describe(self, spec: DataSpec) -> str:
        """What is to be predicted."""
        return self.text

    def title(self, spec: DataSpec) -> str:
        """The same wherever the data are."""
        return self.name

    def make(self, config: BenchmarkConfig, bar: Progress) -> str:
        """Write the sets that are missing."""
        tasks = {split: bar.add_task(split, total=size) for split, size in config.sizes.items() if size}
        files = self.generate(config, lambda split, done, total: bar.update(tasks[split], completed=done, total=total))
        lines = [f"{split}: {path}" for split, path in files.items()]
        return "\n".join([*lines, f"next: anygatr compare --data {config.out} --models E iP C"])

    def generate(self, config: BenchmarkConfig, progress: Callable[[str, int, int], None] | None = None) -> dict[str, Path]:
        """Write one .npz per set; those that are there are kept."""
        from anygatr.lab.data.made import MadeSets
        from anygatr.lab.data.peers.samples import SAMPLES

        sets = MadeSets(self.name, Path(config.out), config.sizes, config.parameters(), config.overwrite)
        return sets.write(partial(SAMPLES[self.name], config), progress)

    def _defaults(self) -> BenchmarkConfig:
        assert self.config is not None
        return self.config()

    def _dim(self, path: str) -> int:
        from anygatr.lab.data.made import made_of

        return int(made_of(path).get("parameters", {}).get("dim", self._defaults().space))


BENCHMARKS = (
    PeerBenchmark(
        "o3",
        O3Config,
        "O(3): a tenth of the signed volume of three vectors",
        inputs={"a": "vector", "b": "vector", "c": "vector"},
        targets={"volume": "pseudoscalar"},
    ),
    PeerBenchmark(
        "o5",
        O5Config,
        "O(5): sin |a| - |b|^3 / 2 + a.b / (|a| |b|)",
        inputs={"a": "vector", "b": "vector"},
        targets={"y": "scalar"},
    ),
    PeerBenchmark(
        "hulls",
        HullsConfig,
        "the volume of the convex hull of points",
        inputs={"x": "point"},
        targets={"volume": "scalar"},
        per="sample",
    ),
    PeerBenchmark(
        "charged",
        ChargedConfig,
        "five charged particles: positions 1000 steps later",
        inputs={"position": "point", "velocity": "vector", "charge": "scalar"},
        targets={"final": "point"},
    ),
)
