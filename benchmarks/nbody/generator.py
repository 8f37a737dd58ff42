"""Samples per second and memory of the n-body generator. Target: 2000 sixteen-body samples per second of one core."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import resource
import tempfile
import time

from anygatr.lab.data.files.arrays import read_metadata
from anygatr.lab.data.nbody import dataset as nbody
from anygatr.lab.data.nbody.config import NBodyConfig

TARGET = 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=8192)
    size = parser.parse_args().samples
    print(f"{'set':>10} {'bodies':>6} {'samples':>8} {'per s':>8} {'rejected':>9} {'peak MB':>8}")
    for clusters, bodies in [("single", 4), ("single", 6), ("single", 16), ("multi", 16)]:
        with tempfile.TemporaryDirectory() as out:
            sizes = {"train": size, "val": 0, "eval": 0, "generalization": 0}
            start = time.process_time()
            path = nbody.generate(NBodyConfig(out=out, clusters=clusters, bodies=bodies, **sizes))["train"]
            rate = size / (time.process_time() - start)
            rejected = read_metadata(path)["rejected"]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        verdict = "" if bodies < 16 else ("  ok" if rate >= TARGET else f"  below {TARGET}")
        print(f"{clusters:>10} {bodies:6} {size:8} {rate:8.0f} {rejected / (rejected + size):9.2%} {peak:8.0f}{verdict}")


if __name__ == "__main__":
    main()
