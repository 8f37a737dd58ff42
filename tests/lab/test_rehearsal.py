"""What a step costs: memory that can be counted by hand, in the order of the algebras, for old rows as for new ones."""

import json
from dataclasses import replace

import pytest
import torch
from samples import DRIFT, drift
from torch import nn

import anygatr
from anygatr.lab.config.commands import TrainConfig
from anygatr.lab.config.recipe import recipe
from anygatr.lab.data.registry import spec_of
from anygatr.lab.training.models import MODELS
from anygatr.lab.training.rehearsal import MB, peak_bytes, training_memory_mb
from benchmarks.memory.rows import complete, stand_in

BODIES = {
    "dim": 3,
    "tokens": 4,
    "fields": {"position": "point", "velocity": "vector", "mass": "scalar"},
    "targets": {"final": "point"},
    "per": "token",
}
FLOAT, DOUBLE = 4, 8


class Chain(nn.Module):
    """x -> tanh(w x), over and over: each pass keeps one tensor as large as x for the way back."""

    def __init__(self, passes: int, weights: int):
        super().__init__()
        self.passes, self.weight = passes, nn.Parameter(torch.ones(weights))

    def forward(self, position, velocity, mass, offsets=None):
        for _ in range(self.passes):
            position = (position * self.weight[0]).tanh()
        return {"final": position}


@pytest.fixture
def chain(monkeypatch):
    """The memory of a chain, in bytes."""

    def memory(passes: int, weights: int, samples: int) -> float:
        monkeypatch.setitem(MODELS, "chain", lambda task, recipe: Chain(passes, weights))
        made = replace(recipe("laptop", "E"), model="chain", batch=samples)
        return MB * training_memory_mb(made, stand_in(BODIES, samples))

    return memory


def test_the_peak_is_what_is_alive_at_once():
    def call() -> None:
        first = torch.empty(1000)
        second = torch.empty(500)
        del first
        torch.empty(700)
        del second

    assert peak_bytes(call) == FLOAT * (1000 + 500)
    assert peak_bytes(lambda: [torch.empty(1000), torch.empty(500), torch.empty(700)]) == FLOAT * (1000 + 500 + 700)
    assert peak_bytes(lambda: None) == 0


def test_activations_count_as_often_as_they_are_kept(chain):
    samples = 5000
    x = DOUBLE * samples * 4 * 3  # coordinates keep their type until a network casts them, which this one does not
    short, long = chain(10, 1, samples), chain(30, 1, samples)
    assert long - short == pytest.approx(20 * x)
    assert 10 * x < short < 16 * x  # the loss and its derivative add a few


def test_weights_count_with_gradient_and_moments(chain):
    """The weight, its gradient and two moments; the fused Adam needs nothing else."""
    weights = 10**6
    assert chain(1, weights, 1) == pytest.approx(4 * FLOAT * weights, rel=1e-3)


def test_larger_algebras_need_more(capfd):
    bodies = stand_in(BODIES | {"tokens": 16}, 8)
    before = torch.get_rng_state()
    found = {
        m: training_memory_mb(replace(recipe("laptop", m), batch=8, origin="mass"), bodies) for m in ("E", "P", "iP", "C")
    }
    assert found["E"] < found["P"] < found["iP"] < found["C"]
    assert found["C"] > 2 * found["E"]
    assert found["E"] == training_memory_mb(replace(recipe("laptop", "E"), batch=8, origin="mass"), bodies)
    assert torch.equal(before, torch.get_rng_state())
    said = [line for line in capfd.readouterr().err.splitlines() if not line.startswith("anygatr: building C kernels")]
    assert not said


def test_halved_numbers_need_less():
    """Where torch operations do the work; C keeps fewer numbers than autocast does halved ones."""
    bodies, made = stand_in(BODIES, 32), recipe("laptop", "E")
    with anygatr.backend("torch"):
        assert training_memory_mb(replace(made, precision="bf16"), bodies) < training_memory_mb(made, bodies)


def test_rows_of_old_get_the_same_number_without_their_data(tmp_path):
    """A run as it is, and its row with the peak of the process, completed from random numbers of the same shapes."""
    from anygatr.lab.training.train import train

    data = drift(tmp_path / "drift.npz")
    small = {"blocks": 1, "mv": 2, "s": 4, "heads": 2, "batch": 8, "steps": 2, "threads": 1}
    asked = TrainConfig(data=str(data), out=str(tmp_path / "run"), model="E", **DRIFT, **small)
    row = train(asked)
    assert "peak_memory_mb" not in row
    old = {key: value for key, value in row.items() if key != "training_memory_mb"} | {"peak_memory_mb": 440.0}
    (tmp_path / "cmp" / "rows").mkdir(parents=True)
    source = spec_of(asked).to_json()
    (tmp_path / "cmp" / "experiment.json").write_text(json.dumps({"data": BODIES, "source": source}))
    path = tmp_path / "cmp" / "rows" / "E-40-0.json"
    path.write_text(json.dumps(old))
    assert complete(tmp_path / "cmp") == 1
    new = json.loads(path.read_text())
    assert new.pop("training_memory_mb") == pytest.approx(row.pop("training_memory_mb"), rel=1e-3)
    assert new == json.loads(json.dumps(row))
    assert complete(tmp_path / "cmp") == 0
