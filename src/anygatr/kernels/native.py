"""C functions generated from tables, built by the system's compiler once per machine and called on the CPU.

A generated function is a loop over tokens with everything else unrolled: it serves every batch size and every network of
a geometry. Where there is no compiler, and on other devices, the same plans run on torch operations.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch._C._functorch import unwrap_if_dead

FLAGS = (
    "-O3",
    "-march=native",
    "-mprefer-vector-width=512",
    "-ffast-math",
    "-fno-finite-math-only",
    "-fopenmp",
    "-fPIC",
    "-std=c11",
)
REALS = {torch.float32: "float", torch.float64: "double"}
LANES = (16, 8, 4)  # how many numbers may be handled together: at most a vector register of the widest machines
GRAIN = 4096  # numbers per blade below which a second thread does not pay


def applies(*tensors: Tensor) -> bool:
    """Whether C functions can work on these tensors: plain CPU tensors of one real type, and a compiler at hand."""
    real = tensors[0].dtype
    if torch.compiler.is_compiling() or real not in REALS or compiler() is None:
        return False
    return all(type(t) in PLAIN and t.dtype is real and t.is_cpu for t in tensors)


PLAIN = (Tensor, torch.nn.Parameter)


def ready(tensors: Iterable[Tensor | None]) -> list[Tensor | None]:
    """The tensors as C can take them: contiguous, out of what a transformation that is over wrapped them in."""
    return [None if t is None else unwrap_if_dead(t).contiguous() for t in tensors]


def addresses(tensors: Iterable[Tensor | None]) -> list[int | None]:
    """Where tensors that are ready begin."""
    return [None if t is None else t.data_ptr() for t in tensors]


def threads(numbers: int) -> int:
    """How many threads a loop over so many numbers deserves."""
    return max(1, min(torch.get_num_threads(), numbers // GRAIN))


@lru_cache(maxsize=1)
def compiler() -> str | None:
    """The system's C compiler, if it has one that works."""
    found = next((path for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None)
    if found is None:
        return None
    try:
        _build("void probe(void) {}", found)
    except (OSError, subprocess.CalledProcessError) as error:
        warnings.warn(f"the C compiler {found} does not work, so kernels run on torch operations: {error}", stacklevel=2)
        return None
    return found


@lru_cache(maxsize=512)
def function(source: str, name: str, pointers: int, integers: int) -> Callable[..., None]:
    """The C function `name` of a source, taking so many pointers, then integers."""
    path = compiler()
    assert path is not None, "ask applies() first"
    called = getattr(ctypes.CDLL(str(_build(source, path))), name)
    called.argtypes = [ctypes.c_void_p] * pointers + [ctypes.c_long] * integers
    called.restype = None
    return cast("Callable[..., None]", called)


@lru_cache(maxsize=2048)
def address(source: str, name: str) -> int:
    """Where the C function `name` of a source is, for other functions to call."""
    return cast("int", ctypes.cast(cast("Any", function(source, name, 0, 0)), ctypes.c_void_p).value)


def _build(source: str, path: str) -> Path:
    """The shared library of a source, from the cache if it was built before for this processor."""
    key = hashlib.sha256("\n".join((source, path, *FLAGS, _processor())).encode()).hexdigest()[:24]
    library = _cache() / f"{key}.so"
    if not library.exists():
        with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
            text, built, finished = (Path(scratch) / name for name in ("kernel.c", "kernel.o", "kernel.so"))
            text.write_text(source)
            _run(path, *FLAGS, "-c", str(text), "-o", str(built))
            _run(path, "-shared", str(built), *_openmp(), "-o", str(finished))
            os.replace(finished, library)
    return library


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def _openmp() -> list[str]:
    """The OpenMP runtime: torch's own where it brings one, so that both share one set of threads."""
    own = sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*"))
    return [str(own[0])] if own else ["-fopenmp"]


def _cache() -> Path:
    """Where libraries stay between runs: the user's cache directory, or a temporary one where that cannot be written."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    try:
        (base / "anygatr").mkdir(parents=True, exist_ok=True)
        if os.access(base / "anygatr", os.W_OK):
            return base / "anygatr"
    except OSError:
        pass
    return _temporary()


@lru_cache(maxsize=1)
def _temporary() -> Path:
    return Path(tempfile.mkdtemp(prefix="anygatr-"))


@lru_cache(maxsize=1)
def _processor() -> str:
    """What -march=native depends on: a cache may be shared by different machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() + platform.machine()
    return "".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
