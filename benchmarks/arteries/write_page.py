"""Write the section on models trained until they are done into docs/arteries.md, from results/arteries-decided/rows.jsonl.

python -m benchmarks.arteries.write_page
"""

import json
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

from anygatr.lab.report.palette import KNOWN
from anygatr.lab.report.wording import listing, number
from benchmarks.arteries.decide import ARTERIES, MODELS, ROWS, RULE
from benchmarks.arteries.run import PAPER
from benchmarks.harness.files import ROOT, put
from benchmarks.nbody.reproduction.tables import table

PAGE = ROOT / "docs" / "arteries.md"
START, END = "<!-- decided -->", "<!-- end of decided -->"
Rows = list[dict[str, Any]]


def main() -> None:
    """Write the section."""
    put(PAGE, with_section(PAGE.read_text(), read(ROOT)))
    print(PAGE)


def read(root: Path) -> Rows:
    """The rows of the largest set of arteries that ended with an error."""
    path = root / ROWS
    found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    most = max((row["arteries"] for row in found), default=0)
    return [row for row in found if row["arteries"] == most and row["error"] is None]


def with_section(page: str, rows: Rows) -> str:
    """The page with the section of these rows between its marks."""
    before, rest = page.split(START)
    return f"{before}{START}\n{section(rows)}\n{END}{rest.split(END)[1]}"


def section(rows: Rows) -> str:
    """Errors against the number of arteries, what they cost, and whose order is the paper's."""
    if not rows:
        hours = len(MODELS) * _planned()
        return (
            f"No rows yet: {len(MODELS)} models once on {ARTERIES:,} arteries are about {hours:.0f} core hours, choices "
            "included, and the arteries one."
        )
    sizes = sorted({row["size"] for row in rows})
    ranked = sorted({row["model"] for row in rows}, key=lambda model: _error(rows, model))
    errors = [(KNOWN[m].label, f"{PAPER[m]}", *(_percent(_of(rows, m, size)) for size in sizes)) for m in ranked]
    costs = [_cost(_of(rows, model)) for model in ranked]
    heads = ("model", "parameters", "steps", "core hours", "training, %", "full resolution, %", "stopped by")
    return f"""{rows[0]["arteries"]:,} arteries; the same tenth to test for all. Approximation error on test arteries, in
percent, against the number of training arteries, medians over seeds:

{table(("model", "paper (1,600)", *(f"{size:,}" for size in sizes)), errors)}

{table(heads, costs)}

{agreement(rows)}"""


def agreement(rows: Rows) -> str:
    """Which of the pairs that the paper ranks have its order, and what the others would take."""
    pairs = [(a, b) if PAPER[a] < PAPER[b] else (b, a) for a, b in combinations(PAPER, 2) if PAPER[a] != PAPER[b]]
    size = max(row["size"] for row in rows)
    found = {m: [row["evaluation"]["approximation"] for row in _of(rows, m, size)] for m in PAPER}
    known = [(a, b) for a, b in pairs if found[a] and found[b]]
    same = [(a, b) for a, b in known if max(found[a]) < min(found[b])]
    against = [(a, b) for a, b in known if min(found[a]) > max(found[b])]
    overlap = [(a, b) for a, b in known if (a, b) not in (*same, *against)]
    said = [f"Of the {len(pairs)} pairs that the paper ranks, {len(same)} have its order at {size:,} arteries."]
    if against:
        said.append(f"Against it: {'; '.join(f'{KNOWN[b].label} before {KNOWN[a].label}' for a, b in against)}.")
    if overlap:
        said.append(f"Seeds overlap: {'; '.join(f'{KNOWN[a].label} and {KNOWN[b].label}' for a, b in overlap)}.")
    if missing := [m for m in PAPER if not found[m]]:
        hours = _planned() * len(missing)
        said.append(
            f"Not run yet: {listing([KNOWN[m].label for m in missing])}, about {hours:.1f} core hours, which leaves "
            f"{len(pairs) - len(known)} pairs open."
        )
    return " ".join(said)


def _planned() -> float:
    """Core hours of a model without rows: a run to the cap and its choices."""
    return RULE.core_hours * (1 + RULE.choice * (len(RULE.rates) + len(RULE.units) - 1))


def _of(rows: Rows, model: str, size: int | None = None) -> Rows:
    return [row for row in rows if row["model"] == model and size in (None, row["size"])]


def _error(rows: Rows, model: str) -> float:
    own = _of(rows, model)
    most = max(row["size"] for row in own)
    return median(row["evaluation"]["approximation"] for row in own if row["size"] == most)


def _percent(rows: Rows, split: str = "evaluation") -> str:
    return f"{100 * median(row[split]['approximation'] for row in rows):.1f}" if rows else "–"


def _cost(rows: Rows) -> tuple[str, ...]:
    most = max(row["size"] for row in rows)
    largest = [row for row in rows if row["size"] == most]
    steps, hours = (median(row[key] for row in largest) for key in ("steps", "core_hours"))
    errors = (_percent(largest, split) for split in ("training", "full_resolution"))
    stopped = listing(sorted({row["stopped"] for row in largest}))
    first = largest[0]
    return (KNOWN[first["model"]].label, f"{first['parameters']:,}", f"{steps:,.0f}", number(hours, 2), *errors, stopped)


if __name__ == "__main__":
    main()
