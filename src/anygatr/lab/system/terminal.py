"""What reaches the terminal: names of files, fields and runs as they are, never as markup or as commands to the terminal."""

import unicodedata
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import TextColumn
from rich.segment import Segment
from rich.text import Text

LAYOUT = "\n\t"
"""Control characters that are only layout."""
_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")  # categories of controls, of marks that reorder text, of halves of characters


def printable(text: object) -> str:
    """A text whose control characters are written out, such as \\x1b; line breaks and tabs stay."""
    text = str(text)
    if text.isprintable():
        return text
    return "".join(_escaped(c) if c not in LAYOUT and unicodedata.category(c) in _HIDDEN else c for c in text)


class Terminal(Console):
    """A console that reads no markup in what it prints and lets no control character of it through."""

    def __init__(self, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """A text of ours, before rich drops some of its control characters."""
        return super().render_str(printable(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """What rich renders, its texts made printable."""
        for segment in super().render(renderable, options):
            is_plain = segment.control or segment.text.isprintable()
            yield segment if is_plain else Segment(printable(segment.text), segment.style)


def description_column() -> TextColumn:
    """The names of tasks in a progress bar."""
    return TextColumn("{task.description}", markup=False)


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Show warnings as one printable line each, without the line of source that raised them."""

    def line(message: Any, *_: Any) -> str:
        return f"anygatr: warning: {printable(message)}\n"

    before, warnings.formatwarning = warnings.formatwarning, line  # type: ignore[assignment]
    try:
        yield
    finally:
        warnings.formatwarning = before


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()
