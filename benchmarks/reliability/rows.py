"""The rows of what was tried: one per trial, appended to results/reliability/rows.jsonl."""

import json
import os
import platform
import subprocess
import time
from typing import Any

from benchmarks.harness.files import RESULTS, ROOT

ROWS = RESULTS / "reliability" / "rows.jsonl"


def append(row: dict[str, Any]) -> None:
    """Add a row, with when and where it was made."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    about = {"commit": commit.stdout.strip(), "date": time.strftime("%Y-%m-%d"), "python": platform.python_version()}
    ROWS.parent.mkdir(parents=True, exist_ok=True)
    with ROWS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row | about) + "\n")
        file.flush()
        os.fsync(file.fileno())


def read() -> list[dict[str, Any]]:
    """All rows, in the order they were made."""
    return [json.loads(line) for line in ROWS.read_text(encoding="utf-8").splitlines()] if ROWS.exists() else []
