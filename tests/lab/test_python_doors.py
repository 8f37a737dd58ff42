"""What the commands do, from Python: the same arguments, and rows instead of files to read."""

import json

import numpy as np
import pytest

from anygatr import lab

SMALL = {"blocks": 1, "mv": 2, "s": 4, "heads": 2, "batch": 4, "steps": 2}
FIELDS = {"inputs": ["place:point"], "target": ["force:vector"]}


@pytest.fixture
def springs(tmp_path) -> str:
    x = np.random.default_rng(0).normal(size=(20, 2, 3))
    np.savez(tmp_path / "springs.npz", place=x, force=x[:, ::-1] - x)
    return str(tmp_path / "springs.npz")


def test_train_returns_the_row_and_predict_the_fields(springs, tmp_path):
    out = tmp_path / "run"
    row = lab.train(data=springs, model="E", out=str(out), threads=1, **FIELDS, **SMALL)
    assert json.loads((out / "result.json").read_text()) == json.loads(json.dumps(row))
    fields = lab.predict(str(out), springs, out=str(tmp_path / "p.npz"))
    assert np.array_equal(fields["force"], np.load(tmp_path / "p.npz")["force"])


def test_compare_returns_a_row_per_run(springs, tmp_path):
    out = tmp_path / "cmp"
    rows = lab.compare(data=springs, models=["E", "transformer"], sizes=[8], jobs=2, out=str(out), **FIELDS, **SMALL)
    assert [(row["model"], row["size"], row["status"]) for row in rows] == [("E", 8, "ok"), ("transformer", 8, "ok")]
    assert (out / "report.html").exists()
