"""The demonstration: its plan fits two cores, it ends with a report that calls itself preliminary, and it continues."""

import json
from dataclasses import replace

import pytest

from anygatr.lab.comparison import demo as demonstration
from anygatr.lab.comparison.demo import BODIES, MODELS, demo, makespan
from anygatr.lab.config.commands import DemoConfig


@pytest.mark.parametrize(
    ("costs", "workers", "end"),
    [((3.0, 2.0, 2.0), 2, 4.0), ((2.0, 2.0, 3.0), 2, 5.0), ((5.0, 1.0), 4, 5.0), ((1.0, 2.0, 3.0), 1, 6.0)],
)
def test_jobs_start_when_a_worker_is_free(costs, workers, end):
    assert makespan(costs, workers) == end


def test_data_have_several_clusters_and_models_are_all_there():
    assert BODIES.clusters == "multi"
    assert BODIES.cluster_count > 1
    assert set(MODELS) == {"E", "P", "iP", "C", "transformer"}


def test_it_ends_with_a_preliminary_report_and_continues(tmp_path, monkeypatch):
    monkeypatch.setattr(demonstration, "BODIES", replace(BODIES, train=40, val=8, eval=8, generalization=8))
    monkeypatch.setattr(demonstration, "MODELS", ("E",))
    monkeypatch.setattr(demonstration, "MINUTES", 0.0)  # the fewest steps there are
    report = demo(DemoConfig(str(tmp_path)))
    assert "Preliminary" in report.read_text()
    row = next((tmp_path / "compare" / "rows").iterdir()).read_text()
    assert json.loads(row)["status"] == "ok"
    monkeypatch.setattr(demonstration, "step_seconds", lambda *_: pytest.fail("a plan is made once"))
    assert demo(DemoConfig(str(tmp_path))) == report
    assert next((tmp_path / "compare" / "rows").iterdir()).read_text() == row
