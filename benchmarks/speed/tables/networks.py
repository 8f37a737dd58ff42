"""Tables and plots of docs/performance.md and docs/dev/speed.md about whole networks, from stored rows."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from benchmarks.harness.files import put
from benchmarks.harness.peak_memory import MIB
from benchmarks.harness.timing import spread
from benchmarks.speed.networks.arithmetic import multiply_adds
from benchmarks.speed.networks.contestants import COMPILED, CONFIGURATIONS
from benchmarks.speed.tables.targets import COMPILE, MEMORY, Row, Verdict, clock, verdicts

WHAT = {"train": "training step", "infer": "inference"}
NAMES = {"transformer": "Transformer", "lgatr": "lgatr 2.0.0", "dense": "dense einsum"}
Cells = tuple[Sequence[str], list[tuple[Any, ...]]]


def report(stored: dict[str, Any], console: Console) -> None:
    """Everything on the terminal."""
    for header, cells in (
        times(stored["rows"]),
        targets(stored["rows"]),
        memory(stored["rows"]),
        compilation(stored["rows"]),
    ):
        if cells:
            shown = Table(*header, box=SIMPLE)
            for row in cells:
                shown.add_row(*map(str, row))
            console.print(shown)
    console.print(about(stored, _busiest(stored["rows"])))


def snippets(stored: dict[str, Any], folder: Path) -> None:
    """The tables of the documentation."""
    note = f"\n{about(stored, _busiest(stored['rows']))}\n"
    peaks = {row["threads"]: row["flops"] / 1e9 for row in stored["rows"] if row["kind"] == "peak"}
    most = "".join(f" Threads: {threads}, at most {rate:.0f} GFLOP/s." for threads, rate in sorted(peaks.items()))
    for name, (header, cells) in {
        "speed-overview": overview(stored["rows"]),
        "speed-targets": targets(stored["rows"]), "speed-times": times(stored["rows"]),
        "speed-memory": memory(stored["rows"]), "speed-compile": compilation(stored["rows"]),
    }.items():  # fmt: skip
        put(
            folder / f"{name}.md",
            table(header, cells) + (f"\n{most.strip()}\n" if name == "speed-targets" and most else "") + note,
        )


def figures(stored: dict[str, Any], folder: Path) -> None:
    """Training steps on one thread, one panel for each configuration at the greatest depth measured."""
    figure = Figure(figsize=(9.5, 3.4), layout="constrained")
    for i, (name, size) in enumerate(CONFIGURATIONS.items()):
        ax = figure.add_subplot(1, len(CONFIGURATIONS), i + 1)
        wanted = {"kind": "time", "configuration": name, "threads": 1, "what": "train"}
        rows = [row for row in stored["rows"] if wanted.items() <= row.items()]
        blocks = max((row["blocks"] for row in rows), default=size.blocks)
        rows = [row for row in rows if row["blocks"] == blocks]
        for place, row in enumerate(rows):
            seconds = clock(row, 1)
            ax.barh(
                place, spread(seconds)[0], color="#c9c9c9" if row["model"].removesuffix(COMPILED) in NAMES else "#178a83"
            )
            ax.plot(seconds, [place] * len(seconds), "k.", ms=3)
        ax.set_yticks(range(len(rows)), [label(row["model"]) for row in rows])
        ax.set(title=f"{name}: {size.batch} × {size.tokens} tokens\nblocks: {blocks}", xlabel="s per training step")
        ax.title.set_fontsize(9)
        ax.spines[["top", "right"]].set_visible(False)
    save(figure, folder / "speed-times.svg")


def overview(rows: list[Row]) -> Cells:
    """Milliseconds of each network at its best, compiled or not: processor time of one thread / wall-clock time of two."""
    columns = [(name, what) for name in CONFIGURATIONS for what in WHAT]
    timed = [row for row in rows if row["kind"] == "time" and row["blocks"] == CONFIGURATIONS[row["configuration"]].blocks]
    cells = []
    for model in dict.fromkeys(row["model"].removesuffix(COMPILED) for row in timed):
        found = []
        for configuration, what in columns:
            wanted = {"configuration": configuration, "what": what}
            mine = [row for row in timed if wanted.items() <= row.items() and row["model"].removesuffix(COMPILED) == model]
            found.append(" / ".join(_best([row for row in mine if row["threads"] == threads]) for threads in (1, 2)))
        cells.append((label(model), *found))
    return ("network", *(f"{name}, {WHAT[what]}" for name, what in columns)), cells


def times(rows: list[Row]) -> Cells:
    """Medians and spread, both clocks."""
    header = ("configuration", "blocks", "threads", "what", "network", "CPU ms", "±", "wall ms", "±", "rounds", "load")
    cells = []
    for row in (row for row in rows if row["kind"] == "time"):
        (cpu, cpu_spread), (wall, wall_spread) = spread(row["cpu"]), spread(row["wall"])
        cells.append((
            row["configuration"], row["blocks"], row["threads"], WHAT[row["what"]], label(row["model"]), f"{1e3 * cpu:.0f}",
            f"{100 * cpu_spread:.0f} %", f"{1e3 * wall:.0f}", f"{100 * wall_spread:.0f} %", len(row["cpu"]), row["load"],
        ))  # fmt: skip
    return header, cells


def targets(rows: list[Row]) -> Cells:
    """Every limit with what was found; partial depth is said to be so."""
    header = ("size", "threads", "what", "ratio", "at most", "best", "eager", "met", "counted", "asks, GFLOP/s")
    return header, [_target(verdict) for verdict in sorted(verdicts(rows), key=lambda verdict: verdict.configuration)]


def memory(rows: list[Row]) -> Cells:
    """Growth of the peak during a training step."""
    header = ("configuration", "network", "growth, MiB", "at most", "met")
    cells = []
    for row in (row for row in rows if row["kind"] == "memory"):
        limit = MEMORY.get((row["configuration"], row["option"])) if row["model"] == "iP" else None
        found = row["growth"] / MIB
        name = label(row["model"]) + (f", {row['option']}" if row["option"] else "")
        cells.append((row["configuration"], name, f"{found:.0f}", limit or "", _met(found <= limit) if limit else ""))
    return header, cells


def compilation(rows: list[Row]) -> Cells:
    """Seconds of compiling, and what further batch sizes compile."""
    header = ("network", "what", "cold, s", "warm, s", "at most", "20 more batch sizes", "met")
    cells = []
    for row in (row for row in rows if row["kind"] == "compile"):
        cold, warm = COMPILE[row["model"]]
        regions = not row["option"]
        later = f"{row['graphs_later']} new graphs, {row['seconds_later']:.0f} s" if regions else ""
        met = row["seconds"] <= cold and row["warm_seconds"] <= warm
        cells.append((
            label(row["model"]), row["option"] or "net.compile()", row["seconds"], row["warm_seconds"],
            f"{cold}, {warm}" if regions else "", later, _met(met) if regions else "",
        ))  # fmt: skip
    return header, cells


def label(model: str) -> str:
    """A network's name in tables."""
    plain, _, rest = model.partition(" ")
    return " ".join((NAMES.get(plain, f"{plain}-GATr"), rest)).strip()


