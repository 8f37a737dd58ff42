"""A quantity measured once per seed: its mean, its range, and how far two of them differ given the noise."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import exp, isfinite, log, sqrt
from statistics import fmean, variance

from scipy.special import stdtrit

FLOOR = 1e-30  # a measured zero still has a place on a logarithmic axis
CONFIDENCE = 0.95
ENOUGH = 3
"""Seeds from which on an interval is given."""


@dataclass(frozen=True)
class Spread:
    """Positive measurements of one thing, one per seed."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The geometric mean: errors and costs are compared by their ratios and drawn on logarithmic axes."""
        return exp(fmean(self.logs))

    @property
    def low(self) -> float:
        """The lowest of the seeds."""
        return min(self.values)

    @property
    def high(self) -> float:
        """The highest of the seeds."""
        return max(self.values)

    @property
    def logs(self) -> tuple[float, ...]:
        """The natural logarithms of the values."""
        return tuple(log(max(value, FLOOR)) for value in self.values)

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Ratio:
    """How many times larger one spread is than another, with a confidence interval; None where seeds are too few."""

    value: float
    low: float | None
    high: float | None

    @property
    def is_clear(self) -> bool:
        """Whether the interval excludes equality."""
        return self.low is not None and self.high is not None and not self.low <= 1 <= self.high


def spread(values: Iterable[float | None]) -> Spread | None:
    """The finite values as a spread; None if there are none."""
    kept = tuple(float(value) for value in values if value is not None and isfinite(value) and value >= 0)
    return Spread(kept) if kept else None


def ratio(a: Spread, b: Spread) -> Ratio:
    """mean(a) / mean(b) with Welch's interval on the logarithms, which supposes nothing about equal variances.

    Two seeds make no interval: their difference is one number, and the spread of one number is unknown.
    """
    difference = fmean(a.logs) - fmean(b.logs)
    if len(a) < ENOUGH or len(b) < ENOUGH:
        return Ratio(exp(difference), None, None)
    parts = [variance(s.logs) / len(s) for s in (a, b)]
    total = sum(parts)
    if total == 0:
        return Ratio(exp(difference), exp(difference), exp(difference))
    freedom = total**2 / sum(part**2 / (len(s) - 1) for part, s in zip(parts, (a, b), strict=True))
    reach = float(stdtrit(freedom, 0.5 + CONFIDENCE / 2)) * sqrt(total)
    return Ratio(exp(difference), exp(difference - reach), exp(difference + reach))


def interval(factors: Spread) -> Ratio:
    """The mean of factors that were measured within each run, with Student's interval on their logarithms."""
    centre = fmean(factors.logs)
    if len(factors) < ENOUGH:
        return Ratio(exp(centre), None, None)
    reach = float(stdtrit(len(factors) - 1, 0.5 + CONFIDENCE / 2)) * sqrt(variance(factors.logs) / len(factors))
    return Ratio(exp(centre), exp(centre - reach), exp(centre + reach))
