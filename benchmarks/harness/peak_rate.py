"""The most multiply-adds that the machine's cores can do: on numbers that never leave their registers."""

import ctypes
import shutil
import subprocess
import tempfile
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_suffix(".c")
FLAGS = ("-O3", "-march=native", "-fopenmp", "-fPIC", "-shared")
SUMS = 12  # independent ones, enough to keep two units busy that answer after four or five cycles
STEPS, LANES = 4_000_000, 64 // 4  # in the widest vectors; on narrower machines the compiler splits them


def peak_rate(threads: int, repetitions: int = 15) -> float:
    """FLOPs per second of all threads together, the best of the repetitions."""
    run, out = _peak(), (ctypes.c_float * threads)()
    fastest = float("inf")
    for _ in range(repetitions):
        begin = time.perf_counter()
        run(0.999, 0.001, out, STEPS, threads)
        fastest = min(fastest, time.perf_counter() - begin)
    return 2 * LANES * SUMS * STEPS * threads / fastest


@lru_cache(maxsize=1)
def _peak() -> Any:
    """The function of peak_rate.c, built by the system's compiler."""
    compiler = next((path for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None)
    if compiler is None:
        raise RuntimeError(
            "no C compiler (cc, gcc or clang) is on the PATH, so the peak rate cannot be measured; install one"
        )
    with tempfile.TemporaryDirectory() as scratch:
        library = Path(scratch, "peak_rate.so")
        sizes = f"-DSUMS={SUMS}", f"-DLANES={LANES}"
        subprocess.run([compiler, *FLAGS, *sizes, str(SOURCE), "-o", str(library)], check=True)
        function = ctypes.CDLL(str(library)).peak
    function.argtypes = [ctypes.c_float, ctypes.c_float, ctypes.POINTER(ctypes.c_float), ctypes.c_long, ctypes.c_long]
    function.restype = None
    return function
