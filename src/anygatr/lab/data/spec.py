"""DatasetKind: all that a data set knows about itself. DataSpec: which data a run is on, as it is stored beside the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from anygatr.lab.config.commands import DataOptions, PredictConfig
from anygatr.lab.config.recipe import Preset
from anygatr.lab.system.memory import limited

if TYPE_CHECKING:
    from rich.progress import Progress

    from anygatr.lab.data.dataset import Dataset
    from anygatr.lab.data.normalise import Normaliser


class DatasetKind(Protocol):
    """What the laboratory asks a data set; one object per data set, listed in `registry.DATASETS`.

    Subclass it, and override what differs from the defaults below. The command line reads every kind before it knows what
    it is asked for: its module imports torch, h5py and the like inside methods.
    """

    name: str
    """As in `anygatr data NAME`, and in the configuration of a run."""
    home: str | None = None
    """The path for which `--data NAME` stands."""
    config: type[Any] | None = None
    """The settings of `anygatr data NAME`, a frozen dataclass; None for data that we do not make."""
    preset: Preset = "laptop"
    """The preset of a run that names none."""
    origin: str = "mean"
    """The origin of a run that names none: "mean", or a field of weights."""
    patience: int | None = None
    """The patience of `anygatr train` where none is asked for."""
    normalise: bool = True
    """Whether fields are brought to order one in a run that does not say."""
    units: Mapping[str, str] = {}
    """The units of the fields, where they are known."""
    shown: tuple[str, ...] = ("eval", "val")
    """The splits from which the report shows samples: the first that there is."""

    def recognises(self, path: str) -> bool:
        """Whether the data at a path, whose fields nobody declared, are of this kind."""

    def load(self, spec: DataSpec) -> Dataset:
        """Read the data with their splits; make them first if they are ours and not there."""

    def load_inputs(self, spec: DataSpec, path: str, options: PredictConfig | None = None) -> Dataset:
        """The samples of another file with the same inputs, which needs no targets."""

    def settings(self, path: str, options: DataOptions) -> dict[str, Any]:
        """What else of a command line matters to this kind, stored with the run under names of its own."""
        return {}

    def describe(self, spec: DataSpec) -> str:
        """One line for the report."""
        return spec.path

    def title(self, spec: DataSpec) -> str:
        """A short name of these data."""
        return Path(spec.path).stem

    def hint(self, missing: set[str]) -> str:
        """How to give inputs that a file for prediction lacks, as the end of an error message."""
        return ""

    def refusal(self, found: Sequence[tuple[str, float, str]]) -> str | None:
        """Why data whose inputs lie so far outside the range of training, as `range.outside` says, are not predicted on."""
        return None

    def make(self, config: Any, bar: Progress) -> str:
        """Make the data set of a `config`, showing progress; returns what to say about it."""
        raise ValueError(f"{self.name} data are not made here")

    def is_implied_by(self, record: Mapping[str, Any]) -> bool:
        """Whether a stored record without the name of a kind is of this one: those of the first three kinds have none."""
        return False


@dataclass(frozen=True)
class DataSpec:
    """A path, the kind of data set it holds, and what was declared about it."""

    kind: DatasetKind
    path: str
    inputs: dict[str, str] = field(default_factory=dict)
    """Declared inputs: name -> kind of field; empty where the kind of data set knows its own."""
    targets: dict[str, str] = field(default_factory=dict)
    dim: int | None = None
    per: str | None = None
    normalise: bool = True
    settings: dict[str, Any] = field(default_factory=dict)
    """What else the kind of data set was told."""
    unit: float | None = None
    """The length that is 1 for the network, where it was given."""
    memory: float | None = None
    """Gigabytes that reading may take, where they were given; no part of what a run is."""
    vocabulary: Mapping[str, tuple[str | int, ...]] = field(default_factory=dict)
    """The classes of categories that a run was trained on; a new run takes those of its data. Stored with its task."""

    def load(self) -> Dataset:
        """Read the data."""
        with limited(self.memory):
            return self.kind.load(self)

    def load_inputs(self, path: str, options: PredictConfig | None = None) -> Dataset:
        """The samples of another file with the same inputs, which needs no targets."""
        with limited(self.memory if options is None else options.memory):
            return self.kind.load_inputs(self, path, options)

    def at(self, path: str | None, memory: float | None = None) -> DataSpec:
        """The same data in another place, read with another limit."""
        return replace(self, path=self.path if path is None else path, memory=memory)

    def origin(self, asked: str | None) -> str | None:
        """The origin that was asked for, by default that of the kind."""
        return None if asked == "none" else asked or self.kind.origin

    def normaliser(self, training: Dataset) -> Normaliser:
        """Units from the training samples, or none but that of length."""
        from anygatr.lab.data.normalise import Normaliser

        if self.normalise:
            return Normaliser.fit(training, self.unit)
        return Normaliser.identity(training, self.unit or 1.0)

    def describe(self) -> dict[str, Any]:
        """What a comparison says about its data, besides their fields."""
        units = {"units": dict(self.kind.units)} if self.kind.units else {}
        return units | {"name": self.kind.title(self), "description": self.kind.describe(self)}

    def to_json(self) -> dict[str, Any]:
        """Plain values for a run's configuration file; what is unset or implied is left out, as in older files."""
        names = ("path", "inputs", "targets", "dim", "per", "normalise")
        record = {name: getattr(self, name) for name in names} | self.settings
        record |= {} if self.unit is None else {"unit": self.unit}
        return record if self.kind.is_implied_by(record) else record | {"kind": self.kind.name}
