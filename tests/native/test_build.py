"""Building C: what breaks it gives one warning and a reason, never an error; broken libraries are built again."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from math import erfc, exp, factorial
from pathlib import Path

import numpy as np
import pytest

from anygatr.execution.c import build

REPOSITORY = Path(__file__).parents[2]
PROBE = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from anygatr.execution import cache
    from anygatr.execution.c import build
    found = build.available(), build.available(), build.reason()
    try:
        build.library(("probe.c",), "")
    except build.BuildError:
        pass
print(*found[:2], len([w for w in caught if "no C kernels" in str(w.message)]), found[2], str(cache.directory()), sep="|")
"""


def probe(cache: Path, **variables: str) -> list[str]:
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), **variables}
    out = subprocess.run([sys.executable, "-c", PROBE], env=environment, capture_output=True, text=True, check=True)
    return out.stdout.strip().rsplit("\n", 1)[-1].split("|")


def compiler(directory: Path, script: str) -> str:
    """A PATH on which cc is a script."""
    directory.mkdir(exist_ok=True)
    file = directory / "cc"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return f"{directory}:/usr/bin:/bin"


needs_compiler = pytest.mark.skipif(not build.available(), reason="there is no C compiler")


@needs_compiler
def test_a_library_is_built_once_and_kept_private(tmp_path):
    assert probe(tmp_path)[:3] == ["True", "True", "0"]
    made = tmp_path / "anygatr"
    assert made.stat().st_mode & 0o777 == 0o700
    (library,) = made.glob("*.so")
    before = library.stat().st_mtime_ns
    assert probe(tmp_path)[0] == "True"
    assert library.stat().st_mtime_ns == before
    assert {file.suffix for file in made.iterdir()} == {".so", ".sha256"}  # nothing else is left behind


@needs_compiler
@pytest.mark.parametrize("size", [0, 100])
def test_a_broken_library_is_built_again(tmp_path, size):
    probe(tmp_path)
    (library,) = (tmp_path / "anygatr").glob("*.so")
    whole = library.read_bytes()
    library.write_bytes(whole[:size])
    assert probe(tmp_path)[:3] == ["True", "True", "0"]
    assert len(library.read_bytes()) == len(whole)


def test_without_a_compiler_one_warning_says_so(tmp_path):
    assert probe(tmp_path, PATH=str(tmp_path))[:4] == [
        "False", "False", "1", "there is no C compiler (cc, gcc or clang) on the PATH",
    ]  # fmt: skip


def test_a_failing_compiler_gives_its_words(tmp_path):
    found = probe(tmp_path, PATH=compiler(tmp_path / "bin", "echo it is broken >&2; exit 3"))
    assert found[:3] == ["False", "False", "1"]
    assert "status 3: it is broken" in found[3]


def test_a_hanging_compiler_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", compiler(tmp_path / "bin", "exec sleep 60"))
    monkeypatch.setattr(build, "TIMEOUT", 0.2)
    for cached in (build._compiler, build._surroundings, build._first_failure):
        monkeypatch.setattr(build, cached.__name__, type(build._compiler)(cached.__wrapped__, 1, False, None))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert not build.available()
    assert "did not finish" in build.reason()
    assert len(caught) == 1


@needs_compiler
def test_a_slow_compiler_is_announced_once(tmp_path):
    slow = compiler(tmp_path / "bin", 'sleep 0.3; exec /usr/bin/cc "$@"')
    code = "from anygatr.execution.c import build; build.PATIENCE = 0.1; print(build.available())"
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PATH": slow}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
    assert done.stderr == f"anygatr: building C kernels, which are kept in {tmp_path / 'anygatr'}\n"


@needs_compiler
def test_builds_that_were_killed_leave_nothing_behind(tmp_path):
    cache = tmp_path / "anygatr"
    hanging = compiler(tmp_path / "bin", 'case "$*" in *probe.c*) exec sleep 20;; *) exec /usr/bin/cc "$@";; esac')
    code = "from anygatr.execution.c import build; build.available()"
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PATH": hanging}
    with subprocess.Popen([sys.executable, "-c", code], env=environment, start_new_session=True) as process:
        while not (left := list(cache.glob("build-*/generated.h"))):
            time.sleep(0.05)
            assert process.poll() is None
        (scratch,) = (file.parent for file in left)
        os.utime(scratch, (0, 0))  # as if it had been there for long
        probe(tmp_path)
        assert scratch.is_dir()  # it is still at work
        os.utime(scratch, (0, 0))
        os.killpg(process.pid, signal.SIGKILL)
    for library in cache.glob("*.so"):
        library.unlink()
    probe(tmp_path)
    assert {file.suffix for file in cache.iterdir()} == {".so", ".sha256"}


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(("preset", "dim", "blades"), [("E", 5, 32), ("iP", 5, 64), ("C", 5, 128), ("E", 7, 128)])
def test_large_algebras_build_in_seconds(tmp_path, preset, dim, blades):
    """A training step with nothing built yet: at most 10 s of compiling and 1 GB."""
    code = f"""
import resource, torch, anygatr
geo = anygatr.geometry({preset!r}, {dim})
net = anygatr.GATr(geo, anygatr.Width(1, 1), anygatr.Width(8, 8), anygatr.Width(1, 1), blocks=1, heads=2)
with anygatr.backend("c"):
    y, t = net(torch.randn(2, 3, 1, geo.algebra.dim), torch.randn(2, 3, 1))
    (y.square().sum() + t.sum()).backward()
spent = resource.getrusage(resource.RUSAGE_CHILDREN)
print(geo.algebra.dim, spent.ru_utime + spent.ru_stime, spent.ru_maxrss)
"""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    found, seconds, kilobytes = map(float, done.stdout.split())
    assert found == blades
    assert seconds < 10
    assert kilobytes < 1e6


