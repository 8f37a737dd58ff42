"""Which ratios are asked for, and whether stored rows meet them."""

import statistics
from collections.abc import Iterator
from typing import Any, NamedTuple

from benchmarks.harness.timing import Ratio, Samples, ratio
from benchmarks.speed.networks.arithmetic import step_flops
from benchmarks.speed.networks.contestants import COMPILED, CONFIGURATIONS, PEERS

Row = dict[str, Any]
EAGER_SHARE = 0.7  # of the speed asked for that the network must reach without compiling

LIMITS = {
    "transformer": {"a": 0.31, "b": 0.28, "c": 0.78},
    "lgatr": {"a": 1 / 8, "b": 1 / 8, "c": 1 / 2.5},
    "dense": {"a": 1 / 5, "b": 1 / 8, "c": 1 / 1.4},
}
FAMILY = {"E": 0.5, "C": 2.5}  # times P-GATr
MEMORY = {("a", ""): 300, ("a", "checkpoint"): 100, ("c", ""): 1536}  # MiB of a training step
COMPILE = {"E": (60, 10), "P": (60, 10), "iP": (60, 10), "C": (120, 10)}  # seconds cold, warm


class Verdict(NamedTuple):
    """A ratio against its limit: the better of eager and compiled, and eager alone."""

    configuration: str
    blocks: int
    threads: int
    what: str
    ours: str
    theirs: str
    best: Ratio
    chosen: str
    eager: Ratio
    limit: float
    against: float  # seconds of the other network
    peak: float  # FLOPs per second that the machine can do at most

    @property
    def asked(self) -> float:
        """FLOPs per second at which our network would have to compute, waiting for nothing, to be within the limit."""
        size = CONFIGURATIONS[self.configuration].cut(self.blocks)
        return step_flops(self.ours, size, self.what) / (self.limit * self.against)

    @property
    def met(self) -> bool:
        """Whether the better form is within the limit and eager not far from it."""
        return self.best.median <= self.limit and self.eager.median <= self.limit / EAGER_SHARE

    def __str__(self) -> str:
        return "met" if self.met else "beyond the machine" if self.asked > self.peak else "missed"


def verdicts(rows: list[Row]) -> Iterator[Verdict]:
    """One for each group of rows timed together and each limit that it can answer."""
    groups: dict[tuple[Any, ...], dict[str, Row]] = {}
    peaks = {row["threads"]: row["flops"] for row in rows if row["kind"] == "peak"}
    for row in rows:
        if row["kind"] == "time":
            key = (row["configuration"], row["blocks"], row["threads"], row["what"])
            groups.setdefault(key, {})[row["model"]] = row
    for key, models in groups.items():
        pairs = [("iP", peer, LIMITS[peer][key[0]]) for peer in PEERS] + [(name, "P", f) for name, f in FAMILY.items()]
        for ours, theirs, limit in pairs:
            if ours in models and theirs in models:
                yield _verdict(key, models, ours, theirs, limit, peaks.get(key[2], float("inf")))


def _verdict(key: tuple[Any, ...], models: dict[str, Row], ours: str, theirs: str, limit: float, peak: float) -> Verdict:
    threads = key[2]
    against = clock(models[theirs], threads)
    if theirs == "lgatr" and theirs + COMPILED in models:
        against = min(against, clock(models[theirs + COMPILED], threads), key=statistics.median)
    eager = ratio(clock(models[ours], threads), against)
    found = {ours: eager}
    if theirs in PEERS and ours + COMPILED in models:
        found[ours + COMPILED] = ratio(clock(models[ours + COMPILED], threads), against)
    chosen = min(found, key=lambda name: found[name].median)
    return Verdict(*key, ours, theirs, found[chosen], chosen, eager, limit, statistics.median(against), peak)


def clock(row: Row, threads: int) -> list[float]:
    """The seconds that count."""
    return Samples(row["cpu"], row["wall"]).clock(threads)
