"""Reading files that may be damaged or hostile: whatever a parser stumbles over becomes one line that names the file."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MESSAGE = 2000  # characters of an error message that quotes a file


class UnreadableFileError(ValueError):
    """A file that cannot be read: damaged, of another kind, or asking for too much. The message names it."""


@contextmanager
def reading(path: str | os.PathLike[str], kind: str) -> Iterator[None]:
    """Whatever goes wrong inside is the file's fault, and said to be; errors of the system pass."""
    try:
        yield
    except UnreadableFileError:
        raise
    except OSError as error:
        if error.errno is not None and error.filename is not None:
            raise
        raise UnreadableFileError(_said(path, kind, error)) from error
    except ImportError:
        raise
    except Exception as error:  # parsers raise what they like: KeyError, RuntimeError, struct.error, zlib.error, ...
        raise UnreadableFileError(_said(path, kind, error)) from error


def shortened(value: Any, most: int = MESSAGE) -> str:
    """A text of at most `most` characters, its middle left out."""
    try:
        text = str(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, a nest of brackets
        text = f"a {type(value).__name__} too long to print"
    return text if len(text) <= most else f"{text[: most // 2]} ... {text[-(most // 2) :]}"


def _said(path: str | os.PathLike[str], kind: str, error: Exception) -> str:
    reason = f"'{error.args[0]}' is missing" if isinstance(error, KeyError) and error.args else str(error)
    reason = shortened(reason.replace("\n", " "), 500) or type(error).__name__
    return f"{str(Path(path))!r} is damaged or not {kind} ({reason}); copy or save it again"