def test_an_unusable_cache_gives_a_warning(tmp_path):
    (tmp_path / "anygatr").write_text("in the way of the directory")
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    code = "from anygatr.execution.c import build; print(build.available(), build.reason())"
    out = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert out.stdout.startswith("False")
    assert "XDG_CACHE_HOME" in out.stdout
    assert out.stderr.count("no C kernels") == 1


@needs_compiler
def test_a_cache_that_others_can_write_is_not_used(tmp_path):
    shared = tmp_path / "anygatr"
    shared.mkdir()
    shared.chmod(0o777)
    found = probe(tmp_path)
    assert found[0] == "True"
    assert not list(shared.iterdir())
    assert not Path(found[4]).exists()  # the private directory is removed at the end


@needs_compiler
def test_the_openmp_that_is_linked_tells_libraries_apart(monkeypatch):
    built = []
    monkeypatch.setattr(build, "_build", lambda path, *_: built.append(path))
    monkeypatch.setattr(build, "_intact", lambda path: False)
    monkeypatch.setattr(build.ctypes, "CDLL", str)
    for linked in ("a.so", "b.so", "a.so"):
        monkeypatch.setattr(build, "_openmp", lambda linked=linked: [linked])
        build._surroundings.cache_clear()
        build._load(("probe.c",), "")
    build._surroundings.cache_clear()
    assert built[0] == built[2] != built[1]


@needs_compiler
def test_a_relative_cache_directory_is_ignored(tmp_path):
    assert Path(probe(Path("relative"), HOME=str(tmp_path))[4]) == tmp_path / ".cache" / "anygatr"


MOUNTED = """
mount -t tmpfs -o "$1" tmpfs "$2" && mkdir -m 700 "$2/anygatr" || exit 1
test "$3" = no || mount -o remount,ro "$2"
exec "$4" -c "$5"
"""
NETWORK = """
import torch
from anygatr import GATr, Width, geometry
from anygatr.execution.c import build
net = GATr(geometry("E", 2), Width(1, 1), Width(2, 4), Width(1, 0), blocks=1, heads=2)
for _ in range(3):
    y = net(torch.randn(5, 1, 4), torch.randn(5, 1))[0]
print(build.available(), bool(y.isfinite().all()), build.reason().replace("\\n", " "), sep="|")
"""


def mounted(options: str, directory: Path, read_only: bool = False) -> subprocess.CompletedProcess[str]:
    """Run a network whose cache is a file system of its own, which ends with the process."""
    command = ["unshare", "--mount", "sh", "-c", MOUNTED, "sh", options, str(directory), "yes" if read_only else "no"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(directory)}
    return subprocess.run(
        [*command, sys.executable, NETWORK], env=environment, capture_output=True, text=True, check=False, timeout=300
    )


def can_mount() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        command = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", folder]
        return (
            shutil.which("unshare") is not None and not subprocess.run(command, capture_output=True, check=False).returncode
        )


@needs_compiler
@pytest.mark.parametrize(
    ("options", "read_only", "reason"),
    [
        ("size=1m,noexec", False, "failed to map|denied|not permitted"),
        ("size=8k", False, "No space left"),
        pytest.param("size=60k", False, "No space left", marks=pytest.mark.slow),  # enough for the probe, not for a kernel
        ("size=1m", True, "Read-only file system"),
    ],
    ids=["noexec", "full", "full later", "read-only"],
)
def test_a_cache_that_cannot_hold_libraries_gives_one_warning(options, read_only, reason, tmp_path):
    if not can_mount():
        pytest.skip("file systems cannot be mounted here")
    found = mounted(options, tmp_path, read_only)
    assert found.returncode == 0, found.stderr
    available, is_finite, said = found.stdout.strip().split("|")
    assert (available, is_finite) == ("False", "True")
    assert re.search(reason, said)
    assert found.stderr.count("no C kernels") == 1


def coefficients(header: str, name: str) -> list[list[float]]:
    """The tables for double and float."""
    found = re.findall(rf"{name}\[\] = {{([^}}]*)}}", (build.SOURCES / header).read_text())
    return [[float(number) for number in table.split(",")] for table in found]


def test_coefficients_of_the_exponential_are_its_series():
    for table in coefficients("exp.h", "EXP_COEFFICIENTS"):
        assert table == [1 / factorial(d) for d in range(len(table) - 1, -1, -1)]


def test_polynomials_of_gelu_are_the_error_function():
    """exp(z^2) erfc(z) in y, where t = 1 / (1 + z / 2) goes from 1/4 to 1 as y goes from -1 to 1."""
    y, least = np.linspace(-1, 1, 2001), 0.25
    z = 2 / ((y + 1) / 2 * (1 - least) + least) - 2
    exact = np.array([exp(a * a) * erfc(a) for a in z.tolist()])
    for table, bound in zip(coefficients("gelu.h", "ERFC_COEFFICIENTS"), (3e-14, 4e-9), strict=True):
        assert np.abs(np.polyval(table, y) / exact - 1).max() < bound
        assert np.abs(np.polyval([*table[:-3], table[-3] + 10 * bound, *table[-2:]], y) / exact - 1).max() > bound


def test_there_is_no_c_in_python():
    pattern = re.compile(r"#pragma omp|\brestrict\b|memset\(")
    files = [file for file in (REPOSITORY / "src").rglob("*.py") if pattern.search(file.read_text())]
    assert not files
