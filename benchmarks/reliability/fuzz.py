"""Fuzz every reader, the checkpoint loader, the parsers of configurations and the command line.

python -m benchmarks.reliability.fuzz --cases 1000000 --seed 0

Cases are divided among the targets. Each target runs in a process of its own, so that a crash is a failure and not the end.
The same seed gives the same cases: number 17 of a target depends on nothing but the target, the seed and 17. Ends with
status 1 if anything failed. Files are kept in memory where the system has /dev/shm.
"""

import argparse
import json
import math
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from anygatr.lab.system.memory import limited
from benchmarks.harness.files import ROOT
from benchmarks.reliability import rows
from benchmarks.reliability.targets import REFUSALS, TARGETS, is_sound

MEMORY = 0.05
"""Gigabytes that a reader may take."""
GROWTH = 600
"""Megabytes that the process may grow: the limit, and what libraries keep."""
SLOW = 20.0
"""Seconds of processor time after which a case counts as a hang."""
IN_MEMORY = Path("/dev/shm")  # a private directory is made in it


class HangError(Exception):
    """A case took too long."""


def fuzz(name: str, cases: int, start: int, seconds: float | None = None) -> dict[str, Any]:
    """Try a number of cases of a target, for so many seconds at most; what was refused, accepted, and what failed."""
    counts = {"cases": 0, "refused": 0, "accepted": 0}
    failures: dict[str, str] = {}
    place = IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place) as folder, limited(MEMORY), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        draw, check = TARGETS[name].prepare(Path(folder))
        before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
        for number in range(cases):
            if seconds is not None and number and time.perf_counter() - began > seconds:
                break
            verdict, failure = attempt(check, draw(Random(f"{name} {start} {number}")))
            counts["cases"] += 1
            counts[verdict] += 1
            if failure:
                failures.setdefault(failure[0], f"case {number}: {failure[1]}")
    growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    if growth > GROWTH:
        failures["memory"] = f"grew by {growth:.0f} MB"
    row = {"kind": "fuzz", "target": name, "what": TARGETS[name].what, "seed": start, **counts, "failures": failures}
    return row | {"seconds": round(time.perf_counter() - began, 1), "growth_mb": round(growth)}


def attempt(check: Callable[[Any], None], case: Any) -> tuple[str, tuple[str, str] | None]:
    """Whether the case was accepted or refused, and what failed: its kind and the case."""
    previous = signal.signal(signal.SIGPROF, _hangs)
    signal.setitimer(signal.ITIMER_PROF, SLOW)
    try:
        check(case)
    except REFUSALS as refusal:
        return "refused", None if is_sound(str(refusal)) else ("message", repr(str(refusal))[:200])
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return "refused", (f"{type(error).__name__} in {Path(place.filename).name}:{place.lineno}", repr(case)[:500])
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)
    return "accepted", None


def _hangs(number: int, frame: Any) -> None:
    raise HangError


def in_a_process(name: str, cases: int, start: int, seconds: float | None = None) -> dict[str, Any]:
    """The same, in a process whose end is noticed."""
    arguments = [name, str(cases), str(start), *([] if seconds is None else [str(seconds)])]
    command = [sys.executable, "-m", "benchmarks.reliability.fuzz", "--one", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}  # this checkout, whatever is installed
    process = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if process.returncode == 0:
        return json.loads(process.stdout.splitlines()[-1])
    crash = {f"exit status {process.returncode}": process.stderr[-500:]}
    about = {"kind": "fuzz", "target": name, "what": TARGETS[name].what, "seed": start}
    return about | {"cases": 0, "refused": 0, "accepted": 0, "failures": crash, "seconds": 0.0, "growth_mb": 0}


def divided(cases: int, names: list[str]) -> dict[str, int]:
    """How many of so many cases each target gets, by its share."""
    whole = sum(TARGETS[name].share for name in names)
    return {name: math.ceil(cases * TARGETS[name].share / whole) for name in names}


def main() -> None:
    """Fuzz all targets, or some, and append a row for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1_000_000, help="in all, divided among the targets")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, help="of each target, at most")
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--keep", action="store_true", help="append rows to results/reliability/rows.jsonl")
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        name, cases, start, *seconds = arguments.one
        print(json.dumps(fuzz(name, int(cases), int(start), float(seconds[0]) if seconds else None)))
        return
    failed, total = 0, 0
    for name, cases in divided(arguments.cases, arguments.targets).items():
        row = in_a_process(name, cases, arguments.seed, arguments.seconds)
        failed, total = failed + len(row["failures"]), total + row["cases"]
        about = f"{row['cases']:>8,} cases, {row['refused']:,} refused, {row['seconds']:.0f} s, grew {row['growth_mb']} MB"
        print(f"{name:<14}{about}, failures: {row['failures'] or 'none'}", flush=True)
        if arguments.keep:
            rows.append(row)
    print(f"{total:,} cases with seed {arguments.seed}, {failed} kinds of failure")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
