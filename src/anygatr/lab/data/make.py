"""The data commands: make a data set with a progress bar, and look into a user's file."""

import json

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from anygatr.lab.data.config import DataConfig, InspectConfig
from anygatr.lab.data.registry import DATASETS
from anygatr.lab.system.memory import limited
from anygatr.lab.system.terminal import Terminal, description_column, printable


def make_data(config: DataConfig) -> None:
    """Make the data set that was asked for; what is there already is kept."""
    kind = next(kind for kind in DATASETS if kind.config is type(config.what))
    columns = (description_column(), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Terminal(stderr=True)) as bar:
        made = kind.make(config.what, bar)
    print(printable(made))


def inspect_data(config: InspectConfig) -> None:
    """What a file holds."""
    from anygatr.lab.data.files.inspect import inspect

    with limited(config.memory):
        found = inspect(config.path, config.dim)
    if config.json:
        print(json.dumps(found.to_json()))
    else:
        Terminal().print(found)
        print(printable(f"next: anygatr compare {found.command}"))  # plain, so that no terminal breaks the path
