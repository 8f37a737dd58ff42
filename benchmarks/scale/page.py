"""Table and figure of docs/scale.md, from the rows of `scale.large`: python -m benchmarks.scale.page."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.harness.files import PICTURES, ROOT, put
from benchmarks.scale import large
from benchmarks.speed.tables.networks import save

PAGE, PICTURE = ROOT / "docs" / "scale.md", PICTURES / "scale-large.svg"
COLOURS = {"exact": "#555555", "anchors": "#178a83", "pooled": "#c46a1b"}
Row = dict[str, Any]


def main() -> None:
    """Write the page's table and the picture."""
    costs = rows(large.ROWS)
    put(PAGE, between(PAGE.read_text(encoding="utf-8"), "costs", cost_table(costs)))
    save(figure(costs), PICTURE)


def rows(path: Path) -> list[Row]:
    """The rows of a file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def between(page: str, name: str, text: str) -> str:
    """The page with this text between the marks of a name."""
    start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, rest = page.split(start)
    return f"{before}{start}\n{text}\n{end}{rest.split(end)[1]}"


def cost_table(found: list[Row]) -> str:
    """Processor seconds and memory by tokens, a column for each kind of attention and what is computed."""
    columns = list(dict.fromkeys((row["attention"], row["what"]) for row in found))
    columns.sort(key=lambda column: (column[1] != "step", list(COLOURS).index(column[0])))
    known = {(row["attention"], row["what"], row["tokens"]): row for row in found}
    head = [f"{attention}, {'training step' if what == 'step' else what}" for attention, what in columns]
    body = [
        [f"{tokens:,}", *(_cell(known.get((*column, tokens))) for column in columns)]
        for tokens in sorted({row["tokens"] for row in found})
    ]
    return table(["tokens", *head], body)


def _cell(row: Row | None) -> str:
    return "" if row is None else f"{row['cpu_seconds']:.3g} s, {row['memory_mb']:,} MB"


def table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """In Markdown."""
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *body))


def figure(found: list[Row]) -> Figure:
    """Processor seconds and memory of a training step against tokens, both axes logarithmic."""
    out = Figure(figsize=(8, 3.2), layout="constrained")
    axes = out.subplots(1, 2)
    for ax, what, label in zip(axes, ("cpu_seconds", "memory_mb"), ("processor seconds", "MB"), strict=True):
        for name, colour in COLOURS.items():
            mine = sorted((r["tokens"], r[what]) for r in found if (r["attention"], r["what"]) == (name, "step"))
            ax.plot(*zip(*mine, strict=True), "o-", color=colour, label=name, ms=4)
        ax.set(xscale="log", yscale="log", xlabel="tokens of a sample", ylabel=f"{label} of a training step")
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False)
    return out


if __name__ == "__main__":
    main()
