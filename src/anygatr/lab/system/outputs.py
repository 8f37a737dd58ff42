"""Where a command may write: never over what it reads, nor over a file of a run or comparison, unless it is told to."""

import os
from collections.abc import Iterable
from pathlib import Path

RUN_FILES = ("config.json", "metrics.jsonl", "state.safetensors", "weights.safetensors", "result.json")
COMPARISON_FILES = ("experiment.json", "rows.jsonl")
COMPARISON_FOLDERS = ("rows", "runs", "predictions")


def output_path(out: str | Path, inputs: Iterable[str | Path] = (), force: bool = False) -> Path:
    """The path of a new file, its directory made; raises if it would replace something that is still needed.

    inputs  files, or directories with files, that the command reads
    force   replace them nevertheless
    """
    path = Path(out)
    if path.is_dir():
        raise ValueError(f"out={str(out)!r} is a directory; name a file in it")
    if not force and path.exists():
        if any(_is_part_of(path, Path(source)) for source in inputs):
            raise ValueError(f"out={str(out)!r} would replace what the command reads; name another file, or pass --force")
        if is_file_of_a_run(path):
            raise ValueError(f"out={str(out)!r} would replace a file of a run; name another file, or pass --force")
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(f"out={str(out)!r} is in a directory that cannot be written; name another place")
    return path


def is_file_of_a_run(path: Path) -> bool:
    """Whether a run or a comparison wrote this file and needs it."""
    path = path.resolve()
    if path.name in RUN_FILES and (path.parent / RUN_FILES[0]).exists():
        return True
    if path.name in COMPARISON_FILES:
        return True
    return any(
        folder.name in COMPARISON_FOLDERS and any((folder.parent / name).exists() for name in COMPARISON_FILES)
        for folder in path.parents
    )


def _is_part_of(path: Path, source: Path) -> bool:
    """Whether an existing file is this source, by whatever name, or a file in it."""
    if not source.exists():
        return False
    return source.resolve() in path.resolve().parents if source.is_dir() else os.path.samefile(path, source)
