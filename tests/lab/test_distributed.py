"""One training on several processes: the same numbers as one, nothing lost or doubled, clean ends, exact continuation."""

import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from samples import charges
from torch import Tensor

from anygatr import Width, model
from anygatr.lab.config.commands import TrainConfig, command_line
from anygatr.lab.config.json_files import read_json
from anygatr.lab.distributed.launch import Processes, processes
from anygatr.lab.distributed.ranks import LostRankError, Ranks
from anygatr.lab.distributed.shares import rank_shares, sample_costs, shares
from anygatr.lab.training.run import RESULT, STATE
from anygatr.lab.training.state import load_tensors

TASK = {"inputs": ("place:point", "charge:scalar"), "target": ("energy:scalar",), "model": "iP", "pool": "sum"}
SMALL = {"blocks": 1, "mv": 4, "s": 8, "heads": 2, "batch": 8, "steps": 12, "validate_every": 4, "threads": 1, "patience": 0}
CLOSE = 1e-5


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> str:
    return str(charges(tmp_path_factory.mktemp("data") / "charges.npz", samples=80))


def words(data: str, out: Path, **changes) -> list[str]:
    config = TrainConfig(**{"data": data, "out": str(out)} | TASK | SMALL | changes)
    return [sys.executable, "-m", *command_line("train", config).split()]


def run(command: list[str], **environment: str) -> None:
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def torchrun(command: list[str], count: int) -> list[str]:
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        f"--nproc-per-node={count}",
        "--standalone",
        *command[1:2],
        "--",
        *command[2:],
    ]


def weights(out: Path) -> dict[str, Tensor]:
    """Those that the loss depends on: Adam turns the rounding of a gradient that is zero into steps of any sign.

    The biases of keys add the same to all logits of a query, which the softmax does not see.
    """
    tensors, _ = load_tensors(out / STATE)
    return {name: x for name, x in tensors.items() if name.startswith("module") and "qkv.bias" not in name}


def difference(first: Path, second: Path) -> float:
    a, b = weights(first), weights(second)
    assert a.keys() == b.keys()
    return max(float((x - b[name]).abs().max()) for name, x in a.items() if x.numel())


def losses(out: Path) -> Tensor:
    return torch.tensor(load_tensors(out / STATE)[1]["recent"])


def test_two_processes_make_the_steps_of_one(data, tmp_path):
    run(words(data, tmp_path / "one"))
    run(words(data, tmp_path / "two", devices=2))
    assert difference(tmp_path / "one", tmp_path / "two") < CLOSE
    assert torch.allclose(losses(tmp_path / "one"), losses(tmp_path / "two"), rtol=CLOSE, atol=0)
    rows = [read_json(tmp_path / name / RESULT) for name in ("one", "two")]
    assert rows[0]["metrics"]["eval"]["mse"] == pytest.approx(rows[1]["metrics"]["eval"]["mse"], rel=1e-4)


@pytest.mark.parametrize("problem", [None, LostRankError("another rank has ended")], ids=["ends", "fails"])
def test_the_connection_ends_before_the_process(data, tmp_path, monkeypatch, problem):
    """Or a thread of gloo may need the interpreter while that ends: "terminate called without an active exception"."""
    import anygatr.lab.training.train as module

    def work(config, ranks):
        assert torch.distributed.is_initialized()
        if problem:
            raise problem

    store = (tmp_path / "store").as_uri()
    torch.distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    monkeypatch.setattr(module, "connected", lambda *_: Ranks(SimpleNamespace(global_rank=0, world_size=2)))
    monkeypatch.setattr(module, "_train", work)
    with pytest.raises(LostRankError) if problem else nullcontext():
        module.train(TrainConfig(data=data, out=str(tmp_path / "run"), **TASK))
    assert not torch.distributed.is_initialized()


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("changes", [{}, {"accumulate": 3}, {"batch": 3}, {"ema": 0.9, "weight_decay": 0.01}], ids=str)
def test_torchrun_needs_no_options(data, tmp_path, count, changes):
    run(words(data, tmp_path / "one", **changes | {"accumulate": 1}))
    run(words(data, tmp_path / "other", seed=1))
    assert difference(tmp_path / "one", tmp_path / "other") > 100 * CLOSE  # a control
    run(torchrun(words(data, tmp_path / "many", **changes), count))
    assert difference(tmp_path / "one", tmp_path / "many") < CLOSE
    assert torch.allclose(losses(tmp_path / "one"), losses(tmp_path / "many"), rtol=CLOSE, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["srun", "nodes"])
def test_processes_that_others_start(data, tmp_path, launcher):
    run(words(data, tmp_path / "one"))
    port = str(20000 + os.getpid() % 20000)
    started = []
    for rank in range(2):
        changes: dict = {} if launcher == "srun" else {"devices": 1, "nodes": 2}
        slurm = {"STEP_ID": "0", "PROCID": rank, "LOCALID": rank, "NODEID": 0, "NTASKS": 2, "NNODES": 1}
        slurm |= {"STEP_NUM_TASKS": 2, "STEP_NUM_NODES": 1, "JOB_ID": 7, "JOB_NAME": "train", "NODELIST": "localhost"}
        told = {f"SLURM_{name}": str(value) for name, value in slurm.items()}
        told = told if launcher == "srun" else {"NODE_RANK": str(rank), "MASTER_ADDR": "127.0.0.1"}
        command = words(data, tmp_path / "two", **changes)
        started.append(subprocess.Popen(command, env=os.environ | told | {"MASTER_PORT": port}))
    assert [process.wait(300) for process in started] == [0, 0]
    assert difference(tmp_path / "one", tmp_path / "two") < CLOSE


