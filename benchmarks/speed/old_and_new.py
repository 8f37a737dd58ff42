"""Two checkouts of this repository against each other: single training steps and inferences, in turn.

    python -m benchmarks.speed.old_and_new --old PATH [--new PATH] [--configurations a b c] [--geometries iP C]
        [--threads 1 2] [--rounds 11] [--blocks N] [--backend auto] [--no-compiler] [--out]

Each checkout has a process of its own, which imports `anygatr` from its src folder and is told when to make a call: old,
new, new, old, and so on, so that whatever else the machine does falls on both alike. Ratios are new over old, round by
round; shown are their median and quartiles. To compare what runs without C kernels, hide the compiler from both:
--no-compiler.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from itertools import product
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from benchmarks.harness.files import RESULTS, ROOT, put_json
from benchmarks.harness.machine import machine
from benchmarks.harness.timing import FEWEST, load

Row = dict[str, Any]
CALLS = ("train", "infer")
CLOCKS = ("cpu", "wall")
PAUSE = 0.01  # seconds after which the other process's OpenMP threads have gone to sleep
SAME = 1e-3  # relative difference of the losses up to which both compute the same network


class Quartiles(NamedTuple):
    """The median of a quotient over rounds, with its quartiles."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, new: list[float], old: list[float]) -> Self:
        """New / old, each round by itself."""
        return cls(*statistics.quantiles([a / b for a, b in zip(new, old, strict=True)], n=4, method="inclusive"))

    def __str__(self) -> str:
        return f"{self.median:.3f} ({self.low:.3f} to {self.high:.3f})"


class Checkout:
    """The worker process of one checkout; to be used in a `with` statement."""

    def __init__(self, path: Path, job: dict[str, Any], compiler: bool):
        if not (path / "src" / "anygatr").is_dir():
            raise ValueError(f"{path} has no src/anygatr; name the root of a checkout")
        count = str(job["threads"])
        self._environment = {
            **os.environ,
            **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), count),
            **({} if compiler else {"PATH": ""}),
            "PYTHONPATH": str(path / "src"),
        }
        self._path, self._job = path, job

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.speed.networks.worker"],
            cwd=ROOT, env=self._environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def build(self) -> dict[str, Any]:
        """Make the network; where `anygatr` was imported from, how many parameters there are, the loss of a step."""
        about = self._ask(json.dumps(self._job))
        if not Path(about["source"]).is_relative_to(self._path / "src"):
            raise RuntimeError(f"{about['source']} was imported instead of {self._path / 'src'}; is PYTHONPATH ignored?")
        return about

    def seconds(self, what: str) -> dict[str, float]:
        """Processor and wall-clock seconds of one call."""
        time.sleep(PAUSE)
        return self._ask(what)

    def _ask(self, line: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(line, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(
                f"the worker of {self._path} ended with status {self._process.wait()}; its messages are above"
            )
        return json.loads(answer)


def compare(old: Path, new: Path, job: dict[str, Any], rounds: int, compiler: bool = True) -> Iterator[Row]:
    """A row for each kind of call, with the seconds of all rounds; the backend of a job is for the new checkout alone."""
    with ExitStack() as stack:
        jobs = {"old": job | {"backend": None}, "new": job}
        pair = {
            name: stack.enter_context(Checkout(path.resolve(), jobs[name], compiler))
            for name, path in (("old", old), ("new", new))
        }
        a, b = (checkout.build() for checkout in pair.values())
        if a["parameters"] != b["parameters"]:
            raise ValueError(
                f"the networks differ: {a['parameters']} parameters in the old one, {b['parameters']} in the new one"
            )
        difference = abs(b["loss"] / a["loss"] - 1)
        for what in CALLS:
            found = {name: {clock: list[float]() for clock in CLOCKS} for name in pair}
            for number in range(rounds):
                for name in turns(number):
                    for clock, seconds in pair[name].seconds(what).items():
                        found[name][clock].append(round(seconds, 5))
            yield {"kind": "pair", "what": what, **found, "loss_difference": difference, "load": load()}


def turns(number: int) -> tuple[str, str]:
    """The order within a round: old, new in one and new, old in the next."""
    return ("new", "old") if number % 2 else ("old", "new")


def line(row: Row) -> str:
    """A row in words."""
    parts = [
        row["geometry"],
        row["configuration"],
        f"{row['size']['blocks']} blocks",
        f"{row['threads']} threads",
        row["what"],
    ]
    for clock in CLOCKS:
        new, old = row["new"][clock], row["old"][clock]
        times = " -> ".join(f"{1e3 * statistics.median(seconds):.1f}" for seconds in (old, new))
        parts.append(f"{clock} {Quartiles.of(new, old)}, {times} ms")
    note = "" if row["loss_difference"] < SAME else f"  (the losses differ by {row['loss_difference']:.1e}: other weights?)"
    return "  ".join(parts) + note


def commit(path: Path) -> str:
    """What a checkout has checked out, and whether it was changed since."""
    command = ["git", "-C", str(path), "describe", "--always", "--dirty"]
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}  # others may be at work in it
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, required=True, help="the root of a checkout")
    parser.add_argument("--new", type=Path, default=ROOT, help="the root of another; this one by default")
    parser.add_argument("--configurations", nargs="+", choices=["a", "b", "c"], default=["a", "b", "c"])
    parser.add_argument("--geometries", nargs="+", default=["iP", "C"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--blocks", type=int, help="instead of the full depth, for a quick look")
    parser.add_argument("--backend", choices=["auto", "c", "torch"], default="auto", help="of the new checkout")
    parser.add_argument("--no-compiler", dest="compiler", action="store_false", help="hide it from both: torch operations")
    parser.add_argument("--out", type=Path, nargs="?", const=RESULTS / "old-and-new.json", help="store the rows")
    arguments = parser.parse_args()
    if arguments.rounds < FEWEST:
        parser.error(f"--rounds {arguments.rounds} has no spread; use {FEWEST} or more")
    return arguments


def main() -> None:
    from benchmarks.speed.networks.contestants import CONFIGURATIONS

    asked = _arguments()
    rows: list[Row] = []
    for name, geometry, threads in product(asked.configurations, asked.geometries, asked.threads):
        size = asdict(CONFIGURATIONS[name].cut(asked.blocks))
        job = {"geometry": geometry, "size": size, "threads": threads, "backend": asked.backend}
        about = {**job, "configuration": name, "compiler": asked.compiler}
        for row in compare(asked.old, asked.new, job, asked.rounds, asked.compiler):
            rows.append({**row, **about})
            print(line(rows[-1]), flush=True)
        if asked.out is not None:
            put_json(asked.out, {"machine": machine(), "old": commit(asked.old), "new": commit(asked.new), "rows": rows})


if __name__ == "__main__":
    main()
