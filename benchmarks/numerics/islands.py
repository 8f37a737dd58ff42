"""Which linear maps of C lose digits under bfloat16 autocast: errors where one of them alone is short, or alone is not.

    python -m benchmarks.numerics.islands [--seeds 3]

Writes results/numerics-islands.json and docs/snippets/numerics-islands.md. New networks as in `learning`, data as in
`growth`: errors against float64, of outputs in units of length and of the gradient of all weights relative to its length.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import copy
import statistics
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from anygatr import geometry, model
from anygatr.interface.model import Model
from anygatr.nn import EquiLinear
from benchmarks.harness.files import RESULTS, SNIPPETS, put, put_json
from benchmarks.numerics.growth import cloud
from benchmarks.numerics.precision import results

PARTS = ("linear_in", "attention.qkv", "attention.out", "bilinear.factors", "bilinear.out", "mlp.out", "linear_out")
DEFAULT = tuple(part for part in PARTS if "attention" not in part)
Row = dict[str, Any]


def ways() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Names of what is in float32, and the parts that are."""
    yield "nothing", ()
    yield "all", PARTS
    yield from ((f"all but {part}", tuple(other for other in PARTS if other != part)) for part in PARTS)
    yield "linear_in and linear_out", ("linear_in", "linear_out")
    yield "all but attention (default)", DEFAULT


def keep_precise(net: Model, parts: tuple[str, ...]) -> None:
    """Leave these linear maps in float32 and no others."""
    for name, layer in net.net.named_modules():
        if isinstance(layer, EquiLinear):
            layer.op = replace(layer.op, precise=name.endswith(parts) if parts else False)  # type: ignore[type-var]


def rows(seeds: int) -> Iterator[Row]:
    """The medians over seeds."""
    found: dict[str, list[tuple[float, float]]] = {}
    for seed in range(seeds):
        torch.manual_seed(seed)
        fields, geo = {"position": "point", "velocity": "vector"}, geometry("C", init="kaiming")
        net = model(geo, fields, {"final": "point"}, (8, 32), 4, 4, invariants=False, init="paper", unit=None)
        data = cloud(seed)
        expected, gradient = results(copy.deepcopy(net).double(), data, None)
        for name, parts in ways():
            keep_precise(net, parts)
            y, g = results(net, data, torch.bfloat16)
            error = float((y - expected).square().mean().sqrt()), float((g - gradient).norm() / gradient.norm())
            found.setdefault(name, []).append(error)
    for name, errors in found.items():
        output, own = (statistics.median(values) for values in zip(*errors, strict=True))
        yield {"float32": name, "output": float(f"{output:.3g}"), "gradient": float(f"{own:.3g}")}


def table(found: list[Row]) -> str:
    """Errors of outputs and gradients."""
    lines = ["| in float32 | outputs | gradient |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {r['float32']} | {r['output']:.2g} | {r['gradient']:.2g} |" for r in found)]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Errors of bfloat16 by linear map.")
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    found = list(rows(args.seeds))
    put_json(RESULTS / "numerics-islands.json", {"seeds": args.seeds, "rows": found})
    put(SNIPPETS / "numerics-islands.md", table(found))
    print(table(found))


if __name__ == "__main__":
    main()
