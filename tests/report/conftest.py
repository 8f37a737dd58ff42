"""The complete synthetic comparison, loaded once."""

from pathlib import Path

import pytest
from synthetic import write_comparison

from anygatr.lab.report.rows import ComparisonResults, load


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_comparison(tmp_path_factory.mktemp("runs") / "cmp")


@pytest.fixture(scope="session")
def experiment(directory: Path) -> ComparisonResults:
    return load(directory)
