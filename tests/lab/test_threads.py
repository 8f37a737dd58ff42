"""Threads: chosen by rehearsal, kept when a run continues, asleep while they wait, and an option of every command."""

import os
import subprocess
import sys

import pytest
import torch
from samples import DRIFT, drift

from anygatr.lab.cli import COMMANDS, main
from anygatr.lab.config.commands import TrainConfig
from anygatr.lab.config.json_files import read_json
from anygatr.lab.config.recipe import recipe
from anygatr.lab.data.registry import spec_of
from anygatr.lab.training import rehearsal
from anygatr.lab.training.rehearsal import best_threads, thread_counts
from anygatr.lab.training.threads import threads_of
from anygatr.lab.training.train import train

TINY = {"blocks": 1, "mv": 4, "s": 8, "heads": 2, "batch": 8, "steps": 2}


@pytest.fixture(autouse=True)
def restored():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_waiting_threads_sleep():
    """What OpenMP says of itself when torch loads it after the laboratory, unless the user has decided."""
    code = "import anygatr.lab, torch; torch.set_num_threads(2); torch.ones(10**6).sum()"
    for given, said in ({}, "PASSIVE"), ({"OMP_WAIT_POLICY": "active"}, "ACTIVE"):
        environment = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"} | {"OMP_DISPLAY_ENV": "true"} | given
        found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        policies = [line for line in found.stderr.splitlines() if "OMP_WAIT_POLICY" in line]
        assert policies
        assert all(f"'{said}'" in line for line in policies)


@pytest.mark.parametrize(("slow", "best"), [(1, 2), (2, 1)])
def test_the_rehearsal_takes_what_is_fastest(tmp_path, monkeypatch, slow, best):
    """Steps that take longer with `slow` threads than with the other number."""
    asked = TrainConfig(data=str(drift(tmp_path / "d.npz")), **DRIFT)
    few = spec_of(asked).load().split("train")
    monkeypatch.setattr(rehearsal, "_seconds", lambda call: 0.3 if torch.get_num_threads() == slow else 0.1)
    torch.set_num_threads(2)
    assert best_threads(recipe("laptop", "E", blocks=1, mv=4, s=8, heads=2), few) == best
    assert torch.get_num_threads() == 2
    assert thread_counts(6) == [1, 2, 4, 6]
    assert thread_counts(1) == [1]


def test_a_run_continues_with_the_threads_it_was_started_with(tmp_path, monkeypatch):
    import anygatr.lab.training.train as module

    monkeypatch.setattr(module, "best_threads", lambda made, few: 2)
    config = TrainConfig(data=str(drift(tmp_path / "d.npz")), model="E", out=str(tmp_path / "run"), **DRIFT, **TINY)
    train(config)
    assert threads_of(tmp_path / "run") == read_json(tmp_path / "run" / "config.json")["environment"]["threads"] == 2
    monkeypatch.setattr(module, "best_threads", lambda made, few: 1)
    (tmp_path / "run" / "result.json").unlink()
    torch.set_num_threads(1)
    train(config)
    assert torch.get_num_threads() == 2


def test_every_command_takes_threads(capsys):
    assert all("threads" in settings.__dataclass_fields__ for settings, _ in COMMANDS.values())
    main(["algebra", "2", "--threads", "1"])
    assert torch.get_num_threads() == 1
    with pytest.raises(SystemExit, match="threads=0 must be at least 1"):
        main(["algebra", "2", "--threads", "0"])
