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
import torch
from benchmarks.harness.peak_memory import growth
from benchmarks.speed.networks.contestants import Configuration, contestant
torch.set_num_threads(1)
job = json.loads(sys.argv[1])
network = contestant("iP", Configuration(**job["size"]), checkpoint=job["checkpoint"])
network._replace(inputs=tuple(x[:1, :16] for x in network.inputs)).train()
print(growth(network.train if job["train"] else network.infer))
"""
MLP = """
import sys
import torch
from anygatr import geometry
from anygatr.execution import execute
from anygatr.nn import MLP, Width
from benchmarks.harness.peak_memory import growth
torch.set_num_threads(1)
geo, tokens = geometry("iP"), 20_000
mlp, x, s = MLP(geo, Width(16, 16)), torch.randn(geo.algebra.dim, tokens, 16), torch.randn(tokens, 16)
one = torch.ones(tokens, 1)
with torch.set_grad_enabled(sys.argv[1] == "True"):
    execute(mlp, x[:, :1], s[:1], one[:1])
    print(growth(lambda: execute(mlp, x, s, one)) / (x.nbytes + s.nbytes))
"""
A = {"batch": 64, "tokens": 16, "blocks": 10, "mv": 16, "s": 128, "heads": 8}
C = {"batch": 1, "tokens": 7000, "blocks": 10, "mv": 8, "s": 32, "heads": 4}


def grown(size: dict[str, int], checkpoint: bool = False, train: bool = True) -> float:
    """MiB by which the process grows in one training step or inference."""
    return said(MEASURE, json.dumps({"size": size, "checkpoint": checkpoint, "train": train})) / MIB


def said(program: str, job: str) -> float:
    """What a program says in a process of its own."""
    command = [sys.executable, "-c", program, job]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return float(done.stdout.splitlines()[-1])


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


def test_without_derivatives_nothing_that_is_made_inside_an_mlp_is_kept():
    """In sizes of the result: factors alone have four, what their products are mapped to has two."""
    assert said(MLP, "False") < 1.5
    assert said(MLP, "True") > 6


@pytest.mark.slow
def test_a_mesh_at_full_depth_stays_within_its_budget():
    assert grown(C) <= 1536


@pytest.mark.slow
def test_many_tokens_train():
    assert grown({**C, "tokens": 16_000, "blocks": 2}) < pairs(16_000)


@pytest.mark.slow
def test_very_many_tokens_run():
    assert grown({**C, "tokens": 100_000, "blocks": 1}, train=False) < pairs(100_000) / 20
