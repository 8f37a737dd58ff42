"""The artery page is what the committed rows say, and counts only pairs of models that the seeds tell apart."""

from anygatr.lab.report.row_files import read_rows
from benchmarks.arteries.run import PAGE, ROWS, _agreement, table


def rows(**errors: tuple[float, float]) -> list[dict]:
    return [
        {"model": model, "seed": seed, "metrics": {"eval": {"approximation": error}}}
        for model, both in errors.items()
        for seed, error in enumerate(both)
    ]


def test_the_table_is_what_the_committed_rows_say():
    found, problems = read_rows(ROWS)
    assert not problems
    assert table(list(found.values())) in PAGE.read_text(), "run: python -m benchmarks.arteries.run --table"


def test_only_pairs_that_every_seed_tells_apart_are_ranked():
    apart = rows(iP=(0.1, 0.2), E=(0.3, 0.4), P=(0.5, 0.6))
    assert "Of the 3 pairs of models that the paper ranks, 3 have" in _agreement(apart, ["iP", "E", "P"])
    overlapping = rows(iP=(0.1, 0.35), E=(0.3, 0.4), P=(0.5, 0.6))
    said = _agreement(overlapping, ["iP", "E", "P"])
    assert "2 have" in said
    assert said.endswith("Seeds overlap: iP-GATr and E-GATr.")
    assert "Against the paper: P-GATr before E-GATr." in _agreement(rows(P=(0.1, 0.2), E=(0.3, 0.4)), ["P", "E"])
