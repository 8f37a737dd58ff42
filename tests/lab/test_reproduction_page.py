"""docs/reproduction.md: written from the committed rows alone, and its verdicts follow from numbers, not from hope."""

import json
import shutil
from dataclasses import replace
from math import ceil, log
from pathlib import Path

import pytest
from samples import DRIFT, drift

from anygatr.lab.comparison.compare import compare as run
from anygatr.lab.config.commands import CompareConfig, TrainConfig
from anygatr.lab.report.row_files import PACKED, ROWS, pack_rows, read_rows, unpack_rows
from anygatr.lab.report.rows import ResultRow, load
from benchmarks.nbody.reproduction.claims import Claim, claims, compare
from benchmarks.nbody.reproduction.decided import Decided, with_errors
from benchmarks.nbody.reproduction.experiments import EXPERIMENTS, quick_commands
from benchmarks.nbody.reproduction.lessons import lessons_page
from benchmarks.nbody.reproduction.page import OFFICIAL, page
from benchmarks.nbody.reproduction.results import Results, keep_rows
from benchmarks.nbody.write_page import with_table

ROOT = Path(__file__).parents[2]


def row(model: str, size: int, seed: int, error: float, **record: float) -> ResultRow:
    metrics = {split: {"mse": error, "median": error, "trimmed": error} for split in ("train", "val", "eval")}
    return ResultRow(model, size, seed, True, None, {"metrics": metrics, **record})


def rows(errors: dict[str, float], noise: tuple[float, ...] = (1.0, 1.1, 0.9), power: float = -0.2) -> tuple[ResultRow, ...]:
    """Every model at every size, with the same noise for all at a seed and a little of its own."""
    return tuple(
        row(model, size, seed, error * size**power * factor * (1 + 0.01 * (seed + i)))
        for i, (model, error) in enumerate(errors.items())
        for size in (100, 300, 1000, 3000, 10000)
        for seed, factor in enumerate(noise)
    )


def nothing() -> dict[str, tuple[ResultRow, ...]]:
    return dict.fromkeys(EXPERIMENTS, ())


def test_the_page_is_what_the_committed_rows_say():
    found = page(Results.read(ROOT))
    assert found == (ROOT / "docs/reproduction.md").read_text(), "run: python -m benchmarks.nbody.write_page"
    for picture in ("reproduction-nbody.svg", "reproduction-ablations.svg", "reproduction-decided.svg"):
        assert (ROOT / "docs/img" / picture).exists()


def test_the_table_of_algebras_is_what_the_committed_rows_say():
    shown = (ROOT / "docs/which-algebra.md").read_text()
    decided = Decided.read(ROOT)
    assert with_table(shown, decided) == shown, "run: python -m benchmarks.nbody.write_page"
    readme = (ROOT / "README.md").read_text()
    assert with_errors(readme, decided) == readme, "run: python -m benchmarks.nbody.write_page"
    fewer = replace(decided, rows=tuple(r for r in decided.rows if (r.model, r.size) != ("iP", 100)))
    assert "| **0.00223** |" in with_errors(readme, fewer)


def test_what_we_learned_is_what_the_committed_rows_say(tmp_path):
    results = Results.read(ROOT)
    shown = (ROOT / "docs/what-we-learned.md").read_text()
    assert lessons_page(results, ROOT) == shown, "run: python -m benchmarks.nbody.write_page"
    assert "–" not in shown.replace("0–", ""), "a number without rows"
    fewer = {**results.rows, "variants": tuple(r for r in results.rows["variants"] if r.seed < 2)}
    assert lessons_page(replace(results, rows=fewer), ROOT) != shown


def test_models_trained_until_they_are_done_are_in_charge():
    """Whatever the short runs say; and what is open names the runs that would decide it."""
    baselines = {"transformer": 9.0, "se3_transformer": 5.0, "segnn": 4.0}
    as_claimed = {"iP": 1.0, "C": 1.1, "E": 2.0, "P": 20.0} | baselines
    opposite = rows({model: 1 / error for model, error in as_claimed.items()})
    judged = claims(nothing() | {"figure": opposite, "decided": rows(as_claimed)})
    errors = [claim for claim in judged if claim.experiment == "decided"]
    assert [claim.verdict for claim in errors[:5]] == ["agree"] * 5
    assert all(claim.runs == {} for claim in errors[:5])
    one_seed = tuple(r for r in rows(as_claimed) if r.seed == 0 and r.model != "segnn" and r.size in (100, 1000, 10000))
    ahead, baseline, enough = claims(nothing() | {"decided": one_seed})[:3]
    assert (ahead.verdict, ahead.runs) == ("not yet decided", {"E": 1, "iP": 1, "C": 1})
    assert (baseline.verdict, baseline.runs["segnn"]) == ("not run yet", 3)
    assert enough.runs == {"transformer": 2, "se3_transformer": 2, "segnn": 3, "E": 2, "iP": 2, "C": 2}


