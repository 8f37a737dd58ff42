"""Spreads, intervals and how numbers are written."""

import numpy as np
import pytest
from scipy import stats

from anygatr.lab.report.palette import KNOWN, SPARE, looks
from anygatr.lab.report.spread import Ratio, Spread, interval, ratio, spread
from anygatr.lab.report.wording import count, listing, measured, number, times


def test_mean_is_geometric_and_ignores_what_is_missing():
    values = spread([1.0, None, 100.0, float("nan"), float("inf")])
    assert values is not None
    assert values.mean == pytest.approx(10)
    assert (values.low, values.high, len(values)) == (1.0, 100.0, 2)
    assert spread([None]) is None


@pytest.mark.parametrize("counts", [(3, 3), (3, 5), (10, 4)])
def test_interval_of_a_ratio_is_welchs(counts):
    rng = np.random.default_rng(sum(counts))
    a, b = (tuple(np.exp(0.3 * rng.standard_normal(n) + i)) for i, n in enumerate(counts))
    found = ratio(Spread(a), Spread(b))
    oracle = stats.ttest_ind(np.log(a), np.log(b), equal_var=False).confidence_interval(0.95)
    assert np.log([found.low, found.high]) == pytest.approx([oracle.low, oracle.high])
    assert found.is_clear == (oracle.low > 0 or oracle.high < 0)


def test_interval_within_runs_is_students():
    values = (1.1, 1.4, 0.9, 1.2)
    found, oracle = interval(Spread(values)), stats.ttest_1samp(np.log(values), 0).confidence_interval(0.95)
    assert np.log([found.low, found.high]) == pytest.approx([oracle.low, oracle.high])


def test_two_seeds_make_no_interval():
    """Two numbers have a difference, but nothing says how far another pair would be from it."""
    assert ratio(Spread((5.0, 5.1)), Spread((1.0, 1.1, 0.9))) == Ratio(pytest.approx(5.05 / 0.9967, rel=1e-2), None, None)
    assert interval(Spread((2.0, 2.1))).low is None
    assert ratio(Spread((5.0, 5.1, 4.9)), Spread((1.0, 1.1, 0.9))).is_clear


def test_one_seed_claims_nothing():
    found = ratio(Spread((5.0,)), Spread((1.0, 1.1, 0.9)))
    assert found.low is None
    assert not found.is_clear
    assert times(found) == "5.0×"
    assert interval(Spread((2.0,))).low is None


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (0, "0"),
        (1, "1.00"),
        (0.00123456, "0.00123"),
        (12345.6, "12,300"),
        (8.51e-6, "8.51×10⁻⁶"),
        (99.96, "100"),
        (-2.5, "-2.50"),
    ],
)
def test_numbers_in_words(x, text):
    assert number(x) == text


def test_ranges_and_lists_in_words():
    assert measured(Spread((1.0, 4.0)), "ms") == "2.00 ms (1.00–4.00)"
    assert measured(Spread((2.0, 2.0)), "ms") == "2.00 ms"
    assert times(Ratio(2.13, 1.62, 2.84)) == "2.1× [1.6, 2.8]"
    assert [listing(["a", "b", "c"][:n], "or") for n in range(4)] == ["", "a", "a or b", "a, b or c"]
    assert (count(1, "run"), count(2000, "run")) == ("1 run", "2,000 runs")


@pytest.mark.parametrize("colour", [look.colour for look in KNOWN.values()] + [colour for colour, _ in SPARE])
@pytest.mark.parametrize("ground", ["#ffffff", "#15181d"])
def test_colours_stand_out_on_light_and_dark(colour, ground):
    lower, upper = sorted(map(_luminance, (colour, ground)))
    assert (upper + 0.05) / (lower + 0.05) >= 3


def test_models_never_share_colour_or_symbol():
    found = looks([*KNOWN, "mine", "yours"]).values()
    assert len({look.colour for look in found}) == len({look.symbol for look in found}) == len(KNOWN) + 2


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
