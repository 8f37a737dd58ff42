"""The suite of faults: a round of it, its negative control, the soak in small, and the page made from rows."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.reliability import rows
from benchmarks.reliability.soak import Course, ragged
from benchmarks.reliability.write_page import PAGE, page

ROOT = Path(__file__).parents[2]
HARM = """
from benchmarks.reliability import faults

def harm(shop):
    if shop.run(lambda: 1 / 0) not in (0, 1):
        raise RuntimeError("a traceback")

faults.FAULTS["harm"] = (harm, 1)
print(json.dumps(list(faults.run(2, 0, ("checkpoint writing killed", "harm")))))
"""


def rows_of(code: str) -> list[dict]:
    """The rows that a program prints; faults fork, which a process whose threads have computed must not."""
    command = [sys.executable, "-c", "import json\n" + code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=2400, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_all_faults():
    """Twice as often as their shares say; `make test-faults` tries more than 200 rounds."""
    code = "from benchmarks.reliability import faults\nprint(json.dumps(list(faults.run(72, 1))))"
    assert not [row for row in rows_of(code) if row["failures"]]


def test_a_fault_that_does_harm_is_seen():
    sound, row = rows_of(HARM)
    assert row["failures"] == ["a traceback"]
    assert not sound["failures"]


def test_ragged_batches_in_small():
    row = ragged(1001)
    assert row["wrong"] == 0
    assert row["count"] == 1001


def test_slopes_see_a_leak_and_a_slowdown():
    times = [float(t) for t in range(100)]
    steady = Course(times, times, [100.0] * 100, times).slopes()
    assert steady == {"mb_per_hour": 0.0, "grown_mb": 0.0, "drift_per_cent": 0.0, "drift_clock_per_cent": 0.0}
    slowing = [100 * t - 0.4 * t**2 for t in times]
    leaking = Course(times, slowing, [100 + t for t in times], slowing).slopes()
    assert leaking["mb_per_hour"] == pytest.approx(3600)
    assert leaking["drift_per_cent"] == 0
    assert leaking["drift_clock_per_cent"] < -10


def test_the_page_is_made_from_the_rows():
    assert PAGE.read_text(encoding="utf-8") == page(rows.read())
    assert all(json.dumps(row) for row in rows.read())
