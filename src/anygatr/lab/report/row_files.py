"""The rows of a comparison on disk: a file each while it runs, one line each where they are committed."""

import json
from pathlib import Path
from typing import Any

from anygatr.files.reading import shortened
from anygatr.files.whole import write_text
from anygatr.lab.config.json_files import write_json
from anygatr.lab.config.schema import parse_json

ROWS, PACKED = "rows", "rows.jsonl"
"""The rows of a comparison: a file per finished run while it runs, one file with a line per run where they are committed."""
IDENTITY = ("model", "size", "seed")
_NUMBERS = ("mse", "median", "trimmed", "rmse", "mae", "r2", "approximation", "approximation_p75", "nmae", "cosine")
METRICS_SHAPE = {f"{name}?": {float, None} for name in _NUMBERS} | {"targets?": {str: {str: float}}}
ROW_SHAPE = {
    **{"model": str, "size": {int, None}, "seed": int, "status": str, "error?": {str, None}, "nonfinite?": bool},
    **{"metrics?": {str: METRICS_SHAPE}, "curve?": [({float, None},) * 3], "config?": {str: Any}},
}
"""What is asked of a row; numbers that are missing or null were not measured."""
EXPERIMENT_SHAPE = {
    "data": {
        **{"fields?": {str: str}, "targets?": {str: str}, "units?": {str: str}, "dim?": int, "per?": str},
        **{"baselines?": {str: {str: {str: Any}}}, "mirror_bound?": {"mse": float, "share": float}},
    },
    **{"models?": [str], "sizes?": [int], "seeds?": [int], "environment?": {str: Any}, "settings?": {str: {str: Any}}},
    "recipes?": {str: {str: Any}},
    **{"unable?": {str: str}, "unseen?": {str: [str]}},
}
"""What is asked of experiment.json."""


def read_rows(directory: Path) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The rows of a comparison by place, packed or not, and one sentence for each that cannot be read.

    Of a run that has both a file and a line, the file counts.
    """
    found: dict[str, dict[str, Any]] = {}
    problems: list[str] = []
    packed = directory / PACKED
    lines = packed.read_bytes().split(b"\n") if packed.exists() else []
    places: list[tuple[str, bytes | Path]] = [(f"{PACKED}:{i}", line) for i, line in enumerate(lines, 1) if line]
    places += [(f"{ROWS}/{path.name}", path) for path in sorted((directory / ROWS).glob("*.json"))]
    for place, content in places:
        try:
            path, text = (content, None) if isinstance(content, Path) else (packed, content)
            record = parse_json(path, text, ROW_SHAPE)
            if isinstance(content, Path) or not row_path(directory, record).exists():
                found[place] = record
        except (ValueError, OSError) as problem:
            problems.append(f"{place} was skipped: {shortened(problem, 500)}")
    return found, problems


def row_path(directory: Path, row: dict[str, Any]) -> Path:
    """The file of a row in a comparison that runs."""
    return directory / ROWS / f"{'-'.join(str(row.get(key)) for key in IDENTITY)}.json"


def pack_rows(directory: Path, to: Path | None = None) -> Path:
    """Put the rows of a comparison into one file, here or in another directory; here, it replaces the files of single rows.

    Sorted by model, size and seed, a line each: model, size, seed and status first, then the other keys by name.
    """
    rows, problems = read_rows(directory)
    if problems:
        raise ValueError(f"{directory}: {problems[0]}; mend or delete it")
    first = (*IDENTITY, "status", "error")
    lines = [
        json.dumps({key: row[key] for key in (*(k for k in first if k in row), *sorted(row.keys() - {*first}))})
        for row in sorted(rows.values(), key=lambda row: [row[key] for key in IDENTITY])
    ]
    packed = (to or directory) / PACKED
    packed.parent.mkdir(parents=True, exist_ok=True)
    write_text(packed, "".join(f"{line}\n" for line in lines))
    if to is None and (directory / ROWS).exists():
        for path in (directory / ROWS).glob("*.json"):
            path.unlink()
        if not any((directory / ROWS).iterdir()):
            (directory / ROWS).rmdir()
    return packed


def unpack_rows(directory: Path) -> None:
    """Give every packed row its own file, so that a comparison continues from committed rows."""
    rows, problems = read_rows(directory)
    if unreadable := [problem for problem in problems if problem.startswith(PACKED)]:
        raise ValueError(f"{directory}: {unreadable[0]}; restore {PACKED} or delete the line")
    for place, row in rows.items():
        if place.startswith(PACKED):
            write_json(row_path(directory, row), row)
