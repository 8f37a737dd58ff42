"""Sparse linear maps between blades as runs of consecutive blades, so that each run is one operation on two slices."""

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple


class Run(NamedTuple):
    """y[target : target + length] += factor * weight(x[source : source + length]); `first` writes instead of adding."""

    weight: int
    factor: float
    target: int
    source: int
    length: int
    first: bool

    @property
    def outputs(self) -> slice:
        """The blades it writes."""
        return slice(self.target, self.target + self.length)

    @property
    def inputs(self) -> slice:
        """The blades it reads."""
        return slice(self.source, self.source + self.length)


def runs(entries: Iterable[tuple[int, float, int, int]], begun: Iterable[int] = ()) -> tuple[Run, ...]:
    """Group entries (weight, factor, target, source) into runs and mark for each target blade the one that writes it first.

    The blades in `begun` have been written before. A run is cut where some of its targets have been written and others have
    not, so `first` holds for all of a run.
    """
    # the diagonal first: it writes whole grades at once
    todo = sorted(set(entries), key=lambda entry: (entry[2] != entry[3], *entry))
    written = set(begun)
    out: list[Run] = []
    for weight, factor, target, source in todo:
        run = Run(weight, factor, target, source, 1, target not in written)
        last = out[-1] if out else None
        if last is not None and last == run._replace(
            target=target - last.length, source=source - last.length, length=last.length
        ):
            out[-1] = last._replace(length=last.length + 1)
        else:
            out.append(run)
        written.add(target)
    return tuple(out)


@lru_cache(maxsize=256)
def transposed(forward: tuple[Run, ...], begun: tuple[int, ...] = ()) -> tuple[Run, ...]:
    """The runs of the transposed map."""
    return runs([(weight, factor, source, target) for weight, factor, target, source in listed(forward)], begun)


def listed(grouped: Iterable[Run]) -> list[tuple[int, float, int, int]]:
    """The entries (weight, factor, target, source) of runs."""
    return [(r.weight, r.factor, r.target + j, r.source + j) for r in grouped for j in range(r.length)]


def unwritten(forward: tuple[Run, ...], blades: int, begun: tuple[int, ...] = ()) -> tuple[int, ...]:
    """The target blades that no run writes and nothing wrote before."""
    return tuple(sorted(set(range(blades)) - set(begun) - {r.target + j for r in forward for j in range(r.length)}))
