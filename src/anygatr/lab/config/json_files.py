"""JSON files that appear when they are complete, and errors that name them."""

import json
from pathlib import Path
from typing import Any

from anygatr.files.whole import write_text


def write_json(path: Path, record: Any) -> None:
    """A JSON file that appears when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(record, indent=1))


def read_json(path: Path) -> Any:
    """A JSON file, with an error that names it."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; name the directory of a run or comparison")
    try:
        return json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is no JSON ({error}); restore it, or delete the directory and start afresh") from error
