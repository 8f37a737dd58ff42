"""The number of CPU threads, which every command takes. Imports no torch."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ThreadOptions:
    """How many cores to use."""

    threads: int | None = None
    """CPU threads. Default: in `train` as many as make a step fastest, found by rehearsing a few; in `compare` cores / jobs
    for each run; else all cores. The bits of a run depend on them: it continues with those it was started with."""
