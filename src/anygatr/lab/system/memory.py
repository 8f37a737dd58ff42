"""How much memory reading may take: declared sizes are checked before anything is allocated on a file's word."""

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import isfinite, prod
from pathlib import Path

SHARE = 0.5
"""Of the memory that is free, what reading a file may take unless --memory says otherwise."""
UNKNOWN = 4 * 2**30
"""Bytes taken to be free where the system does not say."""
SLACK = 2**28
"""Bytes that libraries may take for themselves while they read."""
_CONFINING = threading.RLock()  # the bound belongs to the process; the HDF5 library has such a lock of its own
_LIMIT: ContextVar[int | None] = ContextVar("limit", default=None)


@contextmanager
def limited(gigabytes: float | None) -> Iterator[None]:
    """Readers called inside may take so much; None leaves the limit as it is."""
    if gigabytes is not None and not (isfinite(gigabytes) and gigabytes > 0):
        raise ValueError(f"memory={gigabytes} must be a positive number of gigabytes; leave it out for half of what is free")
    token = _LIMIT.set(_LIMIT.get() if gigabytes is None else max(1, int(gigabytes * 1e9)))
    try:
        yield
    finally:
        _LIMIT.reset(token)


def limit() -> int:
    """The bytes that reading may take here."""
    found = _LIMIT.get()
    return int(SHARE * free()) if found is None else found


def free() -> int:
    """The bytes that are free on this machine, at most those of its container."""
    sizes = [_meminfo(), *map(_control_group, CONTROL_GROUPS)]
    return min((size for size in sizes if size is not None), default=UNKNOWN)


@contextmanager
def confined() -> Iterator[None]:
    """Bound what libraries written in C may allocate on their own, by the address space of this process.

    A damaged list inside an HDF5 file makes its library allocate without end, before any size can be asked for. Twice the
    limit, because arrays are put together while their parts are still there. Systems without such a bound set none. What
    the library has freed afterwards goes back to the system: kept by the allocator, it would come on top of the next bound.
    """
    try:
        import resource

        taken = _address_space()
    except (ImportError, OSError):
        yield
        return
    with _CONFINING:
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        ends = [end for end in (soft, hard, taken + 2 * limit() + SLACK) if end != resource.RLIM_INFINITY]
        resource.setrlimit(resource.RLIMIT_AS, (min(ends), hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
            if _address_space() > taken + SLACK // 2:
                _trim()


class Budget:
    """Bytes that may still be allocated while something is read."""

    def __init__(self, size: int | None = None) -> None:
        self.size = limit() if size is None else size
        self.used = 0

    def take(self, place: str, shape: tuple[int, ...], itemsize: int = 1) -> None:
        """Count an array before it is allocated; raises where the budget does not suffice, or the shape makes no sense."""
        if any(n < 0 for n in shape):
            raise ValueError(f"{place} has the shape {shape}, with a negative length")
        self.used += prod(shape) * itemsize
        if self.used > self.size:
            raise ValueError(
                f"{place} asks for {prod(shape) * itemsize / 1e9:.3g} GB, in all {self.used / 1e9:.3g} GB, but "
                f"reading may take {self.size / 1e9:.3g} GB; raise --memory if you trust the file"
            )


CONTROL_GROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def _address_space() -> int:
    """The bytes of address space that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def _trim() -> None:
    """Give freed memory back to the system, where the C library can be asked to."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


def _meminfo() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError, IndexError):
        try:
            return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        except (OSError, ValueError):
            return None


def _control_group(path: str) -> int | None:
    """The limit of a container; what it has used already is left aside, because most of it is page cache."""
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):  # no container, or "max"
        return None
