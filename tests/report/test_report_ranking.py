"""Marks, headline, advice and caveats: right on a comparison whose answer is known, and different when it changes."""

from io import StringIO

import pytest
from rich.console import Console
from synthetic import SEEDS, failed, row, write_comparison, write_row

from anygatr.lab.report import load, summarise
from anygatr.lab.report.advice import advice
from anygatr.lab.report.headline import caveats, headline
from anygatr.lab.report.ranking import rank
from anygatr.lab.report.theory import theory


def scaled(model, size, seed, factor):
    record = row(model, size, seed)
    for errors in record["metrics"].values():
        errors |= {name: factor * value for name, value in errors.items()}
    return record


def marks(experiment, criterion):
    found = {c.name: m for c, m in rank(experiment)}
    return {model: mark.marks for model, mark in found[criterion].items()}


@pytest.mark.parametrize("dim", [2, 3])
def test_solved_criteria_reproduce_the_papers_order(tmp_path, dim):
    found = load(write_comparison(tmp_path / "cmp", sizes=(100,), seeds=(0,), dim=dim, has_predictions=False))
    assert marks(found, "Expressivity") == {"E": 3, "P": 1, "iP": 3, "C": 3}
    assert marks(found, "Richness") == {"E": 1, "P": 2, "iP": 2, "C": 3}
    assert marks(found, "Simplicity") == {"E": 3, "P": 2, "iP": 1, "C": 1}


def test_theory_counts_the_papers_maps():
    assert [theory(name, 3).maps for name in ("E", "P", "iP", "C")] == [4, 9, 9, 20]
    assert (theory("P", 3).built, theory("P", 3).total) == (54, 58)
    assert theory("C", 4).total is None


def test_measured_marks_follow_the_multiples_of_the_best_algebra(experiment):
    assert marks(experiment, "Memory") == {"E": 3, "P": 2, "iP": 2, "C": 2, "transformer": 3}
    assert marks(experiment, "Speed") == {"E": 3, "P": 2, "iP": 2, "C": 1, "transformer": 3}
    assert marks(experiment, "Performance")["P"] == 1
    assert marks(experiment, "Performance")["C"] == 3


def test_divergence_spikes_and_large_coefficients_cost_stability(tmp_path):
    directory = write_comparison(tmp_path / "cmp", models=("E", "P", "iP", "C"), sizes=(100,), has_predictions=False)
    assert marks(load(directory), "Stability") == {"E": 3, "P": 3, "iP": 3, "C": 2}  # C: 7 spikes in 6000 steps
    write_row(directory, failed("E", 100, 0, "not finite", nonfinite=True))
    write_row(directory, row("P", 100, 0) | {"max_coefficient": 3e5, "spikes": 40})
    assert marks(load(directory), "Stability") == {"E": 1, "P": 1, "iP": 3, "C": 2}


def test_a_mark_that_another_seed_might_change_is_unsure(tmp_path):
    one = load(write_comparison(tmp_path / "one", sizes=(100,), seeds=(0,), has_predictions=False))
    performance = {c.name: m for c, m in rank(one)}["Performance"]
    assert [mark.is_unsure for mark in performance.values()] == [model != "C" for model in performance]
    many = load(write_comparison(tmp_path / "many", sizes=(100,), seeds=tuple(range(8)), has_predictions=False))
    assert not {c.name: m for c, m in rank(many)}["Performance"]["P"].is_unsure


def test_headline_names_the_clear_winner_and_changes_with_the_rows(tmp_path):
    directory = write_comparison(tmp_path / "cmp", sizes=(3000,), has_predictions=False)
    for seed in SEEDS:
        write_row(directory, scaled("C", 3000, seed, 0.2))
    assert headline(load(directory)).winners == ("C",)
    for seed in SEEDS:
        write_row(directory, scaled("P", 3000, seed, 1e-3))
    found = headline(load(directory))
    assert found.answer == "P"
    assert "P-GATr has the lowest error of the algebras with 3,000 training samples" in found.sentences[0]


def test_headline_calls_a_tie_a_tie(tmp_path):
    directory = write_comparison(tmp_path / "cmp", models=("E", "iP", "C"), sizes=(3000,), has_predictions=False)
    for seed in SEEDS:
        errors = row("C", 3000, seed)["metrics"]
        write_row(directory, row("iP", 3000, seed) | {"metrics": errors})
    found = headline(load(directory))
    assert set(found.winners) == {"C", "iP"}
    assert any("within the noise" in sentence for sentence in found.sentences)


