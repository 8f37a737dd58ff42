"""Build the C in csrc/ with the system's compiler, keep the libraries in a cache and load them.

A build is some of the sources and a generated.h. Nothing here raises while there is another way to run: where building is
impossible, `available` is false, `reason` says why, and one warning says so, too.
"""

import ctypes
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from anygatr.execution import cache

SOURCES = Path(__file__).parent / "csrc"
FLAGS = (
    "-O3",
    "-march=native",
    "-mprefer-vector-width=512",
    "-ffast-math",
    "-fno-finite-math-only",
    "-fopenmp",
    "-fPIC",
    "-fvisibility=hidden",
    "-std=gnu11",
)
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1")
SANITIZE_VARIABLE = "ANYGATR_SANITIZE"
"""The environment variable that switches sanitisers on; Python must then run with libasan preloaded, see `make sanitize`."""
TIMEOUT = 1200.0 if os.environ.get(SANITIZE_VARIABLE) else 120.0  # seconds that a compiler may take

PATIENCE = 2.0  # seconds of compiling after which a line says what is going on
FRESH = 10.0  # seconds within which a directory may not have been locked yet

FAILURES = (OSError, subprocess.SubprocessError, RuntimeError)  # the last where the user has no home directory

_LATE: list[str] = []  # what failed after the first build had worked


class BuildError(RuntimeError):
    """C cannot be built or loaded; the same operations run on torch."""


def available() -> bool:
    """Whether C can be built and loaded here."""
    return not reason()


def reason() -> str:
    """Why C cannot be built and loaded here; empty where it can."""
    return _LATE[0] if _LATE else _first_failure()


@lru_cache(maxsize=1024)
def library(sources: tuple[str, ...], generated: str) -> ctypes.CDLL:
    """The loaded library of some of the sources, or of other files by their full path, with this generated.h."""
    if not available():
        raise BuildError(reason())
    try:
        return _load(sources, generated)
    except FAILURES as error:
        _LATE.append(_explain(error))
        _warn(_LATE[0])
        raise BuildError(_LATE[0]) from error


@lru_cache(maxsize=1)
def _first_failure() -> str:
    """Build and load something small."""
    if _compiler() is None:
        failure = "there is no C compiler (cc, gcc or clang) on the PATH"
    else:
        try:
            _load(("probe.c",), "")
            return ""
        except FAILURES as error:
            failure = _explain(error)
    _warn(failure)
    return failure


def _warn(failure: str) -> None:
    text = f"no C kernels, torch operations are used instead and are slower: {failure}"
    warnings.warn(text, RuntimeWarning, stacklevel=4)


def _explain(error: Exception) -> str:
    if isinstance(error, subprocess.TimeoutExpired):
        return f"the C compiler {_compiler()} did not finish within {TIMEOUT:.0f} s"
    if isinstance(error, subprocess.CalledProcessError):
        said = (error.stderr or b"").decode(errors="replace").strip()[-400:]
        return f"the C compiler {_compiler()} failed with status {error.returncode}: {said}"
    return f"{error}; set XDG_CACHE_HOME to a directory that can be written and executed from"


def _load(sources: tuple[str, ...], generated: str) -> ctypes.CDLL:
    """A library from the cache where an intact one is there, else built."""
    flags = (*FLAGS, *(SANITIZE if os.environ.get(SANITIZE_VARIABLE) else ()))
    texts = (_all_sources(), *((SOURCES / name).read_text() for name in sources))
    parts = (*sources, generated, *flags, *_surroundings(), *texts)
    path = cache.directory() / f"{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:24]}.so"
    if not _intact(path):
        _build(path, sources, generated, flags)
    return ctypes.CDLL(str(path))


def _build(path: Path, sources: tuple[str, ...], generated: str, flags: tuple[str, ...]) -> None:
    """Compile in a directory of its own; the library appears whole, and its digest after it."""
    compiler = _compiler()
    assert compiler is not None
    with _scratch(path.parent) as scratch:
        Path(scratch, "generated.h").write_text(generated)
        files = [str(SOURCES / name) for name in sources]
        objects = [Path(name).with_suffix(".o").name for name in sources]
        made, digest = Path(scratch, "made.so"), Path(scratch, "made.sha256")
        sanitizers = [flag for flag in flags if flag.startswith("-fsanitize")]
        _run([compiler, *flags, "-I", scratch, "-I", str(SOURCES), "-c", *files], scratch)
        _run([compiler, "-shared", *sanitizers, *objects, *_openmp(), "-lm", "-o", str(made)], scratch)
        digest.write_text(_digest(made))
        for file, target in ((made, path), (digest, path.with_suffix(".sha256"))):
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
            os.replace(file, target)


@contextmanager
def _scratch(parent: Path) -> Iterator[str]:
    """A directory to build in, locked as long as its process lives; those of processes that were killed are removed."""
    for old in parent.glob("build-*"):
        with suppress(OSError):
            if time.time() - old.stat().st_mtime > FRESH:
                _remove_unless_locked(old)
    directory = tempfile.TemporaryDirectory(dir=parent, prefix="build-", ignore_cleanup_errors=True)
    with directory as scratch, Path(scratch, "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield scratch


def _remove_unless_locked(directory: Path) -> None:
    """Remove a directory whose process is gone; one that was killed before it could lock it has no lock."""
    try:
        # "r+" makes no file: a directory that is being removed by its own process has to stay empty
        with (directory / "lock").open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory)
    except FileNotFoundError:
        shutil.rmtree(directory, ignore_errors=True)


def _run(command: list[str], directory: str | None = None) -> bytes:
    """What a compiler says; what is preloaded into Python, a sanitiser perhaps, is not for it."""
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    options: dict[str, Any] = {"cwd": directory, "env": environment, "stdin": subprocess.DEVNULL}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options) as process:
        try:
            try:
                out, error = process.communicate(timeout=min(PATIENCE, TIMEOUT))
            except subprocess.TimeoutExpired:
                _say_once(f"anygatr: building C kernels, which are kept in {cache.directory()}")
                out, error = process.communicate(timeout=max(TIMEOUT - PATIENCE, 0))
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, out, error)
    return out


@lru_cache(maxsize=1)
def _say_once(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _intact(path: Path) -> bool:
    """Whether a library is there and is what was built: loading a truncated one would end the process."""
    try:
        return path.with_suffix(".sha256").read_text() == _digest(path)
    except (FileNotFoundError, UnicodeDecodeError):
        return False


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@lru_cache(maxsize=1)
def _compiler() -> str | None:
    return next((path for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None)


@lru_cache(maxsize=1)
def _surroundings() -> tuple[str, ...]:
    """What a library depends on besides its sources: compiler, processor, OpenMP. A cache may be shared by machines."""
    compiler = _compiler()
    assert compiler is not None
    version = _run([compiler, "--version"]).decode(errors="replace")
    return compiler, version, _processor(), *_openmp()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() + platform.machine()
    return "".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))


@lru_cache(maxsize=1)
def _all_sources() -> str:
    return "".join(path.name + path.read_text() for path in sorted(SOURCES.iterdir()) if path.suffix in (".c", ".h"))


def _openmp() -> list[str]:
    """The OpenMP runtime: torch's own where it brings one, so that both share one set of threads."""
    own = sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*"))
    return [str(own[0])] if own else ["-fopenmp"]