def test_an_interval_says_how_many_more_factors_it_needs():
    """Factors around 1.1 that spread by as much: the interval has to shrink by as much as it overlaps."""
    better = [row("b", 100, seed, 1.0) for seed in range(4)]
    worse = [row("a", 100, seed, error) for seed, error in enumerate((0.9, 1.0, 1.2, 1.3))]
    comparison = compare(worse, better, "a over b")
    low, high = log(comparison.factor.low), log(comparison.factor.high)
    assert comparison.verdict == "not yet decided"
    assert comparison.more == ceil(4 * ((high - low) / (high + low)) ** 2) - 4 > 0
    assert comparison.runs == {"a": comparison.more, "b": comparison.more}


def test_another_row_gives_another_page(tmp_path):
    """Negative control: the page notices a single changed number."""
    shutil.copytree(ROOT / "results/quick", tmp_path / "results/quick")
    before = page(Results.read(tmp_path))
    path = tmp_path / "results/quick/iP.json"
    record = json.loads(path.read_text())
    assert "| iP-GATr | 0.0005 |" in before
    record["metrics"]["eval"]["mse"] = 2 * OFFICIAL["eval"]
    path.write_text(json.dumps(record))
    after = page(Results.read(tmp_path))
    line = next(line for line in after.splitlines() if line.startswith("| iP-GATr | 0.0005 |"))
    assert "disagree" in line
    assert after != before


@pytest.mark.parametrize(
    ("factors", "wanted", "verdict"),
    [
        ((2.0, 2.2, 1.9), {}, "agree"),
        ((0.5, 0.45, 0.55), {}, "disagree"),
        ((0.9, 1.1, 1.2), {}, "not yet decided"),
        ((2.0, 2.2), {}, "not yet decided"),
        ((1.0, 1.02, 0.98), {"low": 0.8, "high": 1.25}, "agree"),
        ((1.9, 2.0, 2.1), {"low": 0.8, "high": 1.25}, "disagree"),
        ((), {}, "not run yet"),
    ],
)
def test_verdicts(factors, wanted, verdict):
    better = [row("b", 100, seed, 1e-3) for seed in range(len(factors))]
    worse = [row("a", 100, seed, 1e-3 * factor) for seed, factor in enumerate(factors)]
    comparison = compare(worse, better, "a over b", **wanted)
    assert comparison.verdict == verdict
    assert Claim("", "", (comparison,)).verdict == verdict


def test_only_rows_of_the_same_data_and_seed_are_compared():
    worse, better = [row("a", 100, 0, 2.0), row("a", 300, 1, 8.0)], [row("b", 100, 0, 1.0), row("b", 300, 0, 1.0)]
    assert compare(worse, better, "").count == 1
    failed = [ResultRow("a", 100, 0, False, "diverged", {})]
    assert compare(failed, better, "").factor is None
    assert compare(failed, better, "").verdict == "not yet decided"


def test_three_failures_are_worse_than_any_error():
    better = [row("b", 100, seed, 1.0) for seed in range(3)]
    failed = [ResultRow("a", 100, seed, False, "diverged", {}) for seed in range(3)]
    assert compare(failed, better, "a over b").verdict == "agree"
    assert compare(failed, better, "a over b", low=0.0, high=1.25).verdict == "disagree"
    assert str(compare(failed, better, "a over b")) == "a over b: 3 runs failed"


def test_claims_of_the_paper_hold_for_the_paper_s_world_and_fail_in_the_opposite_one():
    baselines = {"transformer": 9.0, "se3_transformer": 5.0, "segnn": 4.0}
    as_claimed = {"iP": 1.0, "C": 1.1, "E": 2.0, "P": 20.0} | baselines
    opposite = {model: 1 / error for model, error in as_claimed.items()}
    for world, verdict in ((as_claimed, "agree"), (opposite, "disagree")):
        judged = {claim.says: claim.verdict for claim in claims(nothing() | {"figure": rows(world)})}
        for says in (
            "iP- and C-GATr are more sample efficient than E-GATr",
            "... and than all baselines",
            "With enough data E-, iP- and C-GATr match or outperform SE(3)-Transformer, SEGNN and Transformer",
            "P-GATr does not perform well: behind iP- and C-GATr",
            "... and behind E-GATr",
        ):
            assert judged[says] == verdict
        flat = {claim.says: claim.verdict for claim in claims(nothing() | {"figure": rows(world, power=0.0)})}
        assert flat["iP- and C-GATr are more sample efficient than E-GATr"] == "not yet decided"
        assert flat["... and behind E-GATr"] == verdict
    assert {claim.verdict for claim in claims(nothing())} == {"not run yet"}


