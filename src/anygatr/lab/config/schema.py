"""Shapes of JSON records: what a file must hold before anything is made of it, and where it does not.

A shape is a type (`str`, `int`, `float`, `bool`), `None`, `Any`, a set of alternatives, `[shape]` for a list, a tuple of
shapes for a list of that length, `{str: shape}` for an object with any names, `{"name": shape}` for one with these names,
`{"name?": shape}` where a name may be missing. Names that are not mentioned pass. A float may be written as an integer,
and may be NaN or infinite.
"""

import json
from pathlib import Path
from typing import Any

from anygatr.files.reading import UnreadableFileError, reading, shortened

LARGEST = 2**28
"""Bytes of a JSON file that is read at all."""

Shape = Any


def parse_json(path: Path, text: bytes | None = None, shape: Shape = Any) -> Any:
    """The record in a JSON file, or in a text from it, checked against a shape."""
    with reading(path, "a JSON file of ours"):
        if text is None:
            if path.stat().st_size > LARGEST:
                raise ValueError(f"{path.stat().st_size:,} bytes, more than the {LARGEST:,} that are read")
            text = path.read_bytes()
        record = json.loads(text.decode("utf-8"))
    problem = mismatch(record, shape)
    if problem:
        raise UnreadableFileError(f"{str(path)!r} is not what it should be: {problem}; restore it, or start afresh")
    return record


def mismatch(value: Any, shape: Shape, place: str = "") -> str:
    """Where a value departs from a shape, as a phrase; empty where it does not."""
    if shape is Any:
        return ""
    if isinstance(shape, set | frozenset):
        found = [mismatch(value, one, place) for one in shape]
        return "" if "" in found else min(found, key=len)
    if isinstance(shape, dict):
        return _object(value, shape, place)
    if isinstance(shape, list):
        if not isinstance(value, list):
            return _said(place, value, "a list")
        return next(filter(None, (mismatch(item, shape[0], f"{place}[{i}]") for i, item in enumerate(value))), "")
    if isinstance(shape, tuple):
        if not isinstance(value, list) or len(value) != len(shape):
            return _said(place, value, f"a list of {len(shape)}")
        pairs = enumerate(zip(value, shape, strict=True))
        return next(filter(None, (mismatch(item, one, f"{place}[{i}]") for i, (item, one) in pairs)), "")
    if shape is None:
        return "" if value is None else _said(place, value, "null")
    accepted = (int, float) if shape is float else shape
    fits = isinstance(value, accepted) and (shape is bool or not isinstance(value, bool))
    return "" if fits else _said(place, value, NAMES[shape])


NAMES = {str: "a text", int: "an integer", float: "a number", bool: "true or false"}


def _object(value: Any, shape: dict[Any, Shape], place: str) -> str:
    if not isinstance(value, dict):
        return _said(place, value, "an object")
    for name, inner in shape.items():
        if name is str:
            found = (mismatch(item, inner, f"{place}.{shortened(key, 40)}") for key, item in value.items())
            if problem := next(filter(None, found), ""):
                return problem
            continue
        key = name.removesuffix("?")
        if key not in value:
            if name[-1] != "?":
                return f"{place}.{key}".lstrip(".") + " is missing"
        elif problem := mismatch(value[key], inner, f"{place}.{key}"):
            return problem
    return ""


def _said(place: str, value: Any, wanted: str) -> str:
    return f"{place.lstrip('.') or 'the record'}={shortened(json.dumps(value, default=str), 80)} should be {wanted}"
