"""The prologue of a linear map as C takes it: enumerations, the norm's tables, the functions of products."""

from ctypes import POINTER, Structure, c_long, c_void_p
from dataclasses import dataclass
from functools import lru_cache

import torch

from anygatr.execution.c.norm import NormTables
from anygatr.execution.c.norm import tables_of as norm_tables
from anygatr.execution.c.product import ProductTables, kernel
from anygatr.ops.norm import NormPlan
from anygatr.ops.product import ProductPlan

AS_THEY_ARE, NORM, GATE, PRODUCTS = range(4)
SCALARS = {None: 0, "norm": 1, "exact": 2, "tanh": 3}


@dataclass(frozen=True, eq=False)
class Prologue:
    """What a linear map does to its inputs first: multivectors normalised, gated or multiplied, scalars likewise.

    Equal to itself alone: its tables are looked up in every call.
    """

    norm: NormPlan | None = None
    gate: bool = False
    scalars: str | None = None  # "norm", or the form of GELU: "exact" or "tanh"
    products: ProductPlan | None = None
    referred: bool = False  # whether odd products are multiplied by the join reference


class PrologueTables(Structure):
    """prologue in prologue.h."""

    _fields_ = (
        *((name, c_long) for name in ("multivectors", "scalars", "factors", "products")),
        ("norm", POINTER(NormTables)),
        ("forward", c_void_p),
        ("backward", c_void_p),
        ("forward_plan", POINTER(ProductTables)),
        ("backward_plan", POINTER(ProductTables)),
    )


@lru_cache(maxsize=1024)
def tables_of(before: Prologue, blades: int, real: torch.dtype, channels: int, backward: bool) -> PrologueTables:
    """The tables of a Prologue in front of a map of so many channels, for both directions or for the forward alone."""
    out = PrologueTables(AS_THEY_ARE, SCALARS[before.scalars], 1, 1)
    if before.norm is not None:
        out.multivectors = NORM
        out.norm.contents = norm_tables(before.norm, blades)
    elif before.gate:
        out.multivectors = GATE
    elif before.products is not None:
        out.multivectors, plan = PRODUCTS, before.products
        out.products, out.factors, _ = plan.sizes
        given = blades, real, channels // out.products, before.referred
        out.forward, out.forward_plan = kernel(plan, *given)
        if backward:
            out.backward, out.backward_plan = kernel(plan.wrt_both, *given)
    return out
