"""Every reader survives damaged files: a second's worth of cases each here, a million in the slow tier."""

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anygatr.lab.system.memory import limited
from benchmarks.reliability import fuzz as fuzzing
from benchmarks.reliability import targets
from benchmarks.reliability.fuzz import attempt, divided, fuzz, in_a_process
from benchmarks.reliability.mutations import exchanged, mutate
from benchmarks.reliability.soak import resident_mb
from benchmarks.reliability.targets import TARGETS, Target


@pytest.mark.parametrize("name", TARGETS)
def test_a_few_cases(name):
    row = fuzz(name, cases=100, start=0, seconds=1.0)
    assert not row["failures"]
    assert row["cases"] == row["refused"] + row["accepted"]
    assert row["cases"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_a_million_cases_in_all(name):
    row = in_a_process(name, cases=divided(1_000_000, list(TARGETS))[name], start=1)
    assert not row["failures"]


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_cases_of_hypothesis(name, tmp_path):
    """The same targets, with every draw made by hypothesis, which shrinks what fails."""
    draw, check = TARGETS[name].prepare(tmp_path)

    @settings(max_examples=300, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.randoms(use_true_random=False))
    def holds(random):
        assert attempt(check, draw(random))[1] is None

    holds()


def test_every_target_gets_a_fair_share():
    shares = divided(1_000_000, list(TARGETS))
    assert sum(shares.values()) >= 1_000_000
    assert min(cases for name, cases in shares.items() if name != "commands") >= 10_000  # predictions take 30 ms each


def test_failures_are_seen(monkeypatch):
    """The negative control: a reader that stumbles, one that hangs, one that takes memory, and what they are counted as."""
    monkeypatch.setattr(fuzzing, "SLOW", 3.0)
    hoard = []

    def hang(path):
        while True:
            pass

    def stumble(path):
        if len(path.read_bytes()) % 2:
            raise KeyError("nothing expected this")

    def take(path):
        hoard.append(bytearray(1_200_000_000 if not hoard else 0))
        hoard[0][::4096] = b"x" * len(hoard[0][::4096])

    for read, cases, expected in ((stumble, 60, "KeyError"), (hang, 1, "HangError"), (take, 60, "memory")):
        broken: Target = targets.bytes_target("broken", "broken", targets.write_npz, read)
        monkeypatch.setitem(TARGETS, "broken", broken)
        row = fuzz("broken", cases=cases, start=0)
        assert any(expected in name for name in row["failures"]), row


def test_the_same_seed_gives_the_same_cases(monkeypatch):
    seen: list[list[bytes]] = []

    def note(path):
        seen[-1].append(path.read_bytes())

    monkeypatch.setitem(TARGETS, "noted", targets.bytes_target("noted", "", targets.write_surfaces, note))
    for start in (3, 3, 4):
        seen.append([])
        fuzz("noted", cases=20, start=start)
    assert seen[0] == seen[1] != seen[2]


@pytest.mark.parametrize("kind", range(9))
def test_mutations_change_bytes_and_only_a_few(kind):
    raw = bytes(range(200))
    changed = mutate(raw, [(kind, 50, 77)])
    assert changed != raw
    assert changed[:50] == raw[:50]


def test_exchanged_nodes_leave_the_record_alone():
    record = {"a": [1, {"b": 2}]}
    found = {str(exchanged(record, [(i, "new")])) for i in range(4)}
    assert found == {"{'a': 'new'}", "{'a': ['new', {'b': 2}]}", "{'a': [1, 'new']}", "{'a': [1, {'b': 'new'}]}"}
    assert exchanged(record, [(0, "remove")]) == {}
    assert record == {"a": [1, {"b": 2}]}


def test_memory_that_the_hdf5_library_frees_goes_back_to_the_system(tmp_path):
    """Of two files that the bound stops, the second does not come on top of the first."""
    draw, check = TARGETS["hdf5"].prepare(tmp_path)
    with limited(fuzzing.MEMORY):
        verdicts = [attempt(check, draw(Random(f"hdf5 0 {number}"))) for number in (1,)]
        before = resident_mb()
        verdicts += [attempt(check, draw(Random(f"hdf5 0 {number}"))) for number in (13223, 14964)]
    assert [failure for _, failure in verdicts] == [None] * 3
    assert resident_mb() - before < 150
