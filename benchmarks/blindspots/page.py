"""The page of the matrix, made from its rows alone."""

from collections.abc import Sequence
from typing import Any

from benchmarks.blindspots.tasks import TASKS
from benchmarks.harness.files import ROOT, put

PAGE = ROOT / "docs" / "what-each-algebra-can-do.md"
SOLVED = 0.01  # of the variance of the target
UNLEARNED = 0.9
BOUND = 0.01  # a smaller bound by mirrors does not matter
MIRRORED, PROPER = ("E", "P", "iP", "C"), ("E-", "P-", "iP-", "C-")
FIRST = {
    "volume of the hull of 16 points": ("hull volume", 3),
    "the same in 5D": ("hull volume", 5),
    "a vector's length": ("length", 3),
    "signed volume of four points, as pseudoscalar": ("signed volume", 3),
    "a displacement from points and velocities": ("displacement", 3),
    "a molecule's energy from positions and charges": ("molecule", 3),
    "Cβ from N, CA and C, mirrors in the group": ("carbon beta", 3),
}
TITLES = {
    (3, MIRRORED): "Three dimensions, mirrors in the group",
    (3, PROPER): "Three dimensions, `mirrors=False`",
    (2, MIRRORED): "Two dimensions, mirrors in the group",
    (2, PROPER): "Two dimensions, `mirrors=False`",
    (5, MIRRORED): "Five dimensions",
}
INTRO = """# What each algebra can do

*For sceptics, and for those who choose an algebra by what it can and cannot learn.*

Thirty tasks of one line with closed forms, for every geometry: the practical twin of the paper's table of properties. Each
cell is a network of 2 blocks and 8 + 32 channels with invariants and a balanced start, trained for {steps} steps of 64 new
samples, some seconds on one core. A number is the mean squared error on new samples in percent of the target's variance.

| | |
|---|---|
| **0.3** | solved: below 1 % |
| 12 | learning |
| mirror 27 | bound by symmetry: predictions follow mirrors, which leaves 27 % at least; the number reached is in brackets |
| refused | said beforehand: no weights can fit it, and `model(...)` raises with the geometries that can |
| not learned | above 90 %, although nothing forbids it |
| – | not measured yet |

`anygatr.sight(geometry, inputs, targets)` and `anygatr advise` say before training what is refused, which inputs a target
cannot see, and whether it is bound by mirrors; `mirrors=False` lifts that bound. The tasks are in
`benchmarks/blindspots/tasks.py`, the rows in `results/blindspots/rows.jsonl`:

```bash
python -m benchmarks.blindspots.matrix run       # what has no row yet
python -m benchmarks.blindspots.matrix page
```

## What used to fail in silence

Before there were invariants at the door, these ended where a constant does, or were zero, without a word.

"""
WHY = """
## Why

A scalar that depends on points needs, in iP, attention to other points, then a join, then a product. The published start
makes attention a tenth as large as the rest and every layer a little smaller; two layers of products square that, and the
prediction varies over samples by 1e-11: a saddle, not a theorem. In P it is a theorem: nothing that translations leave alone
depends on points. Two changes are the default of `model(...)`:

* **invariants at the door** (`invariants=True`): distances to the origin, lengths, inner products and, without mirrors,
  signed volumes of a token's own fields are given to the scalar channels. They are smooth, and of the size of the data;
* **a balanced start** (`init="balanced"`): every layer keeps the variance; in C, which starts near the identity, half of it.
  The rows of C on this page were trained with all of it.

The paper's network is `model(..., invariants=False, init="paper")`, and that is what all reproductions use.

![Standard deviation that one input gives a prediction at the start, against blocks, before and after](img/sensitivity.svg)

Sensitivity of a new network's prediction to each input, float64, median of three seeds
(`python -m benchmarks.blindspots.sensitivity`). Grey is the aim, 0.01 to 1. Missing before: exactly zero, refused.

On the demonstration's n-body data, {n_steps} steps, mean evaluation error over {n_seeds} seed{plural}
(`python -m benchmarks.blindspots.defaults`):

{defaults}
"""


def verdict(row: dict[str, Any] | None) -> str:
    """The cell of a row."""
    if row is None:
        return "–"
    if "refused" in row:
        return "refused"
    error, bound = row["error"], row.get("bound", 0.0)
    text = _percent(error)
    if bound > BOUND:
        return f"mirror {_percent(bound)} ({text})"
    return f"**{text}**" if error < SOLVED else "not learned" if error > UNLEARNED else text


def write_page(rows: Sequence[dict[str, Any]], cells: Sequence[Any], defaults: Sequence[dict[str, Any]]) -> None:
    """The page, with a table for each dimension and group."""
    found = {(row["task"], row["dim"], row["geometry"]): row for row in rows}
    steps = sorted({row["steps"] for row in rows if "steps" in row})
    text = INTRO.format(steps=" or ".join(map(str, steps)) or "no")
    text += _table("", {label: [found.get((*key, geo)) for geo in MIRRORED] for label, key in FIRST.items()}, MIRRORED)
    n_steps = max((row["steps"] for row in defaults), default=0)
    chosen = [row for row in defaults if row["steps"] == n_steps]
    seeds = len({row["seed"] for row in chosen})
    text += WHY.format(n_steps=n_steps, n_seeds=seeds, plural="s" * (seeds != 1), defaults=_defaults(chosen))
    for (dim, geometries), title in TITLES.items():
        names = [name for name, task in TASKS.items() if dim in task.dims]
        table = {name: [found.get((name, dim, geo)) for geo in geometries] for name in names}
        text += f"\n## {title}\n\n" + _table(title, table, geometries)
    missing = sum((cell.task, cell.dim, cell.geometry) not in found for cell in cells)
    text += f"\n{len(cells) - missing} of {len(cells)} cells are measured.\n"
    put(PAGE, text)


def _table(title: str, table: dict[str, list[Any]], geometries: Sequence[str]) -> str:
    lines = ["| task | " + " | ".join(geo.rstrip("-") for geo in geometries) + " |", "|---" * (1 + len(geometries)) + "|"]
    lines += [f"| {name} | " + " | ".join(map(verdict, rows)) + " |" for name, rows in table.items()]
    return "\n".join(lines) + "\n"


def _defaults(rows: Sequence[dict[str, Any]]) -> str:
    variants = list(dict.fromkeys(row["variant"] for row in rows))
    lines = ["| | " + " | ".join(variants) + " |", "|---" * (1 + len(variants)) + "|"]
    for model in dict.fromkeys(row["model"] for row in rows):
        groups = [[r["error"] for r in rows if (r["model"], r["variant"]) == (model, v)] for v in variants]
        lines += [f"| {model} | " + " | ".join(f"{sum(g) / len(g):.4f}" if g else "–" for g in groups) + " |"]
    return "\n".join(lines)


def _percent(share: float) -> str:
    return f"{100 * share:.2g}" if share < 1 else f"{100 * share:.0f}"
