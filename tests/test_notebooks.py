"""The notebooks of the documentation: executed as they are, small, and committed with their outputs."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parent.parent / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
LARGEST = 300_000
"""Bytes."""


def codes(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_small_and_hold_their_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert path.stat().st_size < LARGEST
    assert [cell.execution_count for cell in codes(notebook)] == list(range(1, len(codes(notebook)) + 1))
    outputs = [output for cell in codes(notebook) for output in cell.outputs]
    assert all(output.output_type != "error" for output in outputs)
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert "/.cache/" not in path.read_text()  # a path of the machine that executed it


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path, tmp_path):
    """In an empty directory; a cell that raises fails the test with its traceback."""
    notebook = nbformat.read(path, as_version=4)
    for cell in codes(notebook):
        cell.outputs, cell.execution_count = [], None
    place = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=1500, iopub_timeout=300, kernel_name="python3", resources=place).execute()
    assert all(cell.execution_count for cell in codes(notebook))
    assert all(output.output_type != "error" for cell in codes(notebook) for output in cell.outputs)