def children(pid: int) -> list[int]:
    return [int(number) for number in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def until(found, seconds: float = 60.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := found():
            return value
        time.sleep(0.05)
    raise AssertionError("waited in vain")


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 1])
def test_a_rank_that_dies_ends_all_and_the_run_continues(data, tmp_path, killed):
    long = {"devices": 2, "steps": 400, "validate_every": 20}
    run(words(data, tmp_path / "whole", **long))
    command = words(data, tmp_path / "cut", **long)
    with open(tmp_path / "said", "w+") as said:
        process = subprocess.Popen(command, stderr=said, stdout=subprocess.DEVNULL)
        until((tmp_path / "cut" / STATE).exists)
        other = children(process.pid)[0]
        os.kill(other if killed else process.pid, signal.SIGKILL)
        assert process.wait(30) != 0
        until(lambda: not Path(f"/proc/{other}").exists() or "Z" in Path(f"/proc/{other}/stat").read_text(), 30)
        said.seek(0)
        lines = [line for line in said.read().splitlines() if line.strip() and "warning" not in line]
    assert len(lines) == 1
    assert f"rank {1 - killed} of 2: another rank has ended" in lines[0]
    assert not (tmp_path / "cut" / RESULT).exists()
    run(command)
    assert difference(tmp_path / "whole", tmp_path / "cut") == 0.0


@pytest.mark.slow
def test_a_stopped_run_continues_to_the_same_bits_or_to_rounding(data, tmp_path):
    changes = {"steps": 400, "validate_every": 200, "dropout": 0.1}
    run(words(data, tmp_path / "whole", devices=2, **changes))
    for name in ("same", "fewer"):
        process = subprocess.Popen(words(data, tmp_path / name, devices=2, **changes), stderr=subprocess.DEVNULL)
        until((tmp_path / name / "metrics.jsonl").exists)
        until((tmp_path / name / "metrics.jsonl").read_text)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 130
        assert 0 < load_tensors(tmp_path / name / STATE)[1]["step"] < 400
    run(words(data, tmp_path / "same", devices=2, **changes))
    assert difference(tmp_path / "whole", tmp_path / "same") == 0.0
    done = subprocess.run(words(data, tmp_path / "fewer", **changes), capture_output=True, text=True)
    assert done.returncode == 0
    assert "ranks 2 -> 1" in done.stderr


@pytest.mark.slow
def test_a_run_continues_on_another_number_of_ranks_to_rounding(data, tmp_path):
    changes = {"steps": 30, "validate_every": 10}
    run(words(data, tmp_path / "whole", **changes))
    process = subprocess.Popen(words(data, tmp_path / "cut", devices=2, **changes), stderr=subprocess.DEVNULL)
    until((tmp_path / "cut" / STATE).exists)
    process.send_signal(signal.SIGTERM)
    process.wait(60)
    run(words(data, tmp_path / "cut", **changes))
    assert difference(tmp_path / "whole", tmp_path / "cut") < 10 * CLOSE


@pytest.mark.parametrize("parts", [1, 2, 3, 8])
def test_shares_lose_and_double_nothing(parts):
    rng = np.random.default_rng(parts)
    for count in (0, 1, 5, 64):
        costs = torch.from_numpy(rng.lognormal(sigma=2, size=count))
        found = torch.cat(shares(costs, parts))
        assert torch.equal(found.sort().values, torch.arange(count))
        pieces = [piece for rank in range(parts) for piece in rank_shares(costs, parts, rank, 3)]
        assert torch.equal(torch.cat([*pieces, torch.arange(0)]).sort().values, torch.arange(count))
        assert all(len(piece) for piece in pieces)


def test_shares_are_balanced_by_cost_not_by_samples():
    tokens = torch.tensor([1000, 100, 100, 100, 100, 100, 100, 100])
    costs = tokens.double().square()
    first, second = shares(costs, 2)
    assert sorted((len(first), len(second))) == [1, 7]
    costs = torch.rand(200, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    loads = [float(costs[part].sum()) for part in shares(costs, 4)]
    assert max(loads) < 1.01 * float(costs.sum()) / 4


def test_costs_grow_with_the_square_of_tokens_where_attention_dominates():
    net = model("iP", {"p": "point"}, {"q": "point"}, hidden=Width(4, 8), blocks=2, heads=2)
    short, long, longer = sample_costs(net, torch.tensor([1, 100_000, 200_000])).tolist()
    assert longer / long == pytest.approx(4, rel=0.01)
    assert short > 0
    one, two = sample_costs(net, torch.tensor([1, 2])).tolist()
    assert two < 2.1 * one  # linear maps dominate few tokens
    assert sample_costs(torch.nn.Linear(1, 1), torch.tensor([3, 6])).tolist() == [3.0, 6.0]


TORCHRUN = {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}
SRUN = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_NNODES": "2"}


def test_the_number_of_processes_is_what_a_launcher_started():
    assert processes(None, None, {}) == Processes(1, 1)
    assert processes(2, 3, {}) == Processes(3, 2)
    assert processes(None, None, TORCHRUN) == Processes(2, 4)
    assert processes(None, None, SRUN) == Processes(2, 2)
    batch_script = {name: value for name, value in SRUN.items() if name != "SLURM_STEP_ID"}
    assert processes(None, None, batch_script) == Processes(1, 1)
    with pytest.raises(ValueError, match="leave out --devices"):
        processes(2, None, TORCHRUN)
    with pytest.raises(ValueError, match="ntasks-per-node"):
        processes(None, None, SRUN | {"SLURM_NTASKS": "3"})
    with pytest.raises(ValueError, match="devices=0"):
        processes(0, None, {})
    with pytest.raises(ValueError, match="accumulate=0"):
        TrainConfig(accumulate=0)
