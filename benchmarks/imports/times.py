"""Seconds of processor time that imports take besides `import torch`, in new processes, interleaved; medians.

python -m benchmarks.imports.times
"""

import statistics
import subprocess
import sys

STATEMENTS = ("pass", "import anygatr", "from anygatr import geometry, GATr", "from anygatr import model")
CODE = "import torch, time; start = time.process_time()\n{}\nprint(time.process_time() - start)"


def seconds(statement: str) -> float:
    done = subprocess.run([sys.executable, "-c", CODE.format(statement)], capture_output=True, text=True, check=True)
    return float(done.stdout)


def main(rounds: int = 7) -> None:
    found: dict[str, list[float]] = {statement: [] for statement in STATEMENTS}
    for _ in range(rounds):
        for statement, times in found.items():
            times.append(seconds(statement))
    for statement, times in found.items():
        print(f"{statement:<40} {statistics.median(times):.3f} s")


if __name__ == "__main__":
    main()
