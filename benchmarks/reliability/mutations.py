"""Strategies of hypothesis that damage files and records: bytes flipped, cut, doubled, overwritten; JSON nodes exchanged."""

import copy
import struct
from typing import Any

from hypothesis import strategies as st

NUMBERS = (0, 1, 2, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1)
"""What sizes and offsets in headers are overwritten with."""
TEXTS = (
    "",
    "nan",
    "-1",
    "1e400",
    "x" * 300,
    "[/b]",
    "\x1b[2J",
    "é\u202e",
    "../../etc",
    "point*99999999",
    "E,norm=",
    "\udc80",
)


def mutate(raw: bytes, changes: list[tuple[int, int, int]]) -> bytes:
    """Apply changes (kind, place, amount), each to what the ones before have left."""
    data = bytearray(raw)
    for kind, where, amount in changes:
        at = where % (len(data) + 1)
        match kind:
            case 0:
                data[at : at + 1] = bytes([amount % 256])
            case 1:
                if at < len(data):
                    data[at] ^= 1 << (amount % 8)
            case 2:
                del data[at:]
            case 3:
                del data[at : at + amount % 64]
            case 4:
                data[at:at] = data[at : at + amount % 256]
            case 5:
                data[at : at + 8] = struct.pack("<Q", NUMBERS[amount % len(NUMBERS)])
            case 6:
                data[at : at + 4] = struct.pack("<I", NUMBERS[amount % len(NUMBERS)] % 2**32)
            case 7:
                data[at : at + 8] = str(NUMBERS[amount % len(NUMBERS)]).encode()
            case _:
                data[at:at] = bytes([amount % 256]) * (amount % 4096)
    return bytes(data)


def changes() -> st.SearchStrategy[list[tuple[int, int, int]]]:
    """One to six changes of a file, drawn as one string of bytes, which is quicker than as a list of tuples."""
    return st.binary(min_size=6, max_size=36).map(_decoded)


def _decoded(raw: bytes) -> list[tuple[int, int, int]]:
    steps = [raw[i : i + 6] for i in range(0, len(raw) - 5, 6)]
    return [(step[0] % 9, int.from_bytes(step[1:4], "little"), int.from_bytes(step[4:6], "little")) for step in steps]


def values() -> st.SearchStrategy[Any]:
    """JSON values that no field expects."""
    plain = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.sampled_from(NUMBERS),
        st.floats(),
        st.sampled_from(TEXTS),
        st.text(max_size=8),
    )
    nested = st.recursive(
        plain, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    )
    return nested | st.sampled_from([[0] * 10, [0] * 5_000, "x" * 50_000])


def exchanged(record: Any, swaps: list[tuple[int, Any]]) -> Any:
    """A record in which some nodes, counted through, are replaced by values or removed."""
    record = copy.deepcopy(record)
    for number, value in swaps:
        places = list(_places(record))
        if not places:
            return value
        holder, key = places[number % len(places)]
        if value == "remove":
            del holder[key]
        else:
            holder[key] = copy.deepcopy(value)
    return record


def swaps() -> st.SearchStrategy[list[tuple[int, Any]]]:
    """Which nodes to exchange, and for what."""
    return st.lists(st.tuples(st.integers(0, 10_000), values() | st.just("remove")), min_size=1, max_size=3)


def _places(node: Any) -> Any:
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, inner in list(items):
        yield node, key
        yield from _places(inner)
