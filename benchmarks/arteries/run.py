"""The artery experiment: seven models, two seeds, equal steps but for GEM-CNN; its table beside the paper's.

python -m benchmarks.arteries.run            # data, training, report, rows and table; continues where it stopped
python -m benchmarks.arteries.run --seeds 1  # the first seed only
python -m benchmarks.arteries.run --table    # only the page, from the rows in results/arteries
"""

import argparse
import shutil
import statistics
from pathlib import Path

from anygatr.lab.comparison.compare import compare
from anygatr.lab.config.commands import CompareConfig
from anygatr.lab.data.arteries.config import ArteryConfig
from anygatr.lab.data.config import DataConfig
from anygatr.lab.data.make import make_data
from anygatr.lab.report.palette import KNOWN
from anygatr.lab.report.row_files import pack_rows, read_rows
from benchmarks.harness.files import RESULTS, ROOT, put

DATA, OUT = Path("data/arteries.h5"), Path("runs/arteries")
ARTERIES = 120
MODELS = ("iP", "C", "E", "P", "gem_cnn", "transformer", "pointnet2")
SEEDS = 2
PAPER = {"E": 6.2, "P": 7.2, "iP": 5.5, "C": 5.5, "transformer": 10.5, "pointnet2": 12.3, "gem_cnn": 7.7}
"""Mean approximation error in percent on the published arteries: table 1 of the paper."""
ROWS, PAGE = RESULTS / "arteries", ROOT / "docs" / "arteries.md"
START, END = "<!-- table -->", "<!-- end of table -->"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--jobs", type=int, help="runs at the same time; default: one per core, with one thread each")
    parser.add_argument("--table", action="store_true", help="only write the page from the rows that are there")
    chosen = parser.parse_args()
    if not chosen.table:
        if not DATA.exists():
            make_data(DataConfig(ArteryConfig(out=DATA, count=ARTERIES, workers=2)))
        compare(CompareConfig(data=str(DATA), models=MODELS, seeds=chosen.seeds, jobs=chosen.jobs, out=str(OUT)))
        keep_rows()
    write_page()


def keep_rows() -> None:
    """Copy what the table is made of: rows and the description of the experiment, no weights."""
    pack_rows(OUT, to=ROWS)
    shutil.copy(OUT / "experiment.json", ROWS)


def write_page() -> None:
    """Put the table and what it says between the marks of the page."""
    rows = [row for row in read_rows(ROWS)[0].values() if row["status"] == "ok"]
    before, rest = PAGE.read_text().split(START)
    _, after = rest.split(END)
    put(PAGE, f"{before}{START}\n{table(rows)}\n{END}{after}")
    print(f"{PAGE}: {len(rows)} runs")


def table(rows: list[dict]) -> str:
    """The measured table, best model first, and where its order agrees with the paper's."""
    ranked = sorted({row["model"] for row in rows}, key=lambda model: _mean(rows, model, "eval", "approximation"))
    lines = [
        "| model | paper, % | error, % | median | 75th | NMAE, % | cosine | full resolution, % | equivariance | parameters "
        "| minutes |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for model in ranked:
        own = [row for row in rows if row["model"] == model]
        cells = [f"{PAPER[model]}", _percent(own, "eval", "approximation")]
        cells += [_percent(own, "eval", name) for name in ("approximation_median", "approximation_p75", "nmae")]
        cells += [f"{_mean(own, model, 'eval', 'cosine'):.3f}", _percent(own, "full_resolution", "approximation")]
        cells += [f"{max(row['equivariance'] for row in own):.0e}", f"{own[0]['parameters']:,}"]
        cells += [f"{statistics.mean(row['seconds'] for row in own) / 60:.1f}"]
        lines.append(f"| {KNOWN[model].label} | {' | '.join(cells)} |")
    seeds = sorted({row["seed"] for row in rows})
    spread = "two numbers are the two seeds" if len(seeds) > 1 else "one seed"
    steps = sorted({row["steps"] for row in rows})
    head = f"{len(rows)} runs of {' and '.join(map(str, steps))} steps with one mesh each; {spread}; best first."
    return "\n".join(["", head, "", *lines, "", _agreement(rows, ranked), ""])


def _agreement(rows: list[dict], ranked: list[str]) -> str:
    """How many pairs have the paper's order, all seeds of the one being better than all of the other."""
    found = {model: [row["metrics"]["eval"]["approximation"] for row in rows if row["model"] == model] for model in ranked}
    pairs = [(a, b) for i, a in enumerate(ranked) for b in ranked[i + 1 :] if PAPER[a] != PAPER[b]]
    clear = [(a, b) for a, b in pairs if max(found[a]) < min(found[b])]
    agree = sum(PAPER[a] < PAPER[b] for a, b in clear)
    against = "; ".join(f"{KNOWN[a].label} before {KNOWN[b].label}" for a, b in clear if PAPER[a] > PAPER[b])
    undecided = "; ".join(f"{KNOWN[a].label} and {KNOWN[b].label}" for a, b in pairs if (a, b) not in clear)
    text = f"Predicting zero has an error of 100 %. Of the {len(pairs)} pairs of models that the paper ranks, {agree} have"
    text += " the same order here, every seed of the one before every seed of the other."
    text += f" Against the paper: {against}." if against else ""
    return text + (f" Seeds overlap: {undecided}." if undecided else "")


def _mean(rows: list[dict], model: str, split: str, name: str) -> float:
    return statistics.mean(row["metrics"][split][name] for row in rows if row["model"] == model)


def _percent(rows: list[dict], split: str, name: str) -> str:
    return " / ".join(f"{100 * row['metrics'][split][name]:.1f}" for row in sorted(rows, key=lambda row: row["seed"]))


if __name__ == "__main__":
    main()