def test_a_diverged_run_counts_as_one_that_learned_nothing():
    """However far three runs diverged, by different powers of ten: they are worse than those that learned."""
    full = tuple(row("C", 1000, seed, error) for seed, error in enumerate((0.002, 0.004, 0.003)))
    half = tuple(row("C", 1000, seed, error) for seed, error in enumerate((0.3, 100.0, 1e6)))
    found = nothing() | {"variants": full, "bf16": half}
    for worst, verdict in ((0.03, "agree"), (float("inf"), "not yet decided")):
        assert {c.says: c.verdict for c in claims(found, worst)}["C-GATr needs float32"] == verdict


def test_commands_are_commands():
    """What the page prints parses, with the settings of the runs whose rows are committed."""
    import shlex

    import tyro

    for experiment in EXPERIMENTS.values():
        config = tyro.cli(CompareConfig, args=shlex.split(experiment.command)[2:])
        assert config.models == experiment.models
        assert config.out == experiment.out
    for path in (ROOT / "results/quick").glob("*.json"):
        record = json.loads(path.read_text())
        asked = tyro.cli(TrainConfig, args=shlex.split(quick_commands(path.stem)[0])[2:])
        made = asked.recipe(asked.model, asked.seed, asked.size, record["config"]["origin"])
        assert made.to_json() == record["config"]


def test_a_comparison_continues_from_committed_rows(tmp_path, capsys):
    """What `make reproduce-nbody` does in a fresh clone: rows are there, runs and weights are not."""
    out = tmp_path / "cmp"
    size = {"blocks": 1, "mv": 4, "s": 8, "heads": 2, "batch": 8, "steps": 2, "validate_every": 2, "sizes": (16,), "jobs": 1}
    asked = CompareConfig(data=str(drift(tmp_path / "drift.npz")), out=str(out), models=("E",), **DRIFT, **size)
    run(asked)
    keep_rows(out)
    shutil.rmtree(out / "runs")
    assert not (out / ROWS).exists()
    (first,) = (out / PACKED).read_text().splitlines()
    capsys.readouterr()
    run(replace(asked, seeds=2))
    assert "2 runs, 1 already finished" in capsys.readouterr().out
    assert [path.name for path in (out / "runs").iterdir()] == ["E-16-1"]
    keep_rows(out)
    again = (out / PACKED).read_text().splitlines()
    assert again[0] == first
    assert [(row["model"], row["size"], row["seed"]) for row in map(json.loads, again)] == [("E", 16, 0), ("E", 16, 1)]


def test_packed_rows_are_the_same_rows(tmp_path):
    """Read alike packed or not; packing is sorted and does not depend on what was there before."""
    source = ROOT / "results/ablations/bf16"
    shutil.copytree(source, tmp_path / "cmp")
    unpack_rows(tmp_path / "cmp")
    assert len(list((tmp_path / "cmp" / ROWS).iterdir())) == EXPERIMENTS["bf16"].runs
    assert load(tmp_path / "cmp").rows == load(source).rows
    assert pack_rows(tmp_path / "cmp").read_bytes() == (source / PACKED).read_bytes()
    assert not (tmp_path / "cmp" / ROWS).exists()
    (tmp_path / "cmp" / PACKED).unlink()
    assert load(tmp_path / "cmp").rows == ()


def test_a_file_counts_before_a_line_and_a_broken_line_is_named(tmp_path):
    record = {"model": "E", "size": 16, "seed": 0, "status": "failed", "error": "old"}
    (tmp_path / ROWS).mkdir()
    (tmp_path / PACKED).write_text(json.dumps(record) + '\n{"model": "E", "si\n3\n')
    (tmp_path / ROWS / "E-16-0.json").write_text(json.dumps(record | {"error": "new"}))
    found, problems = read_rows(tmp_path)
    assert [row["error"] for row in found.values()] == ["new"]
    assert [problem.split(" ")[0] for problem in problems] == ["rows.jsonl:2", "rows.jsonl:3"]
    for refuses in (unpack_rows, pack_rows):
        with pytest.raises(ValueError, match=r"rows\.jsonl:2 was skipped"):
            refuses(tmp_path)
