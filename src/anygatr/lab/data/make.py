"""The data commands: make the n-body and artery sets with a progress bar, and look into a user's file."""

import json

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from anygatr.lab.data.arteries.config import ArteryConfig
from anygatr.lab.data.config import DataConfig, InspectConfig
from anygatr.lab.data.nbody.config import NBodyConfig


def make_data(config: DataConfig) -> None:
    """Make the data set that was asked for; what is there already is kept."""
    if isinstance(config.what, NBodyConfig):
        _make_nbody(config.what)
    else:
        _make_arteries(config.what)


def inspect_data(config: InspectConfig) -> None:
    """What a file holds."""
    from anygatr.lab.data.files.inspect import inspect

    found = inspect(config.path)
    if config.json:
        print(json.dumps(found.to_json()))
    else:
        Console().print(found)
        print(f"next: anygatr compare {found.command}")  # plain, so that no terminal breaks the path


def _make_nbody(config: NBodyConfig) -> None:
    from anygatr.lab.data.nbody.dataset import generate

    with _bar() as bar:
        tasks = {split: bar.add_task(split, total=size) for split, size in config.sizes.items() if size}
        files = generate(config, lambda split, done, total: bar.update(tasks[split], completed=done, total=total))
    for split, path in files.items():
        print(f"{split}: {path}")
    print(f"next: anygatr compare --data {config.out} --models E P iP C transformer")


def _make_arteries(config: ArteryConfig) -> None:
    from anygatr.lab.data.arteries.generate import generate

    with _bar() as bar:
        task = bar.add_task("arteries", total=config.count)
        report = generate(config, lambda state: bar.update(task, completed=state.done, total=state.total))
    print(report)


def _bar() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True))
