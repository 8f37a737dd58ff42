"""Processor time and memory of exact attention, anchors and pooled tokens; rows in results/scale-large.jsonl.

python -m benchmarks.scale.large

One cloud of random points, iP with 4 blocks and 8 + 32 channels, float32, one thread, 256 anchors and 16 neighbours, 512
pooled tokens; each measurement is a process of its own, its first call, choice of the keys included. What has a row is not
measured again.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import torch

from anygatr import Width, model
from benchmarks.harness.peak_memory import MIB, growth
from benchmarks.harness.training import append, has, made_by

ROWS = Path("results/scale-large.jsonl")
WARM = 1_000  # tokens of the call that builds the kernels
CASES = [
    ("exact", "step", (1_000, 4_000, 16_000)),
    ("anchors", "step", (1_000, 4_000, 16_000, 64_000, 200_000)),
    ("anchors", "prediction", (200_000, 1_000_000)),
    ("pooled", "step", (1_000, 4_000, 16_000, 64_000, 200_000)),
    ("pooled", "prediction", (200_000, 1_000_000)),
]
"""Attention, what is computed, tokens."""


def main() -> None:
    """Make the rows that are not there yet; with arguments, measure one and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", nargs=3, metavar=("ATTENTION", "WHAT", "TOKENS"))
    asked = parser.parse_args()
    if asked.one:
        attention, what, tokens = asked.one
        print(json.dumps(measured(attention, what, int(tokens))))
        return
    for attention, what, counts in CASES:
        for tokens in counts:
            key = {"attention": attention, "what": what, "tokens": tokens}
            if not has(ROWS, **key):
                command = [sys.executable, "-m", "benchmarks.scale.large", "--one", attention, what, str(tokens)]
                found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
                append(ROWS, key | found | {"command": "python -m benchmarks.scale.large"} | made_by())
                print(key | found, flush=True)


def measured(attention: str, what: str, tokens: int) -> dict[str, float]:
    """Processor seconds and the memory by which the process grows."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = model(
        "iP",
        inputs={"position": "point", "normal": "vector"},
        targets={"stress": "vector"},
        hidden=Width(8, 32),
        blocks=4,
        heads=4,
        large=None if attention == "exact" else attention,
    )

    def call(count: int) -> None:
        fields = {"position": torch.randn(count, 3), "normal": torch.randn(count, 3)}
        with torch.set_grad_enabled(what == "step"):
            out = net(**fields)["stress"].square().sum()
        if what == "step":
            out.backward()

    call(WARM)
    began = time.process_time()
    grown = growth(lambda: call(tokens))
    return {"cpu_seconds": round(time.process_time() - began, 3), "memory_mb": round(grown / MIB)}


if __name__ == "__main__":
    main()
