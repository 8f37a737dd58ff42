"""One run of a comparison: what its process needs to know, and the row that it leaves, whatever engine started it."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anygatr.lab.config.json_files import read_json, write_json
from anygatr.lab.config.recipe import Recipe
from anygatr.lab.data.registry import stored_spec
from anygatr.lab.data.spec import DataSpec
from anygatr.lab.training.guard import owned
from anygatr.lab.training.log import Watch, unwatched
from anygatr.lab.training.run import RESULT, TrainingRun
from anygatr.lab.training.threads import set_threads
from anygatr.lab.training.train import failed_row, fit

ATTEMPTS = 3
"""How often a run whose process dies is started again before it counts as failed."""


@dataclass(frozen=True)
class Job:
    """One run of a comparison: everything that its process needs to know."""

    directory: Path
    spec: DataSpec
    recipe: Recipe
    command: str
    threads: int

    @property
    def name(self) -> str:
        """The name of its row and of its directory."""
        return f"{self.recipe.model}-{self.recipe.size}-{self.recipe.seed}"

    @property
    def row(self) -> Path:
        """Where its row will be."""
        return self.directory / "rows" / f"{self.name}.json"

    def to_json(self) -> dict[str, Any]:
        """Plain values, for another machine that sees the same files."""
        plain = {"directory": str(self.directory.absolute()), "command": self.command, "threads": self.threads}
        return plain | {"source": self.spec.to_json(), "recipe": self.recipe.to_json()}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Job":
        """The inverse of `to_json`."""
        spec, recipe = stored_spec(record["source"]), Recipe.from_json(record["recipe"])
        return cls(Path(record["directory"]), spec, recipe, record["command"], record["threads"])


def work(job: Job, watch: Watch = unwatched) -> None:
    """Train, write the row. Whatever goes wrong becomes a row as well."""
    set_threads(job.threads)
    try:
        with owned(job.directory / "runs" / job.name):
            data = job.spec.load()
            run = TrainingRun.start(job.directory / "runs" / job.name, job.spec, data, job.recipe, job.command)
            row = fit(run, data, watch)
        write_json(job.row, row)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        write_failure(job, f"{type(error).__name__}: {error}")


def write_failure(job: Job, error: str) -> None:
    """The row of a run that did not get to its end."""
    result = job.directory / "runs" / job.name / RESULT
    write_json(job.row, read_json(result) if result.exists() else failed_row(job.recipe, error))
