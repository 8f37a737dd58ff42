"""What confused a first reader: splits of .extxyz files, columns of one word, numbers that were cut, half a command."""

import numpy as np
import pytest

from anygatr.lab.comparison.advise import advise
from anygatr.lab.config.commands import AdviseConfig
from anygatr.lab.data.files.dataset import load
from anygatr.lab.data.files.inspect import inspect
from anygatr.lab.system.terminal import Terminal
from anygatr.lab.training.evaluate import COLUMNS, split_table

FRAME = """2
Properties=species:S:1:pos:R:3 energy={energy} split={split}
Cu 0 0 {energy}
Cu 1 0 0
"""


@pytest.fixture
def copper(tmp_path):
    """Frames of one element, each with its split."""
    path = tmp_path / "copper.extxyz"
    path.write_text("".join(FRAME.format(energy=i, split="val" if i == 2 else "train") for i in range(4)))
    return path


def test_frames_say_which_split_they_belong_to(copper):
    data = load(copper, {"pos": "point"}, {"energy": "scalar"}, fractions=None)
    assert {name: index.tolist() for name, index in data.splits.items()} == {"train": [0, 1, 3], "val": [2]}


def test_a_column_with_one_word_is_not_proposed(copper):
    """Training would refuse it: a category of one class."""
    found = inspect(copper)
    assert found.inputs == {"pos": "point"}
    assert found.targets == {"energy": "scalar"}


@pytest.mark.parametrize("count", [5, 9])
def test_no_number_of_a_table_is_cut_on_80_columns(count, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    metrics = {
        split: {name: 0.012345 + i for i, name in enumerate(list(COLUMNS)[:count])} for split in ("train", "val", "eval")
    }
    Terminal().print(split_table(metrics))
    out = capsys.readouterr().out
    assert "…" not in out
    assert out.count("0.01234") + out.count("0.01235") == 3


def test_advice_ends_with_a_whole_command(tmp_path, capsys):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "d.npz", place=rng.normal(size=(40, 3, 3)), force=rng.normal(size=(40, 3, 3)))
    advise(AdviseConfig(str(tmp_path / "d.npz"), ("place:point",), ("force:vector",), mv=4, s=8))
    command = f"anygatr compare --data {tmp_path / 'd.npz'} --inputs place:point --target force:vector --models "
    assert command in capsys.readouterr().out
