"""Interleaved repetitions: medians, spread, and ratios of things timed in the same rounds."""

import os
import statistics
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

FEWEST = 2  # repetitions below which a ratio is refused


class Samples(NamedTuple):
    """Seconds of the repetitions of one thing, round by round."""

    cpu: list[float]
    wall: list[float]

    def clock(self, threads: int) -> list[float]:
        """Processor seconds on one thread, which other processes disturb least; wall-clock seconds on several."""
        return self.cpu if threads == 1 else self.wall


class Ratio(NamedTuple):
    """The median of a quotient over rounds, with its smallest and largest value."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.3f} ({self.low:.3f} to {self.high:.3f})"


def interleaved(calls: Mapping[str, Callable[[], None]], repetitions: int) -> dict[str, Samples]:
    """Every call once per round, so that whatever else the machine does falls on all alike."""
    found = {name: Samples([], []) for name in calls}
    for _ in range(repetitions):
        for name, call in calls.items():
            cpu, wall = time.process_time(), time.perf_counter()
            call()
            found[name].cpu.append(round(time.process_time() - cpu, 5))
            found[name].wall.append(round(time.perf_counter() - wall, 5))
    return found


def ratio(ours: list[float], theirs: list[float]) -> Ratio:
    """ours / theirs, each round by itself; refused where there are too few rounds to see a spread."""
    if len(ours) != len(theirs):
        raise ValueError(f"{len(ours)} and {len(theirs)} repetitions do not pair; time both in the same rounds")
    if len(ours) < FEWEST:
        raise ValueError(f"a ratio from {len(ours)} repetition has no spread; use --repetitions {FEWEST} or more")
    quotients = [a / b for a, b in zip(ours, theirs, strict=True)]
    return Ratio(statistics.median(quotients), min(quotients), max(quotients))


def spread(values: list[float]) -> tuple[float, float]:
    """The median, and half the distance between the quartiles over it."""
    if len(values) < 2:
        return values[0], float("nan")
    quarter, middle, three = statistics.quantiles(values, n=4, method="inclusive")
    return middle, (three - quarter) / 2 / middle


def load() -> float:
    """Processes that were running or waiting to, averaged over the last minute."""
    return round(os.getloadavg()[0], 2)
