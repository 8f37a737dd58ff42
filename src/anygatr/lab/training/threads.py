"""CPU threads of a run: those that were asked for, or those that it was started with."""

from pathlib import Path

import torch

from anygatr.lab.config.json_files import read_json


def set_threads(threads: int | None) -> None:
    """Use so many CPU threads from now on; None leaves them as they are."""
    if threads is None:
        return
    if threads < 1:
        raise ValueError(f"threads={threads} must be at least 1")
    torch.set_num_threads(threads)


def threads_of(directory: Path) -> int | None:
    """The threads with which the run in a directory was started, which its bits depend on; None if there is none."""
    path = directory / "config.json"
    return read_json(path).get("environment", {}).get("threads") if path.exists() else None
