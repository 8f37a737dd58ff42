"""Sizes of checkpoints, CPU seconds to save and to load them: in a new process, which solves the maps first, and again."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from anygatr import GATr
from anygatr.checkpoint import load, save
from anygatr.nn import Width
from anygatr.spaces.presets import geometry
from benchmarks.harness.files import ROOT

SIZES = {"small": (Width(16, 64), 8, 8), "paper": (Width(32, 128), 20, 8)}


def loaded(path: str) -> float:
    start = time.process_time()
    load(path)
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--load", help="print the seconds to load this file, twice")
    options = parser.parse_args()
    if options.load:
        print(loaded(options.load), loaded(options.load))
        return
    print(f"{'size':>6} {'geometry':>8} {'parameters':>11} {'MB':>7} {'save s':>7} {'load s':>7} {'again s':>8}")
    for size in options.sizes:
        hidden, blocks, heads = SIZES[size]
        for name in ("E", "P", "iP", "C", "L"):
            net = GATr(geometry(name), Width(1, 1), hidden, Width(1, 1), blocks, heads)
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "net.safetensors"
                start = time.process_time()
                save(net, path)
                saving = time.process_time() - start
                command = [sys.executable, "-m", "benchmarks.speed.checkpoints", "--load", str(path)]
                first, again = map(
                    float, subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout.split()
                )
                numbers, size_mb = sum(p.numel() for p in net.parameters()), path.stat().st_size / 1e6
            print(f"{size:>6} {name:>8} {numbers:11,} {size_mb:7.2f} {saving:7.2f} {first:7.2f} {again:8.2f}", flush=True)


if __name__ == "__main__":
    main()
