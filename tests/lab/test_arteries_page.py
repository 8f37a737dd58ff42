"""The artery page is what the committed rows say, and counts only pairs of models that the seeds tell apart."""

from anygatr.lab.report.row_files import read_rows
from benchmarks.arteries import write_page
from benchmarks.arteries.run import PAGE, ROWS, _agreement, table
from benchmarks.harness.files import ROOT


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


def decided(model: str, error: float, size: int = 800) -> dict:
    splits = {split: {"approximation": error} for split in ("training", "evaluation", "full_resolution")}
    return splits | {
        "model": model,
        "size": size,
        "parameters": 1,
        "steps": 10,
        "core_hours": 1.0,
        "stopped": "cap",
        "arteries": 1000,
    }


def test_the_section_on_models_trained_until_done_is_what_the_rows_say():
    shown = write_page.PAGE.read_text()
    assert write_page.with_section(shown, write_page.read(ROOT)) == shown, "run: python -m benchmarks.arteries.write_page"
    assert "about 8 core hours" in write_page.section([])


def test_pairs_in_the_paper_s_order_are_counted_and_what_is_open_has_its_cost():
    rows = [decided("iP", 0.10), decided("E", 0.20), decided("P", 0.15), decided("P", 0.5, size=200)]
    text = write_page.section(rows)
    assert "| iP-GATr | 5.5 | – | 10.0 |" in text
    assert "2 have its order" in text  # iP before E, iP before P
    assert "Against it: P-GATr before E-GATr" in text
    assert "about 4.8 core hours, which leaves 17 pairs open" in text
    assert "Seeds overlap: iP-GATr and P-GATr" in write_page.section([*rows, decided("P", 0.09)])
