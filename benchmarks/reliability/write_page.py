"""Write docs/reliability.md from the rows in results/reliability/rows.jsonl.

python -m benchmarks.reliability.write_page
"""

from collections import defaultdict
from typing import Any

from benchmarks.harness.files import ROOT, put
from benchmarks.reliability import rows

PAGE = ROOT / "docs" / "reliability.md"
HEAD = """# Reliability

*For those who leave it running overnight: what was done to break it, and what held.*

What was tried against the library, how often, and what failed. This page is made from the rows of those runs
(`results/reliability/rows.jsonl`, with the commit of each) by `python -m benchmarks.reliability.write_page`: a number here
was run. What is trusted and what is checked stands in `SECURITY.md`, in the root of the repository.

A row that found something was run again after it had been mended; only the later one is kept. Tests of what was found:
`tests/test_checkpoint.py`,
`tests/data/test_hostile_files.py`, `tests/lab/test_damaged_runs.py`, `tests/lab/test_outputs.py`,
`tests/native/test_build.py`, `tests/lab/test_distributed.py`.
"""


def page(found: list[dict[str, Any]]) -> str:
    """The page of these rows."""
    parts = [HEAD, *_faults(found), *_fuzz(found), *_sanitizers(found), *_soak(found)]
    return "\n".join(parts).rstrip() + "\n"


def _faults(found: list[dict[str, Any]]) -> list[str]:
    table = ["| what was done to it | rounds | failed | command |", "|---|---|---|---|"]
    total = 0
    older = sum(row["rounds"] + row["skipped"] for row in found if row["kind"] == "fault" and "command" not in row)
    for what, tried in _grouped(found, "fault", "what").items():
        count, failed = sum(row["rounds"] for row in tried), sum(len(row["failures"]) for row in tried)
        total += count
        table.append(f"| {what} | {count:,} | {failed} | {', '.join(_fault_command(row, older) for row in tried)} |")
    text = (
        "Every round breaks something and then checks what must hold: training that was killed continues to the bits of an "
        "undisturbed run, files are whole, errors are one line. Rounds are seeded. `make test-faults` runs all of them."
    )
    return [f"## Faults: {total:,} rounds\n", text, "", *table, ""]


def _fault_command(row: dict[str, Any], older: int) -> str:
    """What makes a row; the older ones were drawn from one generator, all in one run at their commit."""
    if "command" in row:
        return f"`python -m benchmarks.reliability.faults {row['command']}`"
    return f"`make test-faults ROUNDS={older} SEED={row['seed']}` at {row['commit']}"


def _fuzz(found: list[dict[str, Any]]) -> list[str]:
    table = ["| reader | cases | refused | failed | grew by at most | command |", "|---|---|---|---|---|---|"]
    total = 0
    for target, tried in _grouped(found, "fuzz", "target").items():
        cases, refused, failed = (sum(f(row) for row in tried) for f in (_cases, _refused, _failed))
        total += cases
        runs = [f"--targets {target} --cases {row['cases']} --seed {row['seed']}" for row in tried]
        command = ", ".join(f"`python -m benchmarks.reliability.fuzz {options}`" for options in runs)
        growth = max(row["growth_mb"] for row in tried)
        table.append(f"| {tried[0]['what']} | {cases:,} | {refused:,} | {failed} | {growth} MB | {command} |")
    text = (
        "Valid files are damaged at random (rows with seed 1 by hypothesis): bits flipped, bytes "
        "overwritten by large numbers, pieces cut, doubled and "
        "filled in; values of records exchanged. Readers may take 50 MB. A case fails by anything but a ValueError or an "
        "error of the system with a sound message, by 20 seconds of work, by memory, by a crash. `make fuzz` asks for a "
        "million cases."
    )
    return [f"## Fuzzing: {total:,} cases\n", text, "", *table, ""]


def _sanitizers(found: list[dict[str, Any]]) -> list[str]:
    table = ["| geometries | channels | tokens | layouts | networks | reports | command |", "|---|---|---|---|---|---|---|"]
    tried = [row for row in found if row["kind"] == "sanitize"]
    for shapes, alike in _by_shapes(tried).items():
        networks, reports = sum(row["networks"] for row in alike), sum(bool(row["report"]) for row in alike)
        names = " ".join(row["geometry"] for row in alike)
        command = f"`python -m benchmarks.reliability.sanitize --geometries {names}`"
        table.append(f"| {names} | {' | '.join(shapes)} | {networks:,} | {reports} | {command} |")
    text = (
        "The C kernels built with the address and undefined-behaviour sanitisers; `make sanitize` runs all geometries. Each "
        "network is a block that goes forwards without derivatives, forwards with them and backwards; in each geometry some "
        "have no scalars, three are narrowed, one has 600 tokens. A report ends the geometry it is found in."
    )
    if not tried:
        return [
            "## Sanitisers\n",
            "The C kernels are run under sanitisers by `make sanitize`, of which there is no row yet.",
            "",
        ]
    return [f"## Sanitisers: {len(tried)} geometries\n", text, "", *table, ""]


def _by_shapes(tried: list[dict[str, Any]]) -> dict[tuple[str, ...], list[dict[str, Any]]]:
    groups = defaultdict(list)
    for row in tried:
        groups[tuple(", ".join(map(str, row[key])) for key in ("channels", "tokens", "layouts"))].append(row)
    return groups


def _soak(found: list[dict[str, Any]]) -> list[str]:
    table = ["| what | how long | memory | throughput | wrong | command |", "|---|---|---|---|---|---|"]
    for row in (row for row in found if row["kind"] == "soak"):
        length = f"{row['count']:,} {row['unit']}, {row['minutes']:g} min"
        memory = f"{row['grown_mb']:+g} MB in the second half"
        options = (
            "--batches 0 --minutes " + f"{row['minutes']:g}"
            if row["unit"] == "steps"
            else f"--minutes 0 --batches {row['count']}"
        )
        command = f"`python -m benchmarks.reliability.soak {options}`"
        wrong = row.get("wrong", "")
        table.append(f"| {row['what']} | {length} | {memory} | {_drift(row)} | {wrong} | {command} |")
    text = (
        "Memory is what the process has resident. Throughput is the last third of the second half against the first third: "
        "per second of processor time, and by the clock on a machine with other work."
    )
    return ["## Soak\n", text, "", *table, ""]


def _drift(row: dict[str, Any]) -> str:
    if "drift_clock_per_cent" not in row:  # rows made before processor time was measured
        return f"{row['drift_per_cent']:+g} % by the clock"
    return f"{row['drift_per_cent']:+g} %, {row['drift_clock_per_cent']:+g} % by the clock"


def _grouped(found: list[dict[str, Any]], kind: str, key: str) -> dict[str, list[dict[str, Any]]]:
    groups = defaultdict(list)
    for row in found:
        if row["kind"] == kind:
            groups[row[key]].append(row)
    return groups


def _cases(row: dict[str, Any]) -> int:
    return row["cases"]


def _refused(row: dict[str, Any]) -> int:
    return row["refused"]


def _failed(row: dict[str, Any]) -> int:
    return len(row["failures"])


if __name__ == "__main__":
    put(PAGE, page(rows.read()))
    print(PAGE)
