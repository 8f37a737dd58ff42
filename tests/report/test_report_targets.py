"""The report's numbers: every target of every model above what predictors without training achieve."""

import json

import pytest
from synthetic import write_comparison

from anygatr.lab.report import write_report
from anygatr.lab.report.numbers import numbers_table
from anygatr.lab.report.rows import load


def enriched(directory, several: bool):
    """A comparison whose rows and experiment have the numbers that older ones lack."""
    write_comparison(directory, models=("E", "C"), sizes=(100,), seeds=(0, 1))
    one = {"rmse": 0.2, "mae": 0.1, "r2": 0.9}
    extra = {"targets": {"energy": one, "forces": {**one, "r2": -0.5}}} if several else one
    for path in (directory / "rows").iterdir():
        row = json.loads(path.read_text())
        row["metrics"]["eval"] |= extra
        path.write_text(json.dumps(row))
    path = directory / "experiment.json"
    asked = json.loads(path.read_text())
    asked["data"]["baselines"] = {"eval": {"mean": {"mse": 1.0} | extra, "linear": {"mse": 0.5} | extra}}
    asked["data"]["units"] = {"energy": "eV"}
    if several:
        asked["data"]["targets"] = {"energy": "scalar", "forces": "vector"}
    path.write_text(json.dumps(asked))
    return directory


@pytest.mark.parametrize("several", [False, True])
def test_models_stand_above_what_they_must_beat(tmp_path, several):
    table = numbers_table(load(enriched(tmp_path / "cmp", several)))
    assert [row[0] for row in table[1:]][-2:] == ["(mean)", "(linear)"]
    assert {row[0] for row in table[1:3]} == {"E-GATr", "C-GATr"}
    if several:
        assert table[0] == ["", "energy RMSE [eV]", "energy MAE [eV]", "energy R²", "forces RMSE", "forces MAE", "forces R²"]
        assert table[1][1:] == ["0.200", "0.100", "0.900", "0.200", "0.100", "−0.500"]
    else:
        assert table[0] == ["", "RMSE", "MAE", "R²"]
    assert "What an error must beat" in write_report(tmp_path / "cmp").read_text()


def test_rows_from_before_have_no_such_table(tmp_path):
    directory = write_comparison(tmp_path / "cmp", models=("E",), sizes=(100,), seeds=(0,))
    assert numbers_table(load(directory)) == []
    assert "What an error must beat" not in write_report(directory).read_text()


def test_a_blind_model_is_not_ranked_and_the_command_line_says_so(tmp_path):
    from anygatr.lab.report.headline import caveats, headline
    from anygatr.lab.report.ranking import by_error

    directory = write_comparison(tmp_path / "cmp", models=("E", "P"), sizes=(100,), seeds=(0,))
    for path in (directory / "rows").iterdir():
        row = json.loads(path.read_text())
        if row["model"] == "P":
            row |= {"blind": True, "equivariance": 1e-30}
            row["metrics"]["eval"]["mse"] = 1e-9
            path.write_text(json.dumps(row))
    found = load(directory)
    assert [model for model, _ in by_error(found)] == ["E"]
    assert headline(found).winners == ("E",)
    assert any("P-GATr is blind here" in note for note in caveats(found))
    from anygatr.lab.report.figures import equivariance_figure

    view = equivariance_figure(found).views["Equivariance"]
    assert "P-GATr" not in json.dumps(view.traces)
