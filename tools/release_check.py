"""Build the sdist and the wheel, list and check what is in them, install the wheel alone and run the README's example.

python -m tools.release_check            # into dist/; ends with 1 and the problems if there are any
"""

import argparse
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Iterable
from pathlib import Path

import torch
from packaging.metadata import Metadata

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "anygatr"
SHIPPED = (".py", ".pyi", ".c", ".h", ".css", ".js", ".md", "py.typed")
FOREIGN = ("tests/", "benchmarks/", "docs/", "results/", "examples/", "tools/", ".github/")


def build(out: Path) -> tuple[Path, Path]:
    """The sdist and, built from what the sdist holds, the wheel."""
    out.mkdir(parents=True, exist_ok=True)
    _run([sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(out.resolve())], ROOT)
    sdist = max(out.glob("*.tar.gz"), key=lambda path: path.stat().st_mtime)
    with tempfile.TemporaryDirectory() as scratch, tarfile.open(sdist) as archive:
        archive.extractall(scratch, filter="data")
        (source,) = Path(scratch).iterdir()
        _run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out.resolve())], source)
    return sdist, max(out.glob("*.whl"), key=lambda path: path.stat().st_mtime)


def names_in(archive: Path) -> list[str]:
    """The files of a distribution, those of an sdist without its top folder."""
    if archive.suffix == ".whl":
        return zipfile.ZipFile(archive).namelist()
    with tarfile.open(archive) as tar:
        return [name.partition("/")[2] for name in tar.getnames()]


def missing_and_foreign(names: Iterable[str], prefix: str) -> list[str]:
    """What is wrong with a list of files: parts of the package that are missing, and what does not belong there."""
    names = set(names)
    wanted = {f"{prefix}{path.relative_to(PACKAGE.parent)}" for path in PACKAGE.rglob("*") if path.name.endswith(SHIPPED)}
    problems = [f"{name} is missing" for name in sorted(wanted - names)]
    return problems + [f"{name} does not belong there" for name in sorted(names) if name.startswith(FOREIGN)]


def metadata_problems(metadata: bytes) -> list[str]:
    """What is wrong with the metadata of a distribution, against its specification and against pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    try:
        read = Metadata.from_email(metadata, validate=True)
    except ExceptionGroup as group:
        return [str(problem) for problem in group.exceptions]
    extras = {name.lower() for name in read.provides_extra or ()}
    checks = {
        f"version {read.version} is not that of the package": str(read.version) == version(),
        "the README is not its description": (ROOT / "README.md").read_text().strip() in (read.description or ""),
        "the description is not Markdown": (read.description_content_type or "").startswith("text/markdown"),
        f"the licence is {read.license_expression}": str(read.license_expression) == "MIT",
        "an extra is missing": extras == set(project["optional-dependencies"]),
        "no keywords": bool(read.keywords),
    }
    return [problem for problem, holds in checks.items() if not holds]


def version() -> str:
    """The version as the package says it."""
    found = re.search(r'^__version__ = "(.+)"$', (PACKAGE / "__init__.py").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def install(wheel: Path, where: Path) -> Path:
    """Python of a new environment with the wheel and, by path, the dependencies of this one, but not its anygatr."""
    venv.create(where, with_pip=False)
    python = where / "bin" / "python"
    # before the path of the dependencies is added: pip would see the anygatr that is installed there, and remove it
    _run([sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index", str(wheel)])
    (site,) = where.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(f"{Path(torch.__file__).parents[1]}\n")  # .pth files inside it are not read
    return python


def readme_example() -> str:
    """The first Python block of the README, and a proof that it ran on the installed package."""
    block = re.search(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert block is not None
    return block[1] + "\nimport anygatr, pathlib, sys\nassert pathlib.Path(anygatr.__file__).is_relative_to(sys.prefix)\n"


def run_installed(python: Path) -> list[str]:
    """What goes wrong when the README's example and the command run in an environment."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(Path.home()), "OMP_NUM_THREADS": "1"}  # no PYTHONPATH
    commands = {"README example": [python, "-c", readme_example()], "--version": [python.parent / "anygatr", "--version"]}
    problems = []
    for name, command in commands.items():
        done = subprocess.run(command, cwd=python.parent, env=environment, capture_output=True, text=True, check=False)
        if done.returncode or (name == "--version" and done.stdout != f"anygatr {version()}\n"):
            problems.append(f"{name}: {done.stdout}{done.stderr}")
    return problems


def main() -> None:
    """Build, list, check, install, run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where the distributions go")
    sdist, wheel = build(parser.parse_args().out)
    for archive in (sdist, wheel):
        print(f"{archive} ({archive.stat().st_size:,} bytes)", *sorted(names_in(archive)), sep="\n  ")
    problems = missing_and_foreign(names_in(sdist), "src/") + missing_and_foreign(names_in(wheel), "")
    problems += metadata_problems(metadata_of(wheel))
    with tempfile.TemporaryDirectory() as scratch:
        problems += run_installed(install(wheel, Path(scratch) / "env"))
    print(*(f"PROBLEM: {problem}" for problem in problems), sep="\n", end="")
    print(f"{'not ' if problems else ''}ready to release {version()}")
    sys.exit(bool(problems))


def metadata_of(wheel: Path) -> bytes:
    """The METADATA file of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return archive.read(name)


def _run(command: list[str], cwd: Path = ROOT) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    main()