def test_headline_admits_a_better_baseline(tmp_path):
    directory = write_comparison(tmp_path / "cmp", sizes=(3000,), has_predictions=False)
    assert not any("no algebra" in sentence for sentence in headline(load(directory)).sentences)
    for seed in SEEDS:
        write_row(directory, scaled("transformer", 3000, seed, 0.01))
    assert any("Transformer, which is no algebra, is lower still" in s for s in headline(load(directory)).sentences)


def test_headline_boasts_of_nothing_small_and_offers_no_bad_bargain(tmp_path):
    directory = write_comparison(tmp_path / "cmp", models=("E", "C"), sizes=(3000,), has_predictions=False)
    plain = " ".join(headline(load(directory)).sentences)
    assert "× below no learning" in plain
    assert "If time matters most: E-GATr" in plain
    for seed in SEEDS:
        write_row(directory, scaled("E", 3000, seed, 100))
    best = load(directory).error("C", 3000).mean
    experiment = write_comparison(tmp_path / "poor", models=("C",), sizes=(3000,), data={"trivial_mse": 1.05 * best})
    assert "If time matters" not in " ".join(headline(load(directory)).sentences)
    assert "barely below no learning" in headline(load(experiment)).sentences[0]


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        ({"seeds": ()}, "No answer yet"),
        ({"models": ("transformer", "segnn")}, "No algebra took part"),
        ({"models": ("P",), "sizes": (10,)}, "None yet"),  # above the error without learning
        ({"models": ("E",)}, "E"),
    ],
)
def test_headline_without_a_contest(tmp_path, changes, answer):
    assert headline(load(write_comparison(tmp_path / "cmp", has_predictions=False, **changes))).answer == answer


def test_advice_has_one_sentence_per_criterion(experiment):
    found = dict(advice(experiment))
    assert {criterion.name for criterion, _ in rank(experiment)} <= set(found)
    assert {"Far away", "More objects"} <= set(found)
    assert "P-GATr cannot build 4 of its 58" in found["Expressivity"]
    assert "circles, pairs and spheres" in found["Richness"]
    assert "Transformer, the most, 300×" in found["Far away"]
    assert all(sentence.endswith(".") for sentence in found.values())


def test_advice_says_which_kinds_need_a_substitute(tmp_path):
    data = {"name": "poses", "dim": 3, "fields": {"wall": "plane"}, "targets": {"pose": "motor"}, "trivial_mse": 1.0}
    found = load(write_comparison(tmp_path / "cmp", models=("E", "C"), sizes=(100,), data=data, has_predictions=False))
    assert "E-GATr has only a substitute for motor and plane" in dict(advice(found))["Richness"]


def test_caveats_say_what_limits_the_answer(tmp_path):
    directory = write_comparison(tmp_path / "cmp", models=("E", "C"), sizes=(100,), has_predictions=False)
    (directory / "rows" / "E-100-2.json").unlink()
    write_row(directory, failed("C", 100, 1, "not finite", nonfinite=True))
    text = "\n".join(caveats(load(directory)))
    for part in (
        "Preliminary",
        "2 seeds",
        "equal training steps",
        "1 run failed, in no mean: C (100 samples, seed 1)",
        "1 run of",
    ):
        assert part in text
    quiet = write_comparison(tmp_path / "quiet", models=("E",), seeds=tuple(range(5)), preliminary=False, match="")
    assert [note[:7] for note in caveats(load(quiet))] == ["5 seeds"]


@pytest.mark.parametrize("changes", [{}, {"seeds": (0,)}, {"seeds": ()}, {"models": ("mine",)}, {"dim": 4}])
def test_terminal_summary(tmp_path, changes):
    console = Console(width=100, record=True, file=StringIO())
    console.print(summarise(write_comparison(tmp_path / "cmp", has_predictions=False, **changes)))
    assert "Which algebra?" in console.export_text()


def test_the_peak_of_a_process_is_not_taken_for_the_memory_of_a_model(tmp_path):
    """Rows written before memory was measured per step hold another quantity under another name: it is left out."""
    directory = write_comparison(tmp_path / "cmp", models=("E", "C"), sizes=(100,), seeds=(0,), has_predictions=False)
    for model in ("E", "C"):
        record = row(model, 100, 0)
        write_row(directory, {k: v for k, v in record.items() if k != "training_memory_mb"} | {"peak_memory_mb": 440.0})
    found = load(directory)
    assert "Memory" not in {criterion.name for criterion, _ in rank(found)}
    assert "Memory" not in dict(advice(found))
    console = Console(width=200, record=True, file=StringIO())
    console.print(summarise(directory))
    assert "440" not in console.export_text()
