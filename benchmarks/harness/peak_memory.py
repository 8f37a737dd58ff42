"""How far the memory of this process rises above where it stood: for fresh processes, one measurement each."""

import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path

MIB = 2**20
KIB = 2**10


def growth(call: Callable[[], object]) -> int:
    """Bytes by which the peak during a call exceeds what was resident before it.

    Where the system cannot forget earlier peaks, one higher than the call's own is taken for it.
    """
    _forget_peak()
    before = _resident()
    call()
    return _peak() - before


def _resident() -> int:
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGESIZE") if statm.exists() else _peak()


def _peak() -> int:
    """From the kernel's account of this program alone: getrusage also counts the process that started it."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * KIB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else KIB)


def _forget_peak() -> None:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return
