"""The figure of sensitivities before and after, from their rows."""

import json
from statistics import median

from matplotlib.figure import Figure

from benchmarks.harness.files import PICTURES, RESULTS

SHOWN = ("cloud to number", "cloud to point", "bodies to vector", "bodies to number", "vector to number", "planes to number")
COLOURS = {"E": "#4c72b0", "P": "#dd8452", "iP": "#55a868", "C": "#c44e52"}
FLOOR = 1e-12  # what is below is shown there


def draw() -> None:
    """One panel for each question and variant, one line for each geometry: its weakest input."""
    path = RESULTS / "blindspots" / "sensitivity.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    figure = Figure(figsize=(12, 5.4), layout="constrained")
    axes = figure.subplots(2, len(SHOWN), sharex=True, sharey=True)
    for line, variant in enumerate(("faithful", "default")):
        for column, question in enumerate(SHOWN):
            ax = axes[line][column]
            ax.axhspan(0.01, 1, color="0.9")
            for name, colour in COLOURS.items():
                chosen = [
                    row
                    for row in rows
                    if (row["variant"], row["question"], row["geometry"]) == (variant, question, name)
                    and row["mirrors"]
                    and "sensitivity" in row
                ]
                weakest = [max(min(median(x) for x in row["sensitivity"].values()), FLOOR) for row in chosen]
                ax.plot([row["blocks"] for row in chosen], weakest, "o-", color=colour, label=name, markersize=3)
            ax.set_xscale("log", base=2)
            ax.set_yscale("log")
            ax.set_title(question if not line else "", fontsize=9)
            ax.set_xlabel("blocks" if line else "")
        axes[line][0].set_ylabel(f"{'before' if not line else 'after'}: weakest input")
    axes[1][-1].legend(fontsize=8)
    PICTURES.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURES / "sensitivity.svg", metadata={"Date": None})
