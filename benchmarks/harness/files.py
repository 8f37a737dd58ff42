"""Where results and pages are; files appear when they are complete."""

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results"
SNIPPETS, PICTURES = ROOT / "docs" / "snippets", ROOT / "docs" / "img"


def put(path: Path, text: str) -> None:
    """Write a file under another name, then rename it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def put_json(path: Path, record: dict[str, Any] | list[Any]) -> None:
    """Write JSON with a line for each key, and for each entry of a list of rows."""
    put(path, _lines(record) + "\n")


def _lines(record: Any) -> str:
    if isinstance(record, dict):
        return "{\n" + ",\n".join(f" {json.dumps(key)}: {_entries(value)}" for key, value in record.items()) + "\n}"
    return _entries(record)


def _entries(value: Any) -> str:
    is_rows = isinstance(value, list) and any(isinstance(row, dict) for row in value)
    return "[\n" + ",\n".join(f"  {json.dumps(row)}" for row in value) + "\n]" if is_rows else json.dumps(value)
