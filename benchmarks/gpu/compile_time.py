"""Seconds of compiling before a block's first training step is done: `python -m benchmarks.gpu.compile_time`.

Every kernel that the step launches, in every specialisation, compiled in float32 for a card that is not there, with an empty
cache. Processor time of Triton and its assembler, one after the other: on a machine with nothing else to do, the wait.
"""

import os
import resource
import tempfile
from typing import Any
from unittest import mock

from benchmarks.gpu.ahead_of_time import compiled
from benchmarks.gpu.launches import Specialisation, block_step

PRESETS = ("E", "P", "iP", "C", "L")
ARCHITECTURE = 80


def seconds(specialisations: dict[Specialisation, Any], architecture: int = ARCHITECTURE) -> float:
    """Of processor time, with a cache of its own."""
    with tempfile.TemporaryDirectory() as cache, mock.patch.dict(os.environ, {"TRITON_CACHE_DIR": cache}):
        start = _processor_time()
        for (_, values), kernel in specialisations.items():
            names = {p.name for p in kernel.params}
            constants = {name: value for name, value in values if name in names}
            compiled(kernel, constants, architecture, **{name: v for name, v in values if name not in names})
        return _processor_time() - start


def _processor_time() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def main() -> None:
    """Print the table of the documentation."""
    print("| geometry | kernels | seconds |\n|---|---|---|")
    for preset in PRESETS:
        made = block_step(preset, "a", "triton").specialisations
        print(f"| {preset} | {len(made)} | {seconds(made):.0f} |", flush=True)


if __name__ == "__main__":
    main()
