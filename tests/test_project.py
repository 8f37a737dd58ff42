"""What people find around the code: versions, the conda recipe, workflows and hooks agree with the package and make."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import anygatr

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_one_version():
    changelog = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert changelog[:2] == ["Unreleased", anygatr.__version__]
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == anygatr.__version__
    assert yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text())["context"]["version"] == anygatr.__version__


def test_the_conda_recipe_needs_what_pip_needs():
    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text())
    found = {entry.replace("pytorch", "torch") for entry in recipe["requirements"]["run"]}
    wanted = PROJECT["dependencies"] + PROJECT["optional-dependencies"]["lab"]
    assert {entry.replace(" ", "") for entry in found} - {f"python{PROJECT['requires-python']}"} == set(wanted)


def test_the_workflow_runs_the_commands_of_the_readme_lint_types_and_docs():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    run = {step["run"] for job in jobs.values() for step in job["steps"] if "run" in step}
    assert {"make demo", "make test", "make lint", "make types", "make docs", "make release-check"} <= run
    assert {command.removeprefix("make ") for command in run} <= TARGETS


@pytest.mark.parametrize("path", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda p: p.name)
def test_templates_can_be_read(path):
    assert yaml.safe_load(path.read_text())


def test_hooks_run_tools_of_the_development_environment():
    (repo,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert {hook["entry"].split()[0] for hook in repo["hooks"]} == {".venv/bin/ruff", ".venv/bin/mypy", ".venv/bin/python"}


def test_type_checkers_see_the_public_names():
    stub = (ROOT / "src" / "anygatr" / "__init__.pyi").read_text()
    seen = {name: home for home, name in re.findall(r"^from anygatr\.([\w.]+) import \w+ as (\w+)$", stub, re.MULTILINE)}
    assert seen == anygatr._HOME


IMPORTED = """
import sys, torch
before = set(sys.modules)
{statement}
print(*sorted({{name.split(".")[0] for name in set(sys.modules) - before}} - set(sys.stdlib_module_names)))
print(sum(name.startswith("anygatr") for name in sys.modules))
"""


@pytest.mark.parametrize(
    ("statement", "packages", "modules"),
    [
        ("import anygatr", {"anygatr"}, 1),
        ("from anygatr import model, GATr, geometry", {"anygatr", "jaxtyping", "numpy"}, 110),
    ],
)
def test_little_is_imported_besides_torch(statement, packages, modules):
    """Counted, not timed: `python -m benchmarks.imports.times` has the seconds."""
    code = IMPORTED.format(statement=statement)
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert {name for name in out[0].split() if not name.startswith("_")} - {"typing_extensions", "wadler_lindig"} <= packages
    assert int(out[1]) <= modules
