"""What `anygatr report` is asked: where a comparison lies and where its page goes. No heavy imports."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from anygatr.lab.config.threads import ThreadOptions


@dataclass(frozen=True)
class ReportConfig(ThreadOptions):
    """Turn the rows of a comparison into one self-contained HTML file."""

    directory: Annotated[Positional[Path], arg(metavar="DIRECTORY")]
    """The directory that `anygatr compare --out` wrote."""
    out: Path | None = None
    """The file to write; by default report.html in that directory."""
    force: bool = False
    """Write even where this replaces a file of the comparison."""
