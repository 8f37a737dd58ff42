"""What stays on disk between processes: one private directory, and small records in it, each found by what it depends on."""

import atexit
import hashlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Hashable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

Record = dict[str, str | int | None]


@lru_cache(maxsize=1)
def directory() -> Path:
    """Where things stay between runs; a private temporary directory where others could put things there."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    path = (Path(given) if os.path.isabs(given) else Path.home() / ".cache") / "anygatr"
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.stat()
    if found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return path
    private = Path(tempfile.mkdtemp(prefix="anygatr-"))
    atexit.register(shutil.rmtree, private, ignore_errors=True)
    return private


def recall(kind: str, key: Hashable) -> Record | None:
    """The record of that kind and key; None where there is none, or none that can be read."""
    try:
        found = json.loads(_place(kind, key).read_text(encoding="utf-8"))
    except (OSError, ValueError, RuntimeError):  # the last where the user has no home directory
        return None
    return found if isinstance(found, dict) else None


def keep(kind: str, key: Hashable, record: Record) -> None:
    """Write a record, whole or not at all; where nothing can be written, the next process finds out for itself."""
    with suppress(OSError, RuntimeError):
        path = _place(kind, key)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".part", encoding="utf-8", delete=False) as file:
            json.dump(record, file)
        os.replace(file.name, path)


def _place(kind: str, key: Hashable) -> Path:
    """By the text of the key, which has to be the same in every process."""
    return directory() / f"{kind}-{hashlib.sha256(repr(key).encode()).hexdigest()[:24]}.json"
