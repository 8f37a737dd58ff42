"""Memory of training steps, in fresh processes: within its budget, linear in tokens, no number for each pair of tokens."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MIB = 2**20
MEASURE = """
import json, sys
sys.path.insert(0, sys.argv[1])
import torch
from peak_memory import growth
from speed_models import Configuration, contestant
torch.set_num_threads(1)
job = json.loads(sys.argv[2])
network = contestant("iP", Configuration(**job["size"]), checkpoint=job["checkpoint"])
network._replace(inputs=tuple(x[:1, :16] for x in network.inputs)).train()
print(growth(network.train if job["train"] else network.infer))
"""
A = {"batch": 64, "tokens": 16, "blocks": 10, "mv": 16, "s": 128, "heads": 8}
C = {"batch": 1, "tokens": 7000, "blocks": 10, "mv": 8, "s": 32, "heads": 4}


def grown(size: dict[str, int], checkpoint: bool = False, train: bool = True) -> float:
    """MiB by which the process grows in one training step or inference."""
    job = json.dumps({"size": size, "checkpoint": checkpoint, "train": train})
    command = [sys.executable, "-c", MEASURE, str(ROOT / "benchmarks"), job]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.splitlines()[-1]) / MIB


def pairs(tokens: int) -> float:
    """MiB of one float32 number for each pair of tokens: the logits of a single head."""
    return 4 * tokens**2 / MIB


@pytest.mark.parametrize(("checkpoint", "budget"), [(False, 300), (True, 100)], ids=["plain", "checkpoint"])
def test_a_training_step_stays_within_its_budget(checkpoint, budget):
    assert grown(A, checkpoint) <= budget


def test_memory_is_linear_in_tokens():
    small = {**C, "blocks": 1, "mv": 2, "s": 8, "heads": 1}
    one, two = (grown({**small, "tokens": tokens}) for tokens in (3000, 6000))
    assert two < pairs(6000)
    assert two <= 2.5 * one + 8


@pytest.mark.slow
def test_a_mesh_at_full_depth_stays_within_its_budget():
    assert grown(C) <= 1536


@pytest.mark.slow
def test_many_tokens_train():
    assert grown({**C, "tokens": 16_000, "blocks": 2}) < pairs(16_000)


@pytest.mark.slow
def test_very_many_tokens_run():
    assert grown({**C, "tokens": 100_000, "blocks": 1}, train=False) < pairs(100_000) / 20