def table(header: Sequence[str], cells: Iterable[Sequence[Any]]) -> str:
    """Markdown."""
    lines = [header, ["---"] * len(header), *cells]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def about(stored: dict[str, Any], load: float) -> str:
    """Where and with what it was measured."""
    host = stored["machine"]
    return f"{host['cpu']}, {host['cores']} cores, torch {host['torch']}; load average up to {load:g} while measuring."


def save(figure: Figure, path: Path) -> None:
    """The same rows give the same bytes: no date, no random identifiers."""
    with mpl.rc_context({"svg.hashsalt": path.stem, "svg.fonttype": "none", "font.family": "sans-serif"}):
        temporary = path.with_name(f".{path.name}")
        figure.savefig(temporary, format="svg", metadata={"Date": None})
        temporary.replace(path)


def _target(verdict: Verdict) -> tuple[Any, ...]:
    full = verdict.blocks == CONFIGURATIONS[verdict.configuration].blocks
    size = verdict.configuration if full else f"{verdict.configuration} (blocks: {verdict.blocks})"
    pair = f"{label(verdict.ours)} / {label(verdict.theirs)}"
    which = ", compiled" if verdict.chosen.endswith("compiled") else ""
    eager = f"{verdict.eager.median:.3f}"
    ours, theirs = (multiply_adds(name, CONFIGURATIONS[verdict.configuration]) for name in (verdict.ours, verdict.theirs))
    work = f"{ours / theirs:.3f}" if ours and theirs else ""
    found = (f"{verdict.limit:.3f}", f"{verdict.best}{which}", eager, str(verdict), work, f"{verdict.asked / 1e9:.0f}")
    return (size, verdict.threads, WHAT[verdict.what], pair, *found)


def _best(rows: list[Row]) -> str:
    """The median of the faster of one network's forms; a star if that is the compiled one."""
    if not rows:
        return "–"
    median, model = min((spread(clock(row, row["threads"]))[0], row["model"]) for row in rows)
    return f"{1e3 * median:,.0f}" + ("*" if model.endswith(COMPILED) else "")


def _met(is_met: bool) -> str:
    return "met" if is_met else "missed"


def _busiest(rows: list[Row]) -> float:
    return max((row["load"] for row in rows if "load" in row), default=float("nan"))
