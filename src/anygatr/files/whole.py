"""Files that appear when they are complete: a temporary file beside the place, fsync, rename."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

UNFINISHED = ".unfinished"
"""In the names of temporary files."""


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path to write to; at the end of the block what is there takes the place of `path`, after it has reached the disk.

    Whoever reads `path` meanwhile finds the old file or the new one, never a part. If the block raises, the old file stays
    and nothing is left behind.
    """
    path = Path(path)
    check_parent(path)
    temporary = path.with_name(f".{secrets.token_hex(8)}{UNFINISHED}")  # short, and no reader's pattern ends like this
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(path)
    except OSError as error:
        if error.errno is not None and error.filename in (None, str(temporary)):
            error.filename = str(path)  # the name that the user knows
        raise
    finally:
        temporary.unlink(missing_ok=True)
    _sync_directory(path.parent)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """A text file in UTF-8, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def check_parent(path: Path) -> None:
    """Raise unless a file can be put at `path`: better before minutes are spent on what goes into it."""
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"path={str(path)!r} is in a directory that does not exist; create {str(path.parent)!r} first"
        )


def remove_unfinished(directory: Path) -> None:
    """Delete what killed processes left in a directory that nobody else writes to now."""
    for left in directory.glob(f".*{UNFINISHED}"):
        left.unlink(missing_ok=True)


def _sync_directory(directory: Path) -> None:
    """Let the new name, too, reach the disk."""
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(directory, os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
