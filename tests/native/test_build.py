"""Building C: what breaks it gives one warning and a reason, never an error; broken libraries are built again."""

import os
import re
import subprocess
import sys
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
    from anygatr.execution.c import build
    found = build.available(), build.available(), build.reason()
    try:
        build.library(("probe.c",), "")
    except build.BuildError:
        pass
print(*found[:2], len([w for w in caught if "no C kernels" in str(w.message)]), found[2], str(build._cache()), sep="|")
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
def test_a_relative_cache_directory_is_ignored(tmp_path):
    assert Path(probe(Path("relative"), HOME=str(tmp_path))[4]) == tmp_path / ".cache" / "anygatr"


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
