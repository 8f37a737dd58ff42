"""Thirty tasks with closed forms: they are what they say, and a few cells of the matrix are as its page shows them."""

import json

import pytest
import torch

from anygatr import geometry, model, sight
from benchmarks.blindspots.matrix import DEFAULTS, ROWS, cells, read_rows
from benchmarks.blindspots.page import PAGE, verdict, write_page
from benchmarks.blindspots.tasks import TASKS
from benchmarks.blindspots.training import Budget, cell, follows_mirrors, mirror_bound
from benchmarks.harness.files import RESULTS

SHORT = Budget(steps=60, batch=32, tested=128)


@pytest.mark.parametrize("name", TASKS)
def test_formulas_follow_rigid_motions(name):
    """Every answer moves with its question: a task that did not could not be learned by any of the networks."""
    from anygatr.spaces import kinds

    task = TASKS[name]
    for dim in task.dims:
        rng, space = torch.Generator().manual_seed(0), geometry("E", dim)
        fields, y = task.draw(4, dim, rng)
        turn = torch.linalg.qr(torch.randn(dim, dim, generator=rng, dtype=torch.float64)).Q
        turn[:, 0] *= torch.linalg.det(turn)
        shift = torch.randn(dim, generator=rng, dtype=torch.float64)
        moved = {key: kinds.move(space, task.inputs[key], x, turn, shift) for key, x in fields.items()}
        kind = task.target.partition("*")[0]
        bare = kinds.columns(space, kind) == 1
        expected = y if bare else kinds.move(space, kind, y, turn, shift)
        torch.testing.assert_close(task.formula(**moved), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("task", "name", "most"), [("distance", "iP", 0.05), ("length", "C", 0.1), ("midpoint", "P", 0.05)])
def test_cells_that_were_blind_learn(task, name, most):
    assert cell(TASKS[task], name, 3, True, SHORT)["error"] < most


def test_cells_that_no_weights_can_fit_are_refused():
    assert "cannot predict the vector" in cell(TASKS["displacement"], "P", 3, True, SHORT)["refused"]
    assert "mirrors=False" in cell(TASKS["signed area"], "P", 2, True, SHORT)["refused"]


def test_mirror_bounds():
    assert mirror_bound(TASKS["signed volume, scalar"], 3) == pytest.approx(1, abs=0.05)
    assert mirror_bound(TASKS["signed volume"], 3) < 1e-20
    assert follows_mirrors(TASKS["carbon beta"], "E", 3, True)
    assert not follows_mirrors(TASKS["carbon beta"], "E", 3, False)


def test_the_page_is_what_the_rows_say(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.blindspots.page.PAGE", tmp_path / "page.md")
    write_page(read_rows(ROWS), list(cells()), read_rows(DEFAULTS))
    assert (tmp_path / "page.md").read_text() == PAGE.read_text()
    assert verdict({"error": 0.3, "bound": 0.28}) == "mirror 28 (30)"
    assert verdict({"error": 0.005}) == "**0.5**"
    assert verdict({"refused": "no"}) == "refused"


def test_every_refusal_in_the_rows_is_still_said():
    for row in read_rows(ROWS):
        task, name = TASKS[row["task"]], row["geometry"]
        if row["dim"] == 3 and "refused" in row:
            said = sight(geometry(name.rstrip("-"), 3, not name.endswith("-")), task.inputs, {"y": task.target})["y"]
            assert not said.learnable, row


def test_a_new_network_is_sensitive_to_its_inputs():
    """The saddle of iP: 1e-11 as published, of order one now; stored rows say the same."""
    net = model("iP", {"x": "point"}, {"y": "scalar"}, (8, 32), 2, 4, per="sample").double()
    x = torch.randn(32, 8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert float(net(x=x)["y"].std()) > 0.01
    rows = [json.loads(line) for line in (RESULTS / "blindspots" / "sensitivity.jsonl").read_text().splitlines()]
    found = {
        row["variant"]: max(row["sensitivity"]["position"])
        for row in rows
        if (row["geometry"], row["mirrors"], row["question"], row["blocks"]) == ("iP", True, "cloud to number", 2)
    }
    assert found["faithful"] < 1e-9
    assert found["default"] > 0.01
