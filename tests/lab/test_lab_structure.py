"""The laboratory's house rules: one name for one thing, packages that point one way, no package without a word about it."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

import anygatr.lab

LAB = Path(anygatr.lab.__file__).parent
FILES = sorted(LAB.rglob("*.py"))
# package of the laboratory -> those it may import besides itself
ALLOWED = {
    "system": set(),
    "config": set(),
    "data": {"config"},
    "baselines": {"data"},
    "distributed": set(),
    "training": {"config", "data", "baselines", "distributed"},
    "report": {"config"},
    "comparison": {"config", "data", "training", "report"},
}
DATASETS = {path.parent.name for path in LAB.glob("data/*/kind.py")}


def name_of(path: Path) -> str:
    return str(path.relative_to(LAB))


def imports(source: str) -> set[tuple[str, ...]]:
    """The modules of the laboratory that a source imports, as words: anygatr.lab.data.spec -> (data, spec)."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {tuple(name.split(".")[2:]) for name in found if name.startswith("anygatr.lab.")}


def repeated_classes(sources: dict[str, str]) -> dict[str, list[str]]:
    """Public classes that are defined in more than one place, and where."""
    homes = defaultdict(list)
    for name, source in sources.items():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(name)
    return {name: places for name, places in homes.items() if len(places) > 1}


def test_no_two_classes_share_a_name():
    assert repeated_classes({name_of(path): path.read_text(encoding="utf-8") for path in FILES}) == {}


def test_a_repeated_class_is_noticed():
    sources = {"a.py": "class Run: ...\nclass _Own: ...", "b.py": "def f():\n    class Run: ...", "c.py": "class _Own: ..."}
    assert repeated_classes(sources) == {"Run": ["a.py", "b.py"]}


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_packages_point_one_way(package):
    for path in (LAB / package).rglob("*.py"):
        reached = {words[0] for words in imports(path.read_text(encoding="utf-8"))}
        assert reached <= ALLOWED[package] | {package, "system"}, name_of(path)


def test_only_the_demonstration_knows_a_data_set_by_name():
    assert {"nbody", "arteries", "files"} <= DATASETS
    for package in set(ALLOWED) - {"data"}:
        for path in set((LAB / package).rglob("*.py")) - {LAB / "comparison" / "demo.py"}:
            named = {words[1] for words in imports(path.read_text(encoding="utf-8")) if words[0] == "data"}
            assert not named & DATASETS, name_of(path)


def test_every_package_says_what_it_is_for():
    packages = {path.parent for path in FILES}
    assert {package.name for package in packages} >= set(ALLOWED) | DATASETS
    assert [name_of(package) for package in packages if not (package / "README.md").is_file()] == []
