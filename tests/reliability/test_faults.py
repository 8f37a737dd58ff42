"""The suite of faults: a round of it, its negative control, the soak in small, and the page made from rows."""

import json

import pytest

from benchmarks.reliability import faults, rows
from benchmarks.reliability.soak import ragged, slopes
from benchmarks.reliability.write_page import PAGE, page


@pytest.mark.slow
def test_a_round_of_some_faults():
    names = ("training killed", "file of a run cut or bit flipped")
    found = list(faults.run(3, 0, names))
    assert [row["what"] for row in found] == list(names)
    assert all(row["rounds"] >= 1 and not row["failures"] for row in found)


@pytest.mark.slow
def test_all_faults():
    assert not [row for row in faults.run(216, 1) if row["failures"]]


def test_a_fault_that_does_harm_is_seen(monkeypatch):
    def harm(shop):
        if shop.run(lambda: 1 / 0) not in (0, 1):
            raise RuntimeError("a traceback")

    monkeypatch.setitem(faults.FAULTS, "harm", (harm, 1))
    sound, row = faults.run(2, 0, ("checkpoint writing killed", "harm"))
    assert row["failures"] == ["a traceback"]
    assert not sound["failures"]


def test_ragged_batches_in_small():
    row = ragged(1001)
    assert row["wrong"] == 0
    assert row["count"] == 1001


def test_slopes_see_a_leak_and_a_slowdown():
    times = [float(t) for t in range(100)]
    steady = slopes(times, [100.0] * 100, times)
    assert steady == {"mb_per_hour": 0.0, "grown_mb": 0.0, "drift_per_cent": 0.0}
    leaking = slopes(times, [100 + t for t in times], [100 * t - 0.4 * t**2 for t in times])
    assert leaking["mb_per_hour"] == pytest.approx(3600)
    assert leaking["drift_per_cent"] < -10


def test_the_page_is_made_from_the_rows():
    assert PAGE.read_text(encoding="utf-8") == page(rows.read())
    assert all(json.dumps(row) for row in rows.read())
