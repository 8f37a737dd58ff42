"""Errors of outputs and gradients against float64, for each geometry, number format and distance from the origin.

    python -m benchmarks.numerics.precision [--seeds 3] [--out results/precision.json]

The network predicts where moving bodies will be; coordinates are float64, weights float32, autocast as the format says. The
error of the outputs is divided by the size of the cloud, not by its distance; that of the gradients, over all weights, by
their length. Rows hold the median over seeds.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import copy
import math
import statistics
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anygatr.interface.model import Model, model
from benchmarks.harness.files import RESULTS, SNIPPETS, put, put_json

GEOMETRIES = ("E", "P", "iP", "C")
FORMATS = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}
SHIFTS = (0.0, 20.0, 220.0)
ORIGINS = ("mean", None)


def bodies(shift: float, seed: int) -> dict[str, Tensor]:
    """Four samples of sixteen moving bodies, `shift` away from the origin of the coordinates."""
    generator = torch.Generator().manual_seed(seed)
    position, velocity = (torch.randn(4, 16, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    mass = torch.rand(4, 16, generator=generator, dtype=torch.float64)
    return {"position": position + shift / math.sqrt(3), "velocity": velocity, "mass": mass}


def results(net: Model, data: dict[str, Tensor], autocast: torch.dtype | None) -> tuple[Tensor, Tensor]:
    """The predictions and the gradient of a loss in all weights, both in float64."""
    net.zero_grad()
    with nullcontext() if autocast is None else torch.autocast("cpu", autocast):
        final = net(**data)["final"]
    (final - data["position"] - data["velocity"]).square().mean().backward()
    gradients = [p.grad.flatten().double() for p in net.parameters() if p.grad is not None]
    return final.detach().double(), torch.cat(gradients)


def errors(geometry: str, number: str, shift: float, origin: str | None, seed: int) -> tuple[float, float]:
    """The relative errors of outputs and gradients."""
    torch.manual_seed(seed)
    net = model(
        geometry,
        {"position": "point", "velocity": "vector", "mass": "scalar"},
        {"final": "point"},
        hidden=(8, 16),
        blocks=4,
        heads=4,
        origin=origin,
        invariants=False,
        init="paper",
        unit=None,
    )
    data = bodies(shift, seed)
    expected, expected_gradient = results(copy.deepcopy(net).double(), data, None)
    found, gradient = results(net, data, FORMATS[number])
    cloud = (data["position"] - data["position"].mean(-2, keepdim=True)).norm()
    output = float((found - expected).norm() / cloud)
    return output, float((gradient - expected_gradient).norm() / expected_gradient.norm())


def rows(seeds: int) -> Iterator[dict[str, Any]]:
    for origin, geometry, number, shift in product(ORIGINS, GEOMETRIES, FORMATS, SHIFTS):
        each = [errors(geometry, number, shift, origin, seed) for seed in range(seeds)]
        output, gradient = (statistics.median(values) for values in zip(*each, strict=True))
        yield {
            "origin": origin, "geometry": geometry, "format": number, "shift": shift,
            "output": output if math.isfinite(output) else None,
            "gradient": gradient if math.isfinite(gradient) else None,
        }  # fmt: skip


def page(found: list[dict[str, Any]]) -> str:
    """The tables of the documentation: error of the outputs / of the gradients."""
    lines: list[str] = []
    for origin in ORIGINS:
        lines += [f"| `origin={origin!r}` | format | " + " | ".join(f"at {shift:g}" for shift in SHIFTS) + " |"]
        lines += ["|---|---|" + "---|" * len(SHIFTS)]
        for geometry, number in product(GEOMETRIES, FORMATS):
            chosen = [r for r in found if (r["origin"], r["geometry"], r["format"]) == (origin, geometry, number)]
            cells = [f"{text(row['output'])} / {text(row['gradient'])}" for row in chosen]
            lines += [f"| {geometry} | {number} | {' | '.join(cells)} |"]
        lines += [""]
    return "\n".join(lines)


def text(error: float | None) -> str:
    return "overflow" if error is None else f"{error:.0e}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Errors of outputs and gradients against float64.")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS / "precision.json")
    args = parser.parse_args()
    torch.set_num_threads(1)

    from rich.progress import track

    total = len(ORIGINS) * len(GEOMETRIES) * len(FORMATS) * len(SHIFTS)
    found = list(track(rows(args.seeds), "measuring", total=total))
    put_json(args.out, {"torch": torch.__version__, "seeds": args.seeds, "rows": found})
    put(SNIPPETS / "precision.md", page(found))
    print(page(found) + f"rows in {args.out}")


if __name__ == "__main__":
    main()
