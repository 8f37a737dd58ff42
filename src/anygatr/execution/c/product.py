"""Sparse bilinear products of multivectors in C: unrolled where they have few terms, by tables where they have many."""

from collections.abc import Iterator
from ctypes import POINTER, Structure, c_float, c_int, c_long, c_short, c_void_p, cast, pointer
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from anygatr.execution.c import build
from anygatr.execution.c.tensors import header, kernels, table
from anygatr.ops.product import ProductPlan

LANES = (16, 8, 4, 2, 1)  # how many channels may be handled together: at most a vector register of the widest machines
UNROLLED = 2048
"""The most terms that are unrolled, which builds in 2 s and 260 MB; 3801 take 4 s and 400 MB. Tables run 3 times as long."""


class ProductEntry(Structure):
    """product_entry in product.h."""

    _fields_ = (*((name, c_short) for name in ("left_blade", "left", "right_blade", "right")), ("sign", c_float))


class ProductSum(Structure):
    """product_sum in product.h."""

    _fields_ = tuple((name, c_int) for name in ("part", "blade", "begin", "scaled", "end"))


class ProductTables(Structure):
    """product_plan in product.h."""

    _fields_ = (
        *((name, c_long) for name in ("out", "left", "right", "sums")),
        ("sum", POINTER(ProductSum)),
        ("entry", POINTER(ProductEntry)),
    )


class Sum(NamedTuple):
    """The entries (left blade, left, right blade, right, sign) of one blade of one result; some are scaled."""

    part: int
    blade: int
    scaled: list[tuple[int, ...]]
    others: list[tuple[int, ...]]


@lru_cache(maxsize=256)
def kernel(plan: ProductPlan, blades: int, real: torch.dtype, channels: int, referred: bool) -> tuple[int, Any]:
    """The address of the function for so many channels and the tables it takes, which are None where it is unrolled."""
    if plan.multiply_adds > UNROLLED:
        return cast(kernels(real).product_by_table, c_void_p).value or 0, pointer(tables_of(plan, blades, referred))
    library = build.library(("product.c",), unrolled(plan, blades, real, channels, referred))
    return cast(library.product_unrolled, c_void_p).value or 0, None


def tables_of(plan: ProductPlan, blades: int, referred: bool) -> ProductTables:
    """The tables of a ProductPlan."""
    entries, sums = list[tuple[int, ...]](), list[tuple[int, ...]]()
    for part, blade, scaled, others in _sums(plan, blades, referred):
        begin, middle = len(entries), len(entries) + len(scaled)
        entries += scaled + others
        sums.append((part, blade, begin, middle, len(entries)))
    return ProductTables(*plan.sizes, len(sums), table(ProductSum, sums), table(ProductEntry, entries))


def unrolled(plan: ProductPlan, blades: int, real: torch.dtype, channels: int, referred: bool) -> str:
    """The generated.h of a ProductPlan: its terms by result."""
    out, left, right = plan.sizes
    together = next(some for some in LANES if channels % some == 0)
    sizes = {"BLADES": blades, "OUT": out, "LEFT": left, "RIGHT": right, "LANES_TOGETHER": together}
    lines = []
    for part, blade, scaled, others in _sums(plan, blades, referred):
        terms = [*map(_term, scaled), *(["SCALE"] if scaled else []), *map(_term, others)]
        lines.append(f"SUM({part}, {blade}, {' '.join(terms)})")
    listed = " \\\n    ".join(lines)
    return header(real, **sizes) + f"#define TERMS(SUM, PLUS, MINUS, SCALE) \\\n    {listed}\n"


def _term(entry: tuple[int, ...]) -> str:
    *places, sign = entry
    i, left, j, right = places
    return f"{'PLUS' if sign > 0 else 'MINUS'}({i}, {left}, {j}, {right})"


def _sums(plan: ProductPlan, blades: int, referred: bool) -> Iterator[Sum]:
    """All results, odd terms in front, so that one multiplication scales them."""
    sums = {(part, k): Sum(part, k, [], []) for part in range(plan.sizes[0]) for k in range(blades)}
    for term in plan.terms:
        for k, i, j, sign in term.entries:
            found = sums[term.target, k]
            (found.scaled if term.odd and referred else found.others).append((i, term.left, j, term.right, sign))
    yield from sums.values()
