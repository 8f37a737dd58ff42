"""What `anygatr completion` is asked. No heavy imports."""

from dataclasses import dataclass
from typing import Literal

from tyro.conf import Positional

from anygatr.lab.config.threads import ThreadOptions


@dataclass(frozen=True)
class CompletionConfig(ThreadOptions):
    """Print a script with which a shell completes the commands and options of anygatr."""

    shell: Positional[Literal["bash", "zsh"]]
    """The shell that is to complete."""
