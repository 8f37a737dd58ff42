"""Files .xyz and .extxyz: frames of atoms, with the columns and numbers that the extended format declares."""

import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from anygatr.files.reading import reading
from anygatr.lab.data.files.packing import Fields, packed

WORDS = re.compile(r"""([\w.:-]+)=(?:"([^"]*)"|'([^']*)'|\{([^}]*)\}|(\S+))""")
PLAIN = "species:S:1:pos:R:3"
TYPES: dict[str, type] = {"S": str, "R": float, "I": int, "L": str}
CELL = ("Lattice", "pbc", "cell")
SPLIT = "split"
"""The one word of a comment line that is kept: a frame of train, val or eval."""
TRUE = ("T", "True", "true", "1")


def read_xyz(path: str | Path) -> Fields:
    """All frames, packed: species and pos, further columns by name, the numbers of the comment line, and `offsets`.

    Only what all frames have is kept. Cells are left out with a warning: atoms without pairs see no periodic images.
    """
    path = Path(path)
    with reading(path, "an .xyz file"):
        frames = list(_frames(path.read_text(encoding="utf-8").splitlines()))
        if not frames:
            raise ValueError("it holds no frame: a number of atoms, a comment line, and a line per atom")
        if any("Lattice" in frame or "cell" in frame for frame in frames):
            warnings.warn(
                f"{path.name} has cells, which are left out: atoms see no images of each other. For neighbours in cells "
                "read it with ase.io.read(path, ':') and from_ase(frames, cutoff=...)",
                stacklevel=2,
            )
        return packed([_without_cell(frame) for frame in frames], "pos")


def _frames(lines: list[str]) -> Iterator[dict[str, Any]]:
    at = 0
    while at < len(lines):
        if not lines[at].strip():
            at += 1
            continue
        if not lines[at].strip().isdigit() or not 0 < int(lines[at]) <= len(lines) - at - 2:
            raise ValueError(
                f"line {at + 1}: {lines[at][:40]!r} should be the number of atoms of a frame, and "
                f"{max(0, len(lines) - at - 2)} lines are left for them"
            )
        count, comment = int(lines[at]), lines[at + 1]
        try:
            yield _frame(comment, lines[at + 2 : at + 2 + count])
        except (ValueError, IndexError) as error:
            raise ValueError(f"the frame at line {at + 1}: {error}") from None
        at += count + 2


def _frame(comment: str, rows: list[str]) -> dict[str, Any]:
    found = {key: next(filter(None, values), "") for key, *values in WORDS.findall(comment)}
    layout = found.pop("Properties", PLAIN).split(":")
    table, start, frame = [row.split() for row in rows], 0, dict[str, Any]()
    for name, kind, width in zip(layout[::3], layout[1::3], map(int, layout[2::3]), strict=True):
        cells = [row[start : start + width] for row in table]
        if any(len(cell) != width for cell in cells):
            raise ValueError(f"a line has fewer columns than {':'.join(layout)} asks for")
        column = np.array([[TYPES[kind](cell) for cell in row] for row in cells])
        column = np.isin(column, TRUE) if kind == "L" else column
        frame[name] = column[:, 0] if width == 1 else column
        start += width
    if "pos" not in frame:
        raise ValueError("its Properties have no pos, the positions")
    label = {SPLIT: np.array(found.pop(SPLIT))} if SPLIT in found else {}
    numbers = label | {key: _numbers(value) for key, value in found.items() if key not in frame}
    return frame | {key: value for key, value in numbers.items() if value is not None}


def _numbers(text: str) -> Any:
    """One number, or several; None for text."""
    try:
        values = [float(word) for word in text.replace(",", " ").split()]
    except ValueError:
        return None
    return None if not values else np.array(values[0]) if len(values) == 1 else np.array(values)


def _without_cell(frame: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in frame.items() if name not in CELL}
