"""Imports point one way, and what must start fast does not load torch."""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import anygatr

PACKAGE = Path(anygatr.__file__).parent
FAST = (
    "",
    "files.whole",
    "lab",
    "lab.config.commands",
    "lab.config.mathematics",
    "lab.config.report",
    "lab.data.config",
    "lab.data.registry",
    "lab.cli",
)

# each layer may reach those before it, through whatever modules, and none after it
LAYERS = (
    {"files"},
    {"algebra"},
    {"equivariance"},
    {"spaces"},
    {"ops"},
    {"nn", "program"},
    {"execution"},
    {"networks"},
    {"costs", "reach"},
    {"interface"},
    {"bench", "checkpoint", "convert", "convert_weights", "export", "hub", "testing"},
    {"lab"},
    {"adapters"},
)


ABOVE = ("lab", "adapters", "__main__")
"""The laboratory, and the doors that stand in front of it."""


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(("anygatr", *(parts[:-1] if parts[-1] == "__init__" else parts)))


FILES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def resolve(name: str) -> str:
    """The module behind a dotted name: itself, the home of a public name, or the module that defines the attribute."""
    if name in FILES:
        return name
    parent, _, attribute = name.rpartition(".")
    if parent == "anygatr" and attribute in anygatr._HOME:
        return f"anygatr.{anygatr._HOME[attribute]}"
    return parent


def imported_by(source: str, module: str, is_package: bool = False) -> set[str]:
    """Our own modules that the source imports anywhere, functions and type-checking blocks included."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module if is_package else module.rpartition(".")[0]
                base = importlib.util.resolve_name("." * node.level + base, package)
            names |= {f"{base}.{alias.name}" for alias in node.names}
    return {resolve(name) for name in names if name.split(".")[0] == "anygatr"} - {"anygatr", module}


IMPORTS = {
    module: imported_by(path.read_text(encoding="utf-8"), module, path.name == "__init__.py")
    for module, path in FILES.items()
}


def reached(module: str) -> set[str]:
    seen: set[str] = set()
    queue = [module]
    while queue:
        for target in IMPORTS.get(queue.pop(), set()) - seen:
            seen.add(target)
            queue.append(target)
    return seen


def layer_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


@pytest.mark.parametrize("number", range(len(LAYERS)), ids=[" ".join(sorted(layer)) for layer in LAYERS])
def test_no_layer_reaches_a_later_one(number):
    later = set().union(*LAYERS[number + 1 :])
    for module in FILES:
        if layer_of(module) in LAYERS[number]:
            assert not {t for t in reached(module) if layer_of(t) in later}, module


def test_nothing_outside_the_laboratory_imports_it():
    guilty = [m for m, targets in IMPORTS.items() if layer_of(m) not in ABOVE and any(layer_of(t) == "lab" for t in targets)]
    assert not guilty


def test_the_algebra_stands_alone():
    assert IMPORTS["anygatr.algebra"] == set()
    assert IMPORTS["anygatr.equivariance.linalg"] == set()
    assert reached("anygatr.equivariance.symmetry") == {"anygatr.algebra", "anygatr.equivariance.linalg"}


def test_no_module_imports_itself_in_a_circle():
    assert not [m for m in FILES if m in reached(m)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import anygatr.equivariance.solver", {"anygatr.equivariance"}),
        ("from anygatr import pin, linear_maps", {"anygatr.equivariance"}),
        ("def f():\n    from anygatr.lab import config", {"anygatr.lab"}),
        ("from .equivariance.symmetry import Symmetry", {"anygatr.equivariance"}),
        ("from .equivariance import solver", {"anygatr.equivariance"}),
        ("import torch, os", set()),
    ],
)
def test_the_walk_sees_every_form_of_import(source, expected):
    found = imported_by(source, "anygatr.algebra")
    assert {".".join(m.split(".")[:2]) for m in found} == expected


@pytest.mark.parametrize("module", FAST, ids=lambda m: f"anygatr.{m}".rstrip("."))
def test_starts_without_torch(module):
    code = f"import sys; import {f'anygatr.{module}'.rstrip('.')}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_torch_check_can_fail():
    code = "import sys; import anygatr; anygatr.Algebra; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 1


def test_public_names_are_where_they_are_said_to_be():
    for name, home in anygatr._HOME.items():
        if (PACKAGE / f"{home.replace('.', '/')}.py").exists():
            assert getattr(anygatr, name).__module__.startswith("anygatr."), name
    with pytest.raises(AttributeError, match=r"no attribute 'Algebre'; it offers .*Algebra"):
        anygatr.Algebre  # noqa: B018
    assert {"Algebra", "linear_maps", "__version__"} <= set(dir(anygatr))
