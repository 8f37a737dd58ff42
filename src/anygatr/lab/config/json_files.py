"""JSON files that appear when they are complete, and errors that name them."""

import json
from pathlib import Path
from typing import Any

from anygatr.files.whole import write_text
from anygatr.lab.config.schema import Shape, parse_json


def write_json(path: Path, record: Any) -> None:
    """A JSON file that appears when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(record, indent=1))


def read_json(path: Path, shape: Shape = Any) -> Any:
    """A JSON file whose record has a shape (see `schema`), with an error that names file and place."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; name the directory of a run or comparison")
    return parse_json(path, shape=shape)
