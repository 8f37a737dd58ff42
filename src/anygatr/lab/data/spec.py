"""Where the data of a run come from: a path and what its fields are, plain enough to be stored beside the run."""

import math
import warnings
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from anygatr.lab.config.commands import DataOptions
from anygatr.lab.config.recipe import Preset
from anygatr.lab.data.arteries import fields as arteries
from anygatr.lab.data.dataset import Dataset
from anygatr.lab.data.files import dataset as files
from anygatr.lab.data.files.arrays import read_metadata
from anygatr.lab.data.kinds import parse_fields
from anygatr.lab.data.nbody import dataset as nbody
from anygatr.lab.data.nbody.config import NBodyConfig
from anygatr.lab.data.normalise import Normaliser

NBODY = NBodyConfig(train=3_000, val=500, eval=500, generalization=500)
"""What "nbody" stands for when there is no such directory yet; a minute's work for `anygatr data` replaces it."""


@dataclass(frozen=True)
class Source:
    """A path with declared fields; without declared inputs it holds n-body data, ours or official."""

    path: str
    inputs: dict[str, str]
    targets: dict[str, str]
    dim: int | None = None
    per: str | None = None
    normalise: bool = True
    nodes: str | None = None
    """Of artery walls, which nodes are seen in training; None for other data."""
    unit: float | None = None
    """The length that is 1 for the network, where it was given."""

    @classmethod
    def of(cls, options: DataOptions, normalise: bool | None = None, unit: float | None = None) -> "Source":
        """What a command line says about data."""
        if unit is not None and not 0 < unit < math.inf:
            raise ValueError(
                f"unit={unit} must be a positive length, in the unit of the data; leave it out to have one chosen"
            )
        inputs, targets = parse_fields(options.inputs, "inputs"), parse_fields(options.target, "target")
        if bool(inputs) != bool(targets):
            missing = "target" if inputs else "inputs"
            raise ValueError(f"{missing} is empty; declare both, for example --inputs position:point --target energy:scalar")
        path = NBODY.out if options.data == "nbody" else options.data
        if not inputs and arteries.is_artery_file(path):
            nodes = options.nodes or arteries.default_nodes(path)
            return cls(path, {}, {}, normalise=normalise is not False, nodes=nodes, unit=unit)
        asked = bool(inputs) if normalise is None else normalise
        return cls(path, inputs, targets, options.dim, options.per, asked, unit=unit)

    @property
    def is_nbody(self) -> bool:
        """Whether the fields are those of gravitating bodies."""
        return not self.inputs and not self.is_arteries

    @property
    def is_arteries(self) -> bool:
        """Whether the samples are artery walls."""
        return self.nodes is not None

    @property
    def preset(self) -> Preset:
        """The preset of a run on these data that names none."""
        return "arteries" if self.is_arteries else "laptop"

    @property
    def units(self) -> dict[str, str]:
        """The units of the fields, where they are known."""
        return arteries.UNITS if self.is_arteries else {}

    def load(self) -> Dataset:
        """Read the data; the default n-body set is made first if it is not there."""
        if self.nodes is not None:
            return arteries.load(self.path, self.nodes)
        if not self.is_nbody:
            return files.load(self.path, self.inputs, self.targets, dim=self.dim, per=self.per)  # type: ignore[arg-type]
        if self.path == NBODY.out and not Path(self.path).exists():
            nbody.generate(NBODY)
        try:
            return nbody.load(self.path)
        except ValueError as error:
            if nbody.is_nbody(self.path):
                raise
            raise ValueError(
                f"data={self.path!r} holds no n-body data ({', '.join(nbody.NAMES)}); declare its fields with --inputs and "
                f"--target: `anygatr inspect {self.path}` proposes them"
            ) from error

    def load_inputs(self, path: str, **surface: Any) -> Dataset:
        """The samples of another file with the same inputs, which needs no targets; `surface` tells what walls lack."""
        if self.is_arteries:
            return arteries.load_inputs(path, **surface)
        declared = self.inputs or {"x_initial": "point", "v_initial": "vector", "m": "scalar"}
        data = files.load(path, declared, {}, dim=self.dim or (3 if self.is_nbody else None), fractions=None)
        return data.rename(nbody.NAMES) if self.is_nbody else data

    def at(self, path: str | None) -> "Source":
        """The same fields in another place."""
        return self if path is None else replace(self, path=path)

    def origin(self, asked: str | None) -> str | None:
        """The origin that was asked for; by default the centre of mass of bodies, the mean of anything else."""
        default = "mass" if self.is_nbody else "mean"
        return None if asked == "none" else asked or default

    def normaliser(self, training: Dataset) -> Normaliser:
        """Units from the training samples, or none but that of length."""
        if self.normalise:
            return Normaliser.fit(training, self.unit)
        return Normaliser.identity(training, self.unit or 1.0)

    def describe(self) -> str:
        """One line for the report."""
        if self.is_arteries:
            return arteries.describe(self.path)
        if not self.is_nbody:
            return self.path
        train = Path(self.path) / "train.npz"
        physics = read_metadata(train).get("parameters", {}) if train.exists() else {}
        if not physics:
            return f"n-body data from {self.path}"
        return f"gravitational n-body, {physics['bodies']} bodies, {physics['clusters']}-cluster, {physics['steps']} steps"

    def to_json(self) -> dict[str, Any]:
        """Plain values for a run's configuration file; what is unset is left out, so that older files stay the same."""
        return {key: value for key, value in asdict(self).items() if key not in ("nodes", "unit") or value is not None}


def warn_of_unseen_count(data: Dataset) -> None:
    """Warn where targets of whole samples may depend on their number of tokens, which averages cannot see.

    Attention and pooling are means: a sample with every token twice gives the same output to the last bit.
    """
    if data.per == "sample" and len(data.counts.unique()) > 1 and not _is_count_given(data):
        warnings.warn(
            f"samples have {int(data.counts.min())} to {int(data.counts.max())} tokens, a number that networks made of "
            "averages cannot see; if the target grows with it, save it as an array (B,) and declare it as a scalar input",
            stacklevel=2,
        )


def _is_count_given(data: Dataset) -> bool:
    """Whether some scalar input is the number of tokens."""
    counts = data.counts.repeat_interleave(data.counts)
    packed = data.packed()
    return any(bool((packed.fields[name] == counts).all()) for name, kind in data.input_kinds.items() if kind == "scalar")


def fingerprint(data: Dataset) -> str:
    """A digest of every number of a data set: a run may be resumed only on the data it was started with."""
    digest = blake2b(digest_size=16)
    for name, x in sorted(data.fields.items()):
        digest.update(name.encode() + x.contiguous().numpy().tobytes())
    if data.scored is not None:
        digest.update(b"scored" + data.scored.contiguous().numpy().tobytes())
    return digest.hexdigest()
