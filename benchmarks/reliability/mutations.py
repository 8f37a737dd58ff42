"""Damage to files and records, drawn at random: bytes flipped, cut, doubled, overwritten; JSON nodes exchanged.

The generator is `random.Random` where a million cases are tried, and one of hypothesis where failures are to be shrunk.
"""

import copy
import math
import struct
from random import Random
from typing import Any

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


def changes(random: Random) -> list[tuple[int, int, int]]:
    """One to six changes of a file: kind, place, amount."""
    count = random.randrange(1, 7)
    return [(random.randrange(9), random.randrange(2**24), random.randrange(2**16)) for _ in range(count)]


def value(random: Random, depth: int = 2) -> Any:
    """A JSON value that no field expects."""
    kind = random.randrange(12 if depth else 9)
    match kind:
        case 0:
            return random.choice((None, True, False))
        case 1:
            return random.randrange(-(2 ** random.choice((3, 8, 31, 70))), 2 ** random.choice((3, 8, 31, 70)))
        case 2:
            return random.choice(NUMBERS)
        case 3:
            return random.choice((0.5, -1.5, 1e-320, 1e308, math.inf, -math.inf, math.nan))
        case 4:
            return random.uniform(-10, 10)
        case 5 | 6:
            return random.choice(TEXTS)
        case 7:
            return text(random, 8)
        case 8:
            return random.choice(([], {}, [0] * 10, [0] * 5_000, "x" * 50_000)) if random.randrange(8) == 0 else []
        case 9 | 10:
            return [value(random, depth - 1) for _ in range(random.randrange(1, 5))]
        case _:
            return {text(random, 4): value(random, depth - 1) for _ in range(random.randrange(1, 5))}


def text(random: Random, longest: int) -> str:
    """A few characters, most of them printable, some from the rest of Unicode."""
    codes = [random.randrange(32, 127) if random.randrange(4) else random.randrange(0xD800) for _ in range(longest)]
    return "".join(map(chr, codes[: random.randrange(longest + 1)]))


def swaps(random: Random) -> list[tuple[int, Any]]:
    """Which nodes to exchange, and for what."""
    count = random.randrange(1, 4)
    return [(random.randrange(10_001), value(random) if random.randrange(8) else "remove") for _ in range(count)]


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


def _places(node: Any) -> Any:
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, inner in list(items):
        yield node, key
        yield from _places(inner)
