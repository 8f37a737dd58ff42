"""The C kernels on odd shapes under the address and undefined-behaviour sanitisers, geometry by geometry.

python -m benchmarks.reliability.sanitize
python -m benchmarks.reliability.sanitize --geometries C3+ C3- --keep

Every geometry runs in a process of its own, the sanitisers preloaded. Ends with status 1 if anything was reported.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

from anygatr.execution.c.build import SANITIZE_VARIABLE
from benchmarks.harness.files import ROOT
from benchmarks.reliability import rows
from benchmarks.reliability.odd_shapes import CHANNELS, GEOMETRIES, LAYOUTS, TOKENS


def main() -> None:
    """Run the geometries asked for and print, and perhaps keep, a row for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--geometries", nargs="+", choices=GEOMETRIES, default=list(GEOMETRIES), metavar="NAME")
    parser.add_argument("--keep", action="store_true", help="append rows to results/reliability/rows.jsonl")
    arguments = parser.parse_args()
    found = []
    for row in sanitized(arguments.geometries):
        found.append(row)
        print(f"{row['geometry']:<5}{row['networks']:>4} networks, reports: {row['report'] or 'none'}", flush=True)
        if arguments.keep:
            rows.append(row)
    reports = sum(bool(row["report"]) for row in found)
    print(
        f"{len(found)} of {len(GEOMETRIES)} geometries, {sum(row['networks'] for row in found)} networks, {reports} reports"
    )
    sys.exit(reports > 0)


def sanitized(names: Iterable[str], module: str = "benchmarks.reliability.odd_shapes") -> Iterator[dict[str, Any]]:
    """A row for each geometry, as soon as it is done: networks that ran, and what was reported first."""
    environment = os.environ | {SANITIZE_VARIABLE: "1", "ASAN_OPTIONS": "detect_leaks=0", "LD_PRELOAD": _preloaded()}
    shapes = {"channels": CHANNELS, "tokens": TOKENS, "layouts": LAYOUTS}
    for name in names:
        began = time.perf_counter()
        command = [sys.executable, "-m", module, name]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        networks = int(done.stdout.split()[-1]) if done.returncode == 0 else 0
        report = "" if done.returncode == 0 else _first_report(done.stderr) or f"status {done.returncode}"
        about = {"kind": "sanitize", "geometry": name, **shapes, "networks": networks, "report": report}
        yield about | {"seconds": round(time.perf_counter() - began, 1)}


def _preloaded() -> str:
    """The sanitisers' libraries, which have to be there before Python is."""
    found = (
        subprocess.run(["cc", f"-print-file-name={name}.so"], capture_output=True, text=True)
        for name in ("libasan", "libubsan")
    )
    return " ".join(done.stdout.strip() for done in found)


def _first_report(said: str) -> str:
    marks = ("runtime error:", "ERROR: AddressSanitizer", "Error")
    return next((line.strip()[:200] for mark in marks for line in said.splitlines() if mark in line), "")


if __name__ == "__main__":
    main()
