"""The distributions: what they contain, that the wheel works alone, and that a user's type checker can read it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tools import release_check

ROOT = Path(__file__).parents[1]
STEP = """
import pathlib, sys, torch, anygatr
assert pathlib.Path(anygatr.__file__).is_relative_to(sys.prefix), anygatr.__file__
anygatr.backend("c")
net = anygatr.GATr(anygatr.geometry("iP"), anygatr.Width(1, 1), anygatr.Width(4, 8), anygatr.Width(1, 1), blocks=1, heads=2)
y, t = net(*net.example(7))
node = y.grad_fn.next_functions[0][0]
assert node.name() == "SegmentFunctionBackward", node.name()
(y.square().sum() + t.square().sum()).backward()
print("a fused step")
"""


def test_the_checks_notice_what_is_missing_and_what_is_foreign():
    whole = {f"anygatr/{p.relative_to(release_check.PACKAGE)}" for p in release_check.PACKAGE.rglob("*") if p.is_file()}
    whole = {name for name in whole if "__pycache__" not in name}
    assert release_check.missing_and_foreign(whole, "") == []
    without = whole - {"anygatr/py.typed", "anygatr/execution/c/csrc/linear.c"} | {"tests/test_algebra.py"}
    found = release_check.missing_and_foreign(without, "")
    assert found == [
        "anygatr/execution/c/csrc/linear.c is missing",
        "anygatr/py.typed is missing",
        "tests/test_algebra.py does not belong there",
    ]


def test_the_checks_notice_bad_metadata():
    assert release_check.metadata_problems(b"Metadata-Version: 2.4\nName: anygatr\n")
    text = b"Metadata-Version: 2.4\nName: anygatr\nVersion: 0.0.1\nDescription-Content-Type: text/markdown\n\nAbout\n"
    assert "version 0.0.1 is not that of the package" in release_check.metadata_problems(text)


@pytest.fixture(scope="module")
def distributions(tmp_path_factory):
    return release_check.build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def python(distributions, tmp_path_factory):
    """Of an environment with the wheel; of this one only the dependencies are seen, not the package it was built from."""
    return release_check.install(distributions[1], tmp_path_factory.mktemp("env") / "env")


@pytest.mark.slow
def test_contents_and_metadata(distributions):
    sdist, wheel = distributions
    assert release_check.missing_and_foreign(release_check.names_in(sdist), "src/") == []
    assert release_check.missing_and_foreign(release_check.names_in(wheel), "") == []
    assert release_check.metadata_problems(release_check.metadata_of(wheel)) == []


@pytest.mark.slow
def test_the_readme_runs_in_an_empty_environment(python):
    assert release_check.run_installed(python) == []


@pytest.mark.slow
def test_a_fused_step_runs_in_an_empty_environment(python, tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    done = subprocess.run([python, "-c", STEP], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "a fused step", done.stderr


@pytest.mark.slow
def test_the_examples_pass_a_users_type_checker(python, tmp_path, monkeypatch):
    """And a mistake does not: the types of the package are read, because it says that it is typed."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    flags = ["--strict", "--allow-untyped-calls", "--no-warn-return-any", "--ignore-missing-imports"]
    flags += ["--cache-dir", str(tmp_path / "cache")]
    check = [sys.executable, "-m", "mypy", *flags, "--python-executable", str(python)]
    done = subprocess.run([*check, str(ROOT / "examples")], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    (tmp_path / "wrong.py").write_text('from anygatr import model\nmodel("E", {}, {}, blocks="two")\n')
    done = subprocess.run([*check, "wrong.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert 'expected "int"' in done.stdout
