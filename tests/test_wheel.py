"""The wheel: what it contains, and that a network trains on C kernels from it alone."""

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # builds a wheel and an environment

REPOSITORY = Path(__file__).parents[1]
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


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(out), "."]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True)
    (built,) = out.glob("*.whl")
    return built


def test_it_contains_the_c_sources_and_no_tests(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    sources = {path.name for path in (REPOSITORY / "src/anygatr/execution/c/csrc").iterdir()}
    assert {Path(n).name for n in names if "/csrc/" in n} == sources
    assert not [n for n in names if n.startswith(("tests", "benchmarks", "docs"))]


def test_a_step_runs_in_an_empty_environment(wheel, tmp_path):
    """Of this environment only the dependencies are seen, not the package it was built from."""
    venv.create(tmp_path / "env", with_pip=False)
    (site,) = (tmp_path / "env").glob("lib/python*/site-packages")
    zipfile.ZipFile(wheel).extractall(site)
    dependencies = Path(pytest.__file__).parents[1]
    (site / "dependencies.pth").write_text(f"{dependencies}\n")  # a path alone: .pth files inside it are not read
    command = [str(tmp_path / "env/bin/python"), "-E", "-c", STEP]  # whatever PYTHONPATH says
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "a fused step", done.stderr
