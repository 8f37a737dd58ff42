"""One sample on several processes: predictions and gradients are those of a single process."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_values_and_gradients_are_those_of_one_process(tmp_path, count):
    script = Path(__file__).with_name("sharded.py")
    command = [sys.executable, str(script), str(tmp_path / "meeting")]
    ranks = [subprocess.Popen([*command, str(rank), str(count)], stderr=subprocess.PIPE, text=True) for rank in range(count)]
    said = [rank.communicate(timeout=300)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * count, "\n".join(said)
