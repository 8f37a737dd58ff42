"""Write docs/benchmarks.md from results/peers/rows.jsonl and what others published.

python -m benchmarks.peers.write_page
"""

import json
from pathlib import Path
from statistics import median
from typing import Any

from anygatr.lab.report.palette import looks
from anygatr.lab.report.wording import count, number
from benchmarks.harness.files import ROOT, put
from benchmarks.nbody.reproduction.tables import table
from benchmarks.peers.published import PUBLISHED, Published
from benchmarks.peers.run import DECAY, RATES, ROWS, TASKS

PAGE = "docs/benchmarks.md"
FITTED = 3.0
"""An error on new samples so many times that on training samples: the samples are known by heart."""
Rows = list[dict[str, Any]]


def main() -> None:
    """Write the page."""
    put(ROOT / PAGE, page(read(ROOT)))
    print(ROOT / PAGE)


def read(root: Path) -> Rows:
    """The rows of runs that ended with an error."""
    path = root / ROWS
    found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [row for row in found if row["error"] is None]


def page(rows: Rows) -> str:
    """The whole page."""
    sections = [
        section(task, published, [row for row in rows if row["task"] == task]) for task, published in PUBLISHED.items()
    ]
    hours = sum(row["core_hours"] for row in rows)
    head = f"""# The peers' own benchmarks

What CGENN, GLGENN, EMLP and EGNN were measured on, with the samples, steps and batches of their tables. Rows in
`results/peers` by `python -m benchmarks.peers.run`, this page by `python -m benchmarks.peers.write_page`:
{count(len(rows), "run")}, {hours:.2f} core hours. Data by `anygatr data o3`, `o5`, `hulls` and `charged`, written from the
published definitions. We know of no GATr of any algebra that was published on them.

The learning rate is chosen for each task, size and model from {" and ".join(f"{rate:g}" for rate in RATES)}, on validation
data, and falls to {DECAY:g} of itself; else nothing was tuned. Numbers are mean squared errors, ours medians over seeds
with their range. CPU-s is the processor time of one training with its validations, on one core."""
    return "\n\n".join([head, *sections]) + "\n"


def section(task: str, published: Published, rows: Rows) -> str:
    """A benchmark: the published errors, ours, and what follows."""
    network = ", ".join(f"{key} {size}" for key, size in TASKS[task].network.items())
    models = sorted({row["model"] for row in rows})
    peers = list(dict.fromkeys(peer for errors in published.errors.values() for peer in errors))
    heads = ("samples", "steps, batch", *(label(model) for model in models), *peers)
    lines = []
    for size, (steps, batch) in TASKS[task].budgets.items():
        ours = (_errors(_of(rows, model, size), published.split) for model in models)
        theirs = (_published(published, peer, size) for peer in peers)
        lines.append((f"{size:,}", f"{steps:,}, {batch}", *ours, *theirs))
    costs = [_cost(model, size, _of(rows, model, size)) for model in models for size in TASKS[task].budgets]
    cost = table(("model", "samples", "seeds", "parameters", "CPU-s"), [line for line in costs if line])
    said = [sentence(published, model, size, _of(rows, model, size)) for model in models for size in TASKS[task].budgets]
    found = "\n".join(f"* {text}" for text in said if text)
    waits = f"No runs yet: `python -m benchmarks.peers.run --tasks {task}`."
    below = f"{found}\n\n{cost}\n\nOur network: {network}." if rows else waits
    return f"""## {published.title}

Target: {published.target}. Errors on {published.split} samples.

{table(heads, lines)}

{below} {published.note}"""


def sentence(published: Published, model: str, size: int, rows: Rows) -> str:
    """How far ahead or behind the best published error we are, and what the errors on training samples say of it."""
    if not rows or size not in published.errors:
        return ""
    best = min(published.errors[size], key=lambda peer: published.errors[size][peer])
    ours, theirs = median(row[published.split]["mse"] for row in rows), published.errors[size][best]
    if ours <= theirs:
        return f"{label(model)} at {size:,} samples: {number(theirs / ours, 2)} times below {best}, the best published."
    learned, new = (median(row["curve"][-1][i] for row in rows) for i in (1, 2))
    if new > FITTED * learned:
        reason = f"it fits its training samples ({number(learned)}) and not new ones: too few samples for this network"
    else:
        reason = (
            f"on training samples its error is as large ({number(learned)}): it has not finished learning in these steps"
        )
    return f"{label(model)} at {size:,} samples: **{number(ours / theirs, 2)} times above {best}**; {reason}."


def label(model: str) -> str:
    """What a model is called."""
    return looks([model])[model].label


def _of(rows: Rows, model: str, size: int) -> Rows:
    return [row for row in rows if row["model"] == model and row["size"] == size]


def _errors(rows: Rows, split: str) -> str:
    found = sorted(row[split]["mse"] for row in rows)
    if not found:
        return "–"
    return number(median(found)) + (f" ({number(found[0])}–{number(found[-1])})" if len(found) > 1 else "")


def _published(published: Published, peer: str, size: int) -> str:
    found = published.errors.get(size, {}).get(peer)
    return "–" if found is None else f"{found:g}"


def _cost(model: str, size: int, rows: Rows) -> tuple[str, ...]:
    if not rows:
        return ()
    seconds = median(3600 * row["core_hours"] for row in rows)
    return (label(model), f"{size:,}", f"{len(rows)}", f"{rows[0]['parameters']:,}", number(seconds, 2))


if __name__ == "__main__":
    main()
