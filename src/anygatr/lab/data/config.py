"""Settings of the commands that make and inspect data. Imports neither torch nor numpy."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Union

from tyro.conf import Positional, arg, subcommand

from anygatr.lab.config.threads import ThreadOptions
from anygatr.lab.data.registry import DATASETS

if TYPE_CHECKING:
    Settings = Any
else:
    # a union of as many members as there are data sets to make, which no annotation can spell
    Settings = Union[tuple(Annotated[kind.config, subcommand(kind.name)] for kind in DATASETS if kind.config)]  # noqa: UP007


@dataclass(frozen=True)
class DataConfig(ThreadOptions):
    """Make one of the data sets that the laboratory knows."""

    what: Settings


@dataclass(frozen=True)
class InspectConfig(ThreadOptions):
    """Say what is in a .npz, .h5, .xyz or .extxyz file, propose kinds for its fields, and warn about what will hurt."""

    path: Annotated[Positional[str], arg(metavar="FILE")]
    """The file."""
    dim: int | None = None
    """Dimension of space, any; default: 3 or 2, whichever more arrays speak for."""
    memory: float | None = None
    """Gigabytes that reading data may take; what a file declares beyond is refused. Default: half of what is free."""
    json: bool = False
    """Print JSON for machines instead of a table."""
