"""Guards around a run: Ctrl-C waits for the end of a step, and a directory has one owner at a time."""

import fcntl
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from anygatr.files.whole import remove_unfinished
from anygatr.lab.distributed.ranks import Ranks

PATIENCE = 10.0
"""Seconds to wait for the directory of a process that is just ending."""


class Interruption:
    """True once Ctrl-C or a request to terminate has arrived."""

    def __init__(self) -> None:
        self.requested = False

    def __bool__(self) -> bool:
        return self.requested


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Turn the first SIGINT or SIGTERM into a flag, because a step cut in half cannot be resumed exactly.

    The second one acts at once. Outside the main thread, where signals never arrive, nothing changes.
    """
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    before: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def note(number: int, frame: FrameType | None) -> None:
        if interruption.requested:
            raise KeyboardInterrupt
        interruption.requested = True

    for number in before:
        signal.signal(number, note)
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def owned(directory: Path) -> Iterator[None]:
    """Hold a directory; the operating system lets go of it however the process ends."""
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"out={str(directory)!r} is a file; name a directory, which is made if it is not there")
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / ".lock", "w") as file:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise ValueError(
                        f"out={str(directory)!r} is in use by another process; wait for it or stop it"
                    ) from None
                time.sleep(0.2)
        remove_unfinished(directory)
        yield


@contextmanager
def owned_by_first(directory: Path, ranks: Ranks) -> Iterator[None]:
    """Let the first rank hold a directory that all of them work on."""
    with ExitStack() as held:
        ranks.first(lambda: held.enter_context(owned(directory)))
        yield


def contents(directory: Path) -> list[str]:
    """What a user would see in a directory: not our locks, nor files that a killed process left unfinished."""
    return sorted(file.name for file in directory.iterdir() if file.name[0] != ".") if directory.is_dir() else []
