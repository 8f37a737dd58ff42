"""How numbers, ranges and lists are written in sentences, tables and hover labels."""

from collections.abc import Sequence
from math import floor, log10

from anygatr.lab.report.spread import Ratio, Spread

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(x: float, digits: int = 3) -> str:
    """Three significant digits, powers of ten only where zeros would have to be counted."""
    if x == 0:
        return "0"
    rounded = float(f"{x:.{digits}g}")
    exponent = floor(log10(abs(rounded)))
    if -4 <= exponent < 6:
        return f"{rounded:,.{max(0, digits - 1 - exponent)}f}" if exponent < digits else f"{rounded:,.0f}"
    mantissa = rounded / 10.0**exponent
    return f"{mantissa:.{digits - 1}f}×10{superscript(exponent)}"


def superscript(exponent: int) -> str:
    """An exponent, raised."""
    return str(exponent).translate(SUPERSCRIPTS)


def count(n: int, noun: str) -> str:
    """The number with its noun: 1 seed, 3 seeds."""
    return f"{n:,} {noun if n == 1 else noun + 's'}"


def measured(values: Spread, unit: str = "") -> str:
    """The mean and, in brackets, the range over seeds."""
    tail = f" {unit}" if unit else ""
    if len(values) < 2 or number(values.low) == number(values.high):
        return number(values.mean) + tail
    return f"{number(values.mean)}{tail} ({number(values.low)}–{number(values.high)})"


def times(r: Ratio) -> str:
    """The factor and, where there are seeds to tell, its 95 % interval: 2.1× [1.6, 2.8]."""
    digits = 3 if r.value < 2 else 2  # near equality the second decimal decides
    value, low, high = (number(x, digits) if x is not None else "" for x in (r.value, r.low, r.high))
    return f"{value}×" if low == high else f"{value}× [{low}, {high}]"


def listing(words: Sequence[str], last: str = "and") -> str:
    """Words as a sentence lists them: a; a and b; a, b and c."""
    return f" {last} ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
