"""Settings of the commands that make and inspect data. Imports neither torch nor numpy."""

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg, subcommand

from anygatr.lab.data.arteries.config import ArteryConfig
from anygatr.lab.data.nbody.config import NBodyConfig


@dataclass(frozen=True)
class DataConfig:
    """Make a data set: gravitating bodies, or arteries with the stress of their solved flow."""

    what: Annotated[NBodyConfig, subcommand("nbody")] | Annotated[ArteryConfig, subcommand("arteries")]


@dataclass(frozen=True)
class InspectConfig:
    """Say what is in a .npz or .h5 file, propose kinds for its fields, and warn about what will hurt."""

    path: Annotated[Positional[str], arg(metavar="FILE")]
    """The file."""
    json: bool = False
    """Print JSON for machines instead of a table."""
