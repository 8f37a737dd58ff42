"""PLY files: a header that is parsed into a checked structure, then vertices and polygons, ASCII or binary."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anygatr.lab.system.memory import Budget

TYPES = {
    "char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4", "float": "f4", "double": "f8",
    "int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2", "int32": "i4", "uint32": "u4",
    "float32": "f4", "float64": "f8",
}  # fmt: skip
ORDERS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
INDICES = ("vertex_indices", "vertex_index")
HEADER = 2**16
"""Bytes within which a header must end."""
ROW = 400
"""Bytes that one value of a row takes in Python while it is parsed."""


@dataclass(frozen=True)
class Property:
    """A number of a row, or a list of numbers whose length comes first."""

    name: str
    kind: str
    length: str | None = None


@dataclass(frozen=True)
class Element:
    """`count` rows with the same properties."""

    name: str
    count: int
    properties: list[Property] = field(default_factory=list)


def read_ply(path: Path) -> tuple[NDArray[np.float64], list[NDArray[np.int64]], dict[str, NDArray[np.float64]]]:
    """Points (N, 3), the polygons' vertex lists, and the other columns of the vertices by name."""
    budget = Budget()
    budget.take(str(path), (path.stat().st_size,))
    raw = path.read_bytes()
    form, elements, start = _header(raw)
    body = raw[start:]
    budget.take(f"{path}: its text", (len(body) if form == "ascii" else 0,), ROW // 4)
    source: _Source = _Words(body.split()) if form == "ascii" else _Bytes(body, ORDERS[form])
    pos, polygons, columns = np.zeros((0, 3)), [], {}
    for element in elements:
        source.require(element)
        budget.take(f"{path}: element {element.name}", (element.count, max(len(element.properties), 1)), ROW)
        rows = [[source.value(p) for p in element.properties] for _ in range(element.count)]
        named = {p.name: [row[k] for row in rows] for k, p in enumerate(element.properties)}
        if element.name == "vertex":
            plain = [p.name for p in element.properties if p.length is None]
            columns = {name: np.array(named[name], dtype=np.float64) for name in plain}
            if missing := set("xyz") - set(columns):
                raise ValueError(f"its vertices have no {', '.join(sorted(missing))}")
            pos = np.stack([columns.pop(axis) for axis in "xyz"], axis=1)
        elif element.name == "face":
            key = next((name for name in INDICES if name in named), None)
            if key is None:
                raise ValueError(f"its faces have no {' or '.join(INDICES)}")
            polygons = [np.asarray(row, dtype=np.int64).reshape(-1) for row in named[key]]
    return pos, polygons, columns


def _header(raw: bytes) -> tuple[str, list[Element], int]:
    """The format, the elements, and where the body begins."""
    end = raw.find(b"end_header", 0, HEADER)
    if not raw.startswith(b"ply") or end < 0:
        raise ValueError(f"it does not begin with 'ply', or no end_header follows within {HEADER} bytes")
    form, elements = "", []
    for number, text in enumerate(raw[:end].decode("ascii").splitlines(), 1):
        words = text.split()
        match words[:1]:
            case ["format"]:
                form = words[1]
            case ["element"]:
                elements.append(Element(words[1], _count(words[2], number)))
            case ["property"]:
                if not elements:
                    raise ValueError(f"line {number} declares a property before any element")
                elements[-1].properties.append(_property(words[1:], number))
    if form not in ORDERS:
        raise ValueError(f"format={form!r} is unknown; it must be one of {', '.join(ORDERS)}")
    return form, elements, raw.index(b"\n", end) + 1


def _count(word: str, number: int) -> int:
    if not (word.isascii() and word.isdigit() and len(word) < 19):
        raise ValueError(f"line {number} declares {word[:40]!r} rows")
    return int(word)


def _property(words: list[str], number: int) -> Property:
    is_list = words[:1] == ["list"]
    if len(words) != (4 if is_list else 2) or not all(word in TYPES for word in words[is_list:-1]):
        raise ValueError(f"line {number} declares no property: {' '.join(words)[:80]!r}")
    return Property(words[-1], words[-2], words[1] if is_list else None)


class _Source:
    """Where values come from: so much is there, so much was read."""

    def __init__(self, size: int) -> None:
        self.size, self.at = size, 0

    def require(self, element: Element) -> None:
        """Raise unless as many rows as declared can be there."""
        least = sum(self.width(p.length or p.kind) for p in element.properties)
        if element.count and (not least or element.count * least > self.size - self.at):
            raise ValueError(f"the element {element.name!r} declares {element.count:,} rows, more than the file can hold")

    def value(self, declared: Property) -> Any:
        """The next number, or list of numbers."""
        if declared.length is None:
            return self.take(declared.kind, 1)[0]
        length = float(self.take(declared.length, 1)[0])
        if not (length.is_integer() and length >= 0):
            raise ValueError(f"a list declares {length:g} numbers")
        return self.take(declared.kind, int(length))

    def take(self, kind: str, count: int) -> NDArray[Any]:
        """The next numbers."""
        start, self.at = self.at, self.at + count * self.width(kind)
        if self.at > self.size:
            raise ValueError("it ends too early")
        return self.numbers(kind, count, start)

    def width(self, kind: str) -> int:
        """What a number takes of the size."""
        raise NotImplementedError

    def numbers(self, kind: str, count: int, start: int) -> NDArray[Any]:
        """Numbers that are known to be there."""
        raise NotImplementedError


class _Words(_Source):
    """Numbers as words of a text."""

    def __init__(self, words: list[bytes]) -> None:
        super().__init__(len(words))
        self.words = words

    def width(self, kind: str) -> int:
        return 1

    def numbers(self, kind: str, count: int, start: int) -> NDArray[Any]:
        return np.array(self.words[start : start + count], dtype=np.float64)


class _Bytes(_Source):
    """Numbers in binary."""

    def __init__(self, raw: bytes, order: str) -> None:
        super().__init__(len(raw))
        self.raw, self.order = raw, order

    def width(self, kind: str) -> int:
        return np.dtype(TYPES[kind]).itemsize

    def numbers(self, kind: str, count: int, start: int) -> NDArray[Any]:
        return np.frombuffer(self.raw, self.order + TYPES[kind], count, start)
