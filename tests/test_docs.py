"""What the documentation says is true: its Python runs, what it names exists, its links lead somewhere."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest
import torch

import anygatr
import anygatr.adapters
import anygatr.lab
import anygatr.nn

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").rglob("*.md")) if "snippets" not in page.parts)]
PAGES += [ROOT / "benchmarks" / "README.md", ROOT / "results" / "README.md"]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=name_of)
def test_code_blocks_run(page, tmp_path, monkeypatch):
    """In an empty directory that looks like the repository as far as the documentation refers to it."""
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    monkeypatch.chdir(tmp_path)
    # the pretend device of the device tests, if they ran in this process, is an accelerator that cannot be waited for
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda *_: None)
    torch.manual_seed(0)
    names: dict = {}
    for code in blocks(page):
        exec(compile(code, page.name, "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_named_tests_exist(page):
    for path, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page.read_text()):
        source = (ROOT / path).read_text()
        assert f"def {name}(" in source, f"{page.name} names {path}::{name}, which does not exist"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+?)(?:#[\w-]*)?\)", page.read_text()):
        if not target.startswith(("http", "mailto")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.name)
def test_examples_run(example, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [example.name])
    torch.manual_seed(0)
    exec(compile(example.read_text(), example.name, "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out


@pytest.mark.parametrize("page", [*PAGES, ROOT / "Makefile"], ids=name_of)
def test_named_benchmarks_and_results_exist(page):
    text = page.read_text()
    for module in re.findall(r"python -m (benchmarks[\w.]*\w)", text):
        assert importlib.util.find_spec(module), f"{page.name} runs {module}, which does not exist"
    for path in re.findall(r"`((?:benchmarks|results)/[\w./-]+)`", text):
        assert (ROOT / path).exists() or path == "results/speed-quick.json", f"{page.name} names {path}"


def rows_of(text: str, first: str) -> dict[str, dict[str, str]]:
    """The table whose header starts with a cell, by the first cell of each row: the number that each cell starts with."""
    table = re.search(rf"^\| ?{re.escape(first)} \|.*\n(?:\|.*\n?)+", text, re.MULTILINE)
    assert table
    header, _, *rows = [
        [cell.strip("* ") for cell in line.strip("| \n").split("|")] for line in table[0].strip().split("\n")
    ]
    return {
        row[0]: {name: cell.split(" ")[0].strip("*") for name, cell in zip(header[1:], row[1:], strict=False)}
        for row in rows
    }


def test_the_readme_compares_by_the_numbers_of_the_pages():
    readme = rows_of((ROOT / "README.md").read_text(), "what")
    errors = rows_of((ROOT / "docs" / "which-algebra.md").read_text(), "samples")
    for row, samples in (("n-body, 100 samples, squared error", "100"), ("n-body, 10 000 samples", "10,000")):
        known = {name.removesuffix("-GATr"): error for name, error in errors[samples].items() if name != "seeds"}
        assert {name: error for name, error in readme[row].items() if error} == known
    times = rows_of((ROOT / "docs" / "snippets" / "speed-overview.md").read_text(), "network")
    peers = {"Transformer": "Transformer", "L-GATr 2.0.0": "lgatr 2.0.0"} | {
        name: f"{name}-GATr" for name in ("E", "P", "iP", "C")
    }
    for name, row in peers.items():
        a, c = (float(times[row][f"{key}, training step"].strip("*").replace(",", "")) for key in "ac")
        assert float(readme["training step, 64 x 16 tokens, ms"][name]) == a
        assert abs(float(readme["training step, 7000 tokens, s"][name]) - c / 1000) < 0.051


def test_every_page_is_in_the_navigation():
    navigation = re.search(r"^nav:.*", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE | re.DOTALL)
    assert navigation
    pages = {str(page.relative_to(ROOT / "docs")) for page in PAGES if (ROOT / "docs") in page.parents}
    assert {page for page in pages if f" {page}\n" not in navigation[0] + "\n"} == set()


def test_every_command_of_the_table_of_benchmarks_can_be_run():
    text = (ROOT / "benchmarks" / "README.md").read_text()
    listed = {f"benchmarks.{name}" for name in re.findall(r"^\| `([a-z_]+\.[a-z_]+)", text, re.MULTILINE)}
    commands = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in (ROOT / "benchmarks").glob("*/*.py")
        if '__name__ == "__main__"' in path.read_text()
    }
    assert listed == commands


def test_every_public_name_is_in_the_reference():
    named = set(re.findall(r"^::: (anygatr(?:\.\w+)+)$", (ROOT / "docs" / "reference.md").read_text(), re.MULTILINE))
    missing = {name for name in anygatr.__all__ if f"anygatr.{name}" not in named}
    missing |= {name for name in anygatr.nn.__all__ if not {f"anygatr.{name}", f"anygatr.nn.{name}"} & named}
    missing |= {name for name in anygatr.lab.__all__ if f"anygatr.lab.{name}" not in named}
    missing |= {name for name in anygatr.adapters.__all__ if not any(entry.endswith(f".{name}") for entry in named)}
    assert not missing
    for name in named:
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute), f"the reference names {name}"
