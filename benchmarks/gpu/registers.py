"""Registers of every Triton kernel, compiled for cards that are not there: `python -m benchmarks.gpu.registers`."""

from collections.abc import Iterator
from typing import Any

import triton.language as tl

from anygatr.execution.triton import linear_kernels, norm_kernels, product_kernels
from anygatr.execution.triton.generated import kernel_of
from anygatr.execution.triton.linear import IN, OPTIONS, TOKENS, WEIGHT
from anygatr.execution.triton.product import is_unrolled
from anygatr.execution.triton.product_source import NUMBERS, product_source
from anygatr.execution.triton.row_source import SELF, rows_backward_source, rows_source
from anygatr.execution.triton.tuning import TILES
from anygatr.nn.attention import Attend
from anygatr.nn.bilinear import Products
from anygatr.nn.width import Width
from anygatr.spaces.presets import geometry
from benchmarks.gpu.ahead_of_time import Usage, usage

PRESETS = ("E", "P", "iP", "C")
ARCHITECTURES = (80, 90)
REAL = tl.float32
Compiled = tuple[str, Any, dict[str, Any], dict[str, Any]]  # name, kernel, constants, options


def of_tables() -> Iterator[Compiled]:
    """Kernels that read the geometry from tables: one for all, in every mode in which blocks use them."""
    for dot in (tl.float32, tl.bfloat16):
        types = {"REAL": REAL, "DOT": dot, "PRECISION": "ieee", "TOKENS": TOKENS}
        for mv, scalars, residual in ((0, 0, False), (0, 0, True), (0, 1, False), (1, 1, False), (2, 2, True)):
            modes = {"MV": mv, "SCALARS": scalars, "TRANSPOSED": False, "RESIDUAL": residual}
            yield from _linears(dot, modes | types)
            modes = {"MV": mv, "SCALARS": scalars}
            yield f"weight {dot}", linear_kernels.weight_kernel, modes | types | {"OUT": WEIGHT, "IN": WEIGHT}, {}
        modes = {"MV": 0, "SCALARS": 0, "TRANSPOSED": True, "RESIDUAL": False}
        yield from _linears(dot, modes | types)
    tile = {"REAL": REAL, "TOKENS": 16, "CHANNELS": 16}
    norm = {"MV": 1, "SCALARS": 1, "ABSOLUTE": True} | tile
    eps = {"CLAMP": False, "EPS": 0.01, "SCALAR_EPS": 1e-5}
    yield "norm statistics", norm_kernels.statistics_kernel, norm | eps, {}
    yield "norm backward", norm_kernels.norm_backward_kernel, norm, {}
    gate = {"MV": 2, "SCALARS": 2, "REAL": REAL, "NUMBERS": 256}
    yield "gate backward", norm_kernels.gate_backward_kernel, gate, {}
    product = {"ODD": True, "REAL": REAL, "NUMBERS": NUMBERS}
    yield "product by table", product_kernels.product_table_kernel, product, {}


def _linears(dot: Any, constants: dict[str, Any]) -> Iterator[Compiled]:
    """With every tile that may be chosen."""
    for tile in TILES:
        sizes = {"TOKENS": tile.tokens, "OUT": 32, "IN": IN}
        yield f"linear {dot}", linear_kernels.linear_kernel, constants | sizes, {"num_warps": tile.warps, **OPTIONS}


def of_geometry(preset: str) -> Iterator[Compiled]:
    """Kernels that are generated for a geometry."""
    geo, constants = geometry(preset), {"REAL": REAL, "NUMBERS": NUMBERS}
    plan, op = Products(geo).op.plan, Attend(geo, 8, 1, Width(4, 32)).op  # type: ignore[attr-defined]
    for name, product in (("product", plan), ("product backward", plan.wrt_both)):
        if is_unrolled(product):
            yield name, kernel_of(product_source(product, geo.algebra.dim), "product"), constants, {}
    yield "rows", kernel_of(rows_source(op, SELF), "rows"), constants, {}
    yield "rows backward", kernel_of(rows_backward_source(op, SELF), "rows_backward"), constants, {}


def table(kernels: Iterator[Compiled], architecture: int) -> dict[str, Usage]:
    """The largest use of each kernel over its modes."""
    found: dict[str, Usage] = {}
    for name, kernel, constants, options in kernels:
        one = usage(kernel, constants, architecture, **options)
        found[name] = Usage(*map(max, one, found.get(name, one)))
    return found


def main() -> None:
    """Print the table of the documentation."""
    for label, kernels in (("any geometry", of_tables), *((p, lambda p=p: of_geometry(p)) for p in PRESETS)):
        found = [table(kernels(), architecture) for architecture in ARCHITECTURES]
        for name in found[0]:
            cells = (
                f"{one[name].registers}{f' ({one[name].spilled} bytes spilled)' if one[name].spilled else ''}"
                for one in found
            )
            print(f"| {label} | {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
