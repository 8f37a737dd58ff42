"""Sparse bilinear products of multivectors: the terms that product.c unrolls."""

from ctypes import CDLL
from functools import lru_cache

import torch

from anygatr.execution.c import build
from anygatr.execution.c.tensors import header
from anygatr.ops.product import ProductPlan

LANES = (16, 8, 4, 2, 1)  # how many channels may be handled together: at most a vector register of the widest machines


def lanes(channels: int) -> int:
    """How many channels of a product are handled together."""
    return next(some for some in LANES if channels % some == 0)


@lru_cache(maxsize=256)
def product_library(plan: ProductPlan, blades: int, real: torch.dtype, together: int, referred: bool) -> CDLL:
    """The library of one plan for channels that are a multiple of `together`."""
    return build.library(("product.c",), tables_of(plan, blades, real, together, referred))


def tables_of(plan: ProductPlan, blades: int, real: torch.dtype, together: int, referred: bool) -> str:
    """The generated.h of a ProductPlan: the entries (target, left, right blade, sign) of its terms, by result."""
    out, left, right = plan.sizes
    sums: dict[tuple[int, int], list[str]] = {(part, k): [] for part in range(out) for k in range(blades)}
    for odd in (True, False):  # odd terms first, so that one multiplication scales them all
        for term in plan.terms:
            if (term.odd and referred) is not odd:
                continue
            for k, i, j, sign in term.entries:
                sums[term.target, k].append(f"{'PLUS' if sign > 0 else 'MINUS'}({i}, {term.left}, {j}, {term.right})")
        if odd and referred:
            for terms in sums.values():
                terms += ["SCALE"] if terms else []
    listed = " \\\n    ".join(f"SUM({part}, {k}, {' '.join(terms)})" for (part, k), terms in sums.items())
    sizes = {"BLADES": blades, "OUT": out, "LEFT": left, "RIGHT": right, "LANES_TOGETHER": together}
    return header(real, **sizes) + f"#define TERMS(SUM, PLUS, MINUS, SCALE) \\\n    {listed}\n"
