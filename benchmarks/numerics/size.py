"""How errors grow with the size of a cloud and its distance: frames of the stream, units of length, backends.

    python -m benchmarks.numerics.size [--seeds 5]

Writes results/numerics-size.json, docs/snippets/numerics-*.md and docs/img/numerics-size.svg. "Before" are the orthogonal
frame e+, e- and no unit, as they were; "after" are the defaults. Coordinates are in the dtype of the network.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import math
import statistics
from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
from torch import Tensor

import anygatr
from anygatr import geometry, model
from anygatr.spaces import kinds
from benchmarks.harness.files import PICTURES, RESULTS, SNIPPETS, put, put_json

CLOUDS = (1.0, 10.0, 100.0, 1000.0)
SIZES = (1e-6, 1e-3, 1.0, 10.0, 100.0, 1e3, 1e4, 1e6)
SHIFTS = (0.0, 1e2, 1e4)
DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}
NEIGHBOURS = 2000
WAYS = {"before": {"frame": "algebra", "unit": None}, "null frame": {"frame": "null", "unit": None}, "after": {}}
Row = dict[str, Any]


def inner_product(frame: str, number: str, size: float) -> float:
    """The median relative error of <p, q> = -|p - q|^2 / 2 for neighbours at distance 1/2 to 3/2 in a cloud of that size."""
    rng, dtype = torch.Generator().manual_seed(0), DTYPES[number]
    p = (size * torch.randn(NEIGHBOURS, 3, generator=rng, dtype=torch.float64)).float()
    step = torch.nn.functional.normalize(torch.randn(NEIGHBOURS, 3, generator=rng, dtype=torch.float64), dim=-1)
    # not all at distance 1: -1/2 is a number that coarse rounding hits exactly
    step = step * (0.5 + torch.rand(NEIGHBOURS, 1, generator=rng, dtype=torch.float64))
    q = (p.double() + step).float()
    geo = geometry("C", frame=frame).stored
    (a,), (b,) = (kinds.embed(geo, "point", x) for x in (p, q))
    found = geo.space.basis.inner(a.to(dtype), b.to(dtype)).double()
    exact = -(p.double() - q.double()).square().sum(-1) / 2
    return float(((found - exact) / exact).abs().median())


def rotated(name: str, way: str, number: str, size: float, shift: float, seed: int) -> float:
    """The error of the prediction for moved data, over the distance of predictions from the positions."""
    torch.manual_seed(seed)
    options = dict(WAYS[way])
    geo = geometry(name, **{"frame": options.pop("frame")} if name == "C" and "frame" in options else {})
    options.pop("frame", None)
    fields = {"position": "point", "velocity": "vector", "mass": "scalar"}
    net = model(geo, fields, {"final": "point"}, hidden=(8, 16), blocks=2, heads=2, origin="mass", **options)
    net = net.to(DTYPES[number]).eval()
    position, velocity = (size * torch.randn(4, 16, 3, dtype=torch.float64) for _ in range(2))
    mass, turn = torch.rand(4, 16, dtype=torch.float64) + 0.1, torch.linalg.qr(torch.randn(3, 3).double()).Q
    far = shift * size * torch.ones(3, dtype=torch.float64)

    def predicted(x: Tensor, v: Tensor) -> Tensor:
        given = {"position": x, "velocity": v, "mass": mass}
        with torch.no_grad():
            return net(**{key: value.to(DTYPES[number]) for key, value in given.items()})["final"].double()

    still = predicted(position, velocity) @ turn.T + far
    moved = predicted(position @ turn.T + far, velocity @ turn.T)
    return float((still - moved).abs().max() / (still - position @ turn.T - far).abs().max())


def between_backends(name: str, number: str, size: float, seed: int) -> float:
    """How far the C and the torch backend are apart, relative to the largest prediction."""
    torch.manual_seed(seed)
    fields = {"position": "point", "velocity": "vector"}
    net = model(name, fields, {"final": "point"}, hidden=(8, 16), blocks=2, heads=2, origin=None).to(DTYPES[number]).eval()
    data = {key: (size * torch.randn(4, 16, 3, dtype=torch.float64)).to(DTYPES[number]) for key in fields}
    with torch.no_grad():
        c = net(**data)["final"].double()
        with anygatr.backend("torch"):
            other = net(**data)["final"].double()
    return float((c - other).abs().max() / c.abs().max())


def rows(seeds: int) -> Iterator[Row]:
    """All measurements; medians over seeds."""
    for frame, number, size in product(("algebra", "null"), ("float32", "bfloat16"), CLOUDS):
        yield {
            "of": "inner product",
            "frame": frame,
            "format": number,
            "size": size,
            "error": inner_product(frame, number, size),
        }
    cases = [("C", way) for way in WAYS] + [("E", "after"), ("P", "after"), ("iP", "before"), ("iP", "after")]
    for (name, way), number in product(cases, ("float32", "float64")):
        for size, shift in [*((size, 0.0) for size in SIZES), *((1.0, shift) for shift in SHIFTS[1:])]:
            each = [rotated(name, way, number, size, shift, seed) for seed in range(seeds)]
            yield {
                "of": "rotation", "model": name, "way": way, "format": number, "size": size, "shift": shift,
                "error": _finite(statistics.median(each)),
            }  # fmt: skip
    for name, number, size in product(("E", "P", "iP", "C"), ("float32", "float64"), SIZES):
        each = [between_backends(name, number, size, seed) for seed in range(seeds)]
        yield {"of": "backends", "model": name, "format": number, "size": size, "error": _finite(max(each))}


def _finite(error: float) -> float | None:
    return error if math.isfinite(error) else None


def _text(error: float | None) -> str:
    return "NaN" if error is None else f"{error:.0e}"


def inner_table(found: list[Row]) -> str:
    """The inner product of neighbours, by frame."""
    known = {(r["frame"], r["format"], r["size"]): r["error"] for r in found if r["of"] == "inner product"}
    columns = list(product(("float32", "bfloat16"), ("algebra", "null")))
    title = {"algebra": "e+, e-", "null": "o, inf"}
    lines = ["| size | " + " | ".join(f"{number}, {title[frame]}" for number, frame in columns) + " |"]
    lines += ["|---" * (len(columns) + 1) + "|"]
    for size in CLOUDS:
        lines.append(f"| {size:g} | " + " | ".join(_text(known[frame, number, size]) for number, frame in columns) + " |")
    return "\n".join(lines) + "\n"


def rotation_table(found: list[Row]) -> str:
    """Predictions for rotated clouds by size, then for shifted ones."""
    rotations = [r for r in found if r["of"] == "rotation"]
    keys = list(dict.fromkeys((r["model"], r["way"], r["format"]) for r in rotations))
    places = list(dict.fromkeys((r["size"], r["shift"]) for r in rotations))
    titles = [f"{size:g}" if not shift else f"shift {shift:g}" for size, shift in places]
    lines = ["| | " + " | ".join(titles) + " |", "|---" * (len(places) + 1) + "|"]
    for key in keys:
        own = {(r["size"], r["shift"]): r["error"] for r in rotations if (r["model"], r["way"], r["format"]) == key}
        lines.append(f"| {key[0]}, {key[1]}, {key[2]} | " + " | ".join(_text(own[place]) for place in places) + " |")
    return "\n".join(lines) + "\n"


def backend_table(found: list[Row]) -> str:
    """The C backend against the torch backend."""
    backends = [r for r in found if r["of"] == "backends"]
    lines = ["| | " + " | ".join(f"{size:g}" for size in SIZES) + " |", "|---" * (len(SIZES) + 1) + "|"]
    for name, number in dict.fromkeys((r["model"], r["format"]) for r in backends):
        own = {r["size"]: r["error"] for r in backends if (r["model"], r["format"]) == (name, number)}
        lines.append(f"| {name}, {number} | " + " | ".join(_text(own[size]) for size in SIZES) + " |")
    return "\n".join(lines) + "\n"


def picture(found: list[Row]) -> None:
    """Equivariance error against size, before and after."""
    from matplotlib.figure import Figure

    figure = Figure((8, 3.6), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for ax, number in zip(axes, ("float32", "float64"), strict=True):
        for name, way, style in (
            ("C", "before", "r:"),
            ("C", "null frame", "y--"),
            ("C", "after", "g-"),
            ("iP", "after", "b-"),
        ):
            own = [r for r in found if r["of"] == "rotation" and (r["model"], r["way"], r["format"]) == (name, way, number)]
            own = [r for r in own if not r["shift"]]
            ax.loglog(
                [r["size"] for r in own], [r["error"] or math.nan for r in own], style, marker="o", label=f"{name}, {way}"
            )
        ax.set(title=number, xlabel="size of the cloud", ylim=(1e-16, 10))
        ax.grid(alpha=0.3)
    axes[0].set_ylabel("relative equivariance error")
    axes[1].legend(frameon=False)
    figure.savefig(PICTURES / "numerics-size.svg", metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description="Errors by size of the data, frame and unit.")
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)

    from rich.progress import track

    found = list(track(rows(args.seeds), "measuring", total=16 + 7 * 2 * (len(SIZES) + 2) + 8 * len(SIZES)))
    put_json(RESULTS / "numerics-size.json", {"torch": torch.__version__, "seeds": args.seeds, "rows": found})
    tables = {"inner": inner_table(found), "rotation": rotation_table(found), "backends": backend_table(found)}
    for name, table in tables.items():
        put(SNIPPETS / f"numerics-{name}.md", table)
        print(table)
    picture(found)
    print(f"rows in {RESULTS / 'numerics-size.json'}")


if __name__ == "__main__":
    main()
