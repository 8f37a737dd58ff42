"""The norm of a prologue as C takes it: its tables."""

from ctypes import POINTER, Structure, c_double, c_int, c_long
from functools import lru_cache

from anygatr.execution.c.tensors import table
from anygatr.ops.norm import NormPlan


class NormEntry(Structure):
    """norm_entry in norm.h."""

    _fields_ = (("blade", c_int), ("partner", c_int), ("group", c_int), ("sign", c_double))


class NormTables(Structure):
    """norm_plan in norm.h."""

    _fields_ = (
        *((name, c_long) for name in ("blades", "groups", "entries", "absolute", "clamp")),
        ("eps", c_double),
        ("entry", POINTER(NormEntry)),
    )


@lru_cache(maxsize=256)
def tables_of(plan: NormPlan, blades: int) -> NormTables:
    """The tables of a NormPlan: its groups of pairs of blades, whether sizes are absolute, (form, eps)."""
    entries = [(b, partner, g, sign) for g, group in enumerate(plan.groups) for b, partner, sign in group]
    form, eps = plan.floor
    sizes = blades, len(plan.groups), len(entries), plan.absolute, form == "clamp"
    return NormTables(*sizes, eps, table(NormEntry, entries))
