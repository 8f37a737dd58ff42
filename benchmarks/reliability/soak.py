"""Run for long: training with validation and checkpoints, and ragged batches of random shapes on one network.

python -m benchmarks.reliability.soak --minutes 60 --batches 50000

Reports the slope of the resident memory by a straight line through the second half, and the drift of the throughput between
the first and the last third of that half: per second of processor time, which does not depend on what else the machine does,
and by the clock.
"""

import argparse
import contextlib
import os
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from anygatr import GATr, Width, geometry
from anygatr.lab.config.recipe import recipe
from anygatr.lab.data.files.kind import UserFiles
from anygatr.lab.data.spec import DataSpec
from anygatr.lab.training.run import TrainingRun
from anygatr.lab.training.train import fit
from benchmarks.reliability import rows

TOKENS, SAMPLES = 40, 12
"""Of a ragged batch, at most."""


class EnoughError(Exception):
    """The time is over."""


def resident_mb() -> float:
    """The memory that this process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@dataclass
class Course:
    """What was measured now and then: seconds by the clock and of the processor, megabytes, and how much was done."""

    clock: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    done: list[float] = field(default_factory=list)

    def measure(self, done: int) -> None:
        """Add a measurement."""
        self.clock.append(time.perf_counter())
        self.processor.append(time.process_time())
        self.memory.append(resident_mb())
        self.done.append(float(done))

    def slopes(self) -> dict[str, float]:
        """Megabytes per hour, and the change of the rates in per cent, over the second half of the measurements."""
        half = len(self.clock) // 2
        t, m = np.array(self.clock[half:]), np.array(self.memory[half:])
        slope = 3600 * float(np.polyfit(t - t[0], m, 1)[0])
        found = {"mb_per_hour": round(slope, 1), "grown_mb": round(float(m[-1] - m[0]), 1)}
        for name, seconds in (("drift_per_cent", self.processor), ("drift_clock_per_cent", self.clock)):
            rates = np.diff(self.done[half:]) / np.diff(seconds[half:])
            third = max(1, len(rates) // 3)
            drift = float(np.median(rates[-third:])) / float(np.median(rates[:third])) - 1
            found[name] = round(100 * drift, 1)
        return found


def train(minutes: float) -> dict[str, Any]:
    """Train iP on small systems, validating and saving a state every hundred steps."""
    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng(0)
        position, velocity = rng.normal(size=(2, 400, 5, 3))
        np.savez(Path(folder) / "data.npz", position=position, velocity=velocity, final=position + velocity)
        inputs = {"position": "point", "velocity": "vector"}
        spec = DataSpec(UserFiles(), str(Path(folder) / "data.npz"), inputs, {"final": "point"})
        changes = {"steps": 10**8, "blocks": 1, "mv": 4, "s": 8, "heads": 2, "batch": 16, "validate_every": 100}
        data = spec.load()
        run = TrainingRun.start(Path(folder) / "run", spec, data, recipe("laptop", "iP", **changes), "soak")
        course, began = Course(), time.perf_counter()

        def watch(step: int, loss: float) -> None:
            if step % 100 == 0:  # a validation and a state between any two measurements
                course.measure(step)
            if time.perf_counter() - began > 60 * minutes:
                raise EnoughError

        with contextlib.suppress(EnoughError):
            fit(run, data, watch)
        steps = int(course.done[-1]) if course.done else 0
        about = {"kind": "soak", "what": "training with validation and a state every 100 steps", "minutes": minutes}
        return about | {"count": steps, "unit": "steps"} | course.slopes()


def ragged(batches: int) -> dict[str, Any]:
    """Forward and backward passes of packed batches, no two of the same shape; the result of one is checked by itself."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    geo = geometry("E", 3)
    net = GATr(geo, Width(1, 1), Width(2, 4), Width(1, 1), blocks=1, heads=2)
    course, wrong = Course(), 0
    for number in range(batches):
        counts = torch.randint(1, TOKENS, (int(torch.randint(1, SAMPLES, (), generator=generator)),), generator=generator)
        offsets = torch.cat([torch.zeros(1, dtype=torch.long), counts.cumsum(0)])
        x = torch.randn(int(offsets[-1]), 1, geo.algebra.dim, generator=generator)
        s = torch.randn(len(x), 1, generator=generator)
        y, t = net(x, s, offsets=offsets)
        (y.square().mean() + t.square().mean()).backward()
        net.zero_grad()
        if number % 500 == 0:
            alone, _ = net(x[: int(counts[0])], s[: int(counts[0])])
            wrong += not torch.allclose(alone, y[: int(counts[0])], atol=1e-4)
            wrong += not bool(y.isfinite().all())
            course.measure(number)
    about = {"kind": "soak", "what": "ragged batches of random shapes, forward and backward", "count": batches}
    minutes = (course.clock[-1] - course.clock[0]) / 60
    return about | {"unit": "batches", "wrong": wrong, "minutes": round(minutes, 1)} | course.slopes()


def main() -> None:
    """Run what is asked for and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0, help="of training; 0 leaves it out")
    parser.add_argument("--batches", type=int, default=50_000, help="ragged batches; 0 leaves them out")
    parser.add_argument("--keep", action="store_true", help="append rows to results/reliability/rows.jsonl")
    arguments = parser.parse_args()
    wrong = 0
    for trial, amount in ((train, arguments.minutes), (ragged, arguments.batches)):
        if not amount:
            continue
        row = trial(amount)
        wrong += row.get("wrong", 0)
        print(row, flush=True)
        if arguments.keep:
            rows.append(row)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
