"""Tables and plots of docs/performance.md and docs/dev/speed.md about operations and scaling, from stored rows."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.harness.files import put
from benchmarks.speed.tables.networks import about, save, table

AXES = {
    "tokens": "tokens of one sample (8 mv, 32 s)",
    "channels": "multivector channels mv (8 mv scalars, 1024 tokens)",
    "blades": "blades",
}


def snippets(stored: dict[str, Any], folder: Path) -> str:
    """Write both tables; returns them."""
    rows = stored["rows"]
    limit = next(row for row in rows if row["kind"] == "limits")
    note = f"Matrix products reach {limit['gemm'] / 1e9:.0f} GFLOP/s here and copies {limit['copy'] / 1e9:.1f} GB/s. "
    busy = max(row["load"] for row in rows if "load" in row)
    shares = [
        (
            row["geometry"], row["configuration"], row["operation"], f"{1e3 * row['seconds']:.2f}",
            f"{100 * row['spread']:.0f} %", f"{row['gflops']:.1f}", f"{100 * row['of_gemm']:.0f} %",
            f"{100 * row['of_floor']:.0f} %",
        )
        for row in rows
        if row["kind"] == "share"
    ]  # fmt: skip
    header = ("geometry", "configuration", "operation", "ms", "±", "GFLOP/s", "of the GEMM rate", "of its floor")
    first = table(header, shares) + f"\n{note}{about(stored, busy)}\n"
    cost = [
        (AXES[row["along"]], row["value"], f"{1e3 * row['seconds']:.1f}", f"{100 * row['spread']:.0f} %")
        for row in rows
        if row["kind"] == "scaling"
    ]
    second = table(("against", "value", "ms per block", "±"), cost)
    put(folder / "speed-roofline.md", first)
    put(folder / "speed-scaling.md", second)
    return first + "\n" + second


def figures(stored: dict[str, Any], folder: Path) -> None:
    """Shares of the floor by operation, and three costs."""
    rows = stored["rows"]
    shares = [row for row in rows if row["kind"] == "share" and row["geometry"] == "iP"]
    figure = Figure(figsize=(7.5, 3.2), layout="constrained")
    ax = figure.add_subplot()
    operations = list(dict.fromkeys(row["operation"] for row in shares))
    for i, configuration in enumerate("abc"):
        of = {row["operation"]: row for row in shares if row["configuration"] == configuration}
        places = [j + 0.27 * (i - 1) for j in range(len(operations))]
        ax.bar(places, [100 * of[name]["of_floor"] for name in operations], 0.25, label=f"configuration {configuration}")
    ax.set_xticks(range(len(operations)), operations)
    ax.set_ylabel("floor / time, %")
    ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    save(figure, folder / "speed-roofline.svg")
    figure = Figure(figsize=(9.5, 3.2), layout="constrained")
    for i, (along, label) in enumerate(AXES.items()):
        _curve(
            figure.add_subplot(1, 3, i + 1),
            [row for row in rows if row["kind"] == "scaling" and row["along"] == along],
            label,
        )
    save(figure, folder / "speed-scaling.svg")


def _curve(ax: Any, rows: Iterable[dict[str, Any]], label: str) -> None:
    points = [(row["value"], 1e3 * row["seconds"]) for row in rows]
    ax.loglog(*zip(*points, strict=True), "o-", base=2)
    ax.set(xlabel=label, ylabel="ms per block, training")
    ax.set_xticks([x for x, _ in points], [f"{x:g}" for x, _ in points])
    ax.yaxis.set_major_formatter("{x:g}")
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
