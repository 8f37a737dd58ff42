"""JSON files that appear when they are complete, and errors that name them."""

import json
import os
from pathlib import Path
from typing import Any


def write_json(path: Path, record: Any) -> None:
    """A JSON file that appears when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(record, indent=1))
    os.replace(temporary, path)


def read_json(path: Path) -> Any:
    """A JSON file, with an error that names it."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; name the directory of a run or comparison")
    try:
        return json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is no JSON ({error}); restore it, or delete the directory and start afresh") from error
