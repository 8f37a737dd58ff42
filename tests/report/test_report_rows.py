"""Reading a comparison directory, whole or broken."""

import json
import re

import pytest
from synthetic import MODELS, SEEDS, SIZES, failed, row, write_comparison, write_row

from anygatr.files.whole import replacing
from anygatr.lab.report import load, write_report


def test_reads_what_compare_wrote(experiment):
    assert experiment.models == MODELS
    assert experiment.algebras == MODELS[:4]
    assert experiment.sizes == SIZES
    assert (experiment.reference, experiment.seeds, experiment.pending) == (3000, len(SEEDS), 0)
    assert experiment.error("C", 3000).values == tuple(row("C", 3000, seed)["metrics"]["eval"]["mse"] for seed in SEEDS)
    assert set(experiment.predictions) == set(MODELS)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "holds no experiment.json; give what `anygatr compare --out` wrote"),
        ("{broken", "not a JSON file"),
        ("[]", "should be an object"),
        ('{"version": 99, "data": {}}', "has version 99, this report reads 1"),
    ],
)
def test_refuses_what_is_no_comparison(tmp_path, content, message):
    if content is not None:
        (tmp_path / "experiment.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        write_report(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"model": "C", "si', "Expecting|Unterminated"),
        ("3", "should be an object"),
        ('{"model": "C", "size": "many", "seed": 0, "status": "ok"}', 'size="many" should be'),
        ('{"size": 1, "seed": 0, "status": "ok"}', "model is missing"),
        (b"\xff\xfe\x00", "decode"),
    ],
)
def test_names_and_skips_a_corrupt_row(tmp_path, content, message):
    directory = write_comparison(tmp_path / "cmp", models=("E", "C"), sizes=(100,), seeds=(0, 1))
    path = directory / "rows" / "C-100-1.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    found = load(directory)
    assert len(found.finished) == 3
    assert found.pending == 1
    assert len(found.problems) == 1
    assert found.problems[0].startswith("rows/C-100-1.json was skipped: ")
    assert re.search(message, found.problems[0])
    page = write_report(directory).read_text(encoding="utf-8")
    assert "rows/C-100-1.json was skipped" in page


def test_names_and_skips_corrupt_predictions(tmp_path):
    directory = write_comparison(tmp_path / "cmp", models=("E", "C"), sizes=(100,))
    path = directory / "predictions" / "C.npz"
    path.write_bytes(path.read_bytes()[:200])
    found = load(directory)
    assert set(found.predictions) == {"E"}
    assert found.problems[0].startswith("predictions/C.npz was skipped")


def test_an_error_that_is_not_finite_is_a_failure(tmp_path):
    directory = write_comparison(tmp_path / "cmp", models=("E",), sizes=(100,), seeds=(0, 1))
    broken = row("E", 100, 1)
    broken["metrics"]["eval"]["mse"] = float("nan")
    write_row(directory, broken)
    found = load(directory)
    assert [r.seed for r in found.failed] == [1]
    assert found.error("E", 100).values == (row("E", 100, 0)["metrics"]["eval"]["mse"],)


def test_ranks_at_the_largest_size_most_models_finished(tmp_path):
    directory = write_comparison(tmp_path / "cmp", models=("E", "P", "C"), sizes=(100, 1000))
    assert load(directory).reference == 1000
    for seed in SEEDS:
        write_row(directory, failed("C", 1000, seed, "out of memory"))
    assert load(directory).reference == 100


def test_unfinished_temporary_files_are_no_rows(tmp_path):
    directory = write_comparison(tmp_path / "cmp", models=("E",), sizes=(100,), seeds=(0,))
    with replacing(directory / "rows" / "C-100-1.json") as temporary:
        temporary.write_text(json.dumps(row("C", 100, 0)))
        assert load(directory).models == ("E",)
        temporary.write_text(json.dumps(row("E", 100, 0)))
    (directory / "rows" / "C-100-0.json.part").write_text(json.dumps(row("C", 100, 0)))
    assert load(directory).models == ("E",)
