"""The house: floors that know nothing of those above, one place for each thing that there should be one of."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import anygatr

PACKAGE = Path(anygatr.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
PRIVATE = re.compile(r"torch\._C\.|torch\._functorch|_functorch|forward_ad\._|_has_any_global_hook|torch\._dynamo")


def test_the_root_holds_few_modules():
    assert len(list(PACKAGE.glob("*.py"))) <= 12


def test_private_torch_names_stand_in_one_place():
    found = {str(path.relative_to(PACKAGE)) for path in FILES if PRIVATE.search(path.read_text(encoding="utf-8"))}
    assert found == {"ops/torch_state.py"}


def test_layers_know_no_backend_and_no_program():
    for path in (PACKAGE / "nn").glob("*.py"):
        assert not re.search(r"anygatr\.(execution|program)", path.read_text(encoding="utf-8")), path


def test_one_function_chooses_a_backend():
    chosen = [path for path in FILES if re.search(r"\.accepts\(", path.read_text(encoding="utf-8"))]
    assert [str(path.relative_to(PACKAGE)) for path in chosen] == ["execution/__init__.py"]


def test_no_public_name_is_also_a_module():
    for name in anygatr.__all__:
        assert not (PACKAGE / name).is_dir(), name
        assert not (PACKAGE / f"{name}.py").exists(), name


def test_one_name_one_class():
    homes = defaultdict(set)
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].add(str(path.relative_to(PACKAGE)))
    assert not {name: places for name, places in homes.items() if len(places) > 1}


def test_deep_folders_say_what_they_are_for():
    for folder in (
        "equivariance",
        "spaces",
        "ops",
        "program",
        "execution",
        "execution/c",
        "execution/triton",
        "nn",
        "networks",
        "interface",
        "lab",
        "adapters",
    ):
        assert len((PACKAGE / folder / "README.md").read_text(encoding="utf-8").splitlines()) >= 3, folder
