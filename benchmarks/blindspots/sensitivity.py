"""How strongly each prediction depends on each input when a network is new, per geometry and number of blocks, in float64.

python -m benchmarks.blindspots.sensitivity faithful     # the start of the paper, nothing added at the door
python -m benchmarks.blindspots.sensitivity default      # what model(...) does by itself
python -m benchmarks.blindspots.sensitivity figure       # docs/img/sensitivity.svg, from the rows

The sensitivity to a field is the root mean square change of the prediction when that field alone is drawn anew, over sqrt 2:
the standard deviation that the field gives the prediction. Data have unit size. Rows: results/blindspots/sensitivity.jsonl.
"""

import argparse
import json
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import anygatr
from anygatr import Geometry, geometry, model
from anygatr.spaces import kinds
from benchmarks.blindspots.figure import draw
from benchmarks.harness.files import RESULTS, put

ROWS = RESULTS / "blindspots" / "sensitivity.jsonl"
DEPTHS = (1, 2, 4, 10, 20)
SEEDS = 3
SAMPLES = 8
GEOMETRIES = [(name, mirrors) for name in ("E", "P", "iP", "C") for mirrors in (True, False)]


@dataclass(frozen=True)
class Question:
    """What is given, what is predicted, and how many tokens a sample has."""

    inputs: dict[str, str]
    target: str
    per: str = "token"
    tokens: int = 8


QUESTIONS = {
    "cloud to number": Question({"position": "point"}, "scalar", "sample"),
    "cloud to point": Question({"position": "point"}, "point"),
    "bodies to vector": Question({"position": "point", "velocity": "vector", "mass": "scalar"}, "vector"),
    "bodies to number": Question({"position": "point", "velocity": "vector", "mass": "scalar"}, "scalar"),
    "vector to number": Question({"v": "vector"}, "scalar", tokens=1),
    "four points to pseudoscalar": Question(
        {"a": "point", "b": "point", "c": "point", "d": "point"}, "pseudoscalar", tokens=1
    ),
    "planes to number": Question({"plane": "plane"}, "scalar", "sample"),
}
VARIANTS: dict[str, dict[str, Any]] = {
    "faithful": {"invariants": False, "init": "paper", "unit": None},
    "default": {},
}


def sensitivities(geo: Geometry, question: Question, blocks: int, seed: int, options: dict[str, Any]) -> dict[str, float]:
    """For each input field, how much of the prediction's size it moves."""
    torch.manual_seed(seed)
    net = model(geo, question.inputs, {"y": question.target}, (8, 32), blocks, 4, per=question.per, **options)
    net = net.double().eval()
    fields, others = (_drawn(geo, question, seed + offset) for offset in (0, 1000))
    with torch.no_grad(), anygatr.backend("torch"):
        y = net(**fields)["y"]
        changed = {name: net(**{**fields, name: others[name]})["y"] - y for name in fields}
    return {name: float((change.square().mean() / 2).sqrt()) for name, change in changed.items()}


def _drawn(geo: Geometry, question: Question, seed: int) -> dict[str, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    shape = (SAMPLES, question.tokens)
    return {name: kinds.draw(geo, kind, *shape, generator=rng) for name, kind in question.inputs.items()}


def measure(variant: str) -> None:
    """Measure a variant anew; a row per geometry, question and depth."""
    rows = [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []
    rows = [row for row in rows if row["variant"] != variant]
    for name, mirrors in GEOMETRIES:
        geo = geometry(name, mirrors=mirrors)
        for label, question in QUESTIONS.items():
            for blocks in DEPTHS:
                began = time.process_time()
                try:
                    found = [sensitivities(geo, question, blocks, seed, VARIANTS[variant]) for seed in range(SEEDS)]
                except ValueError as refused:
                    row: dict[str, Any] = {"refused": str(refused)}
                else:
                    row = {"sensitivity": {key: [round_(one[key]) for one in found] for key in question.inputs}}
                row["seconds"] = round(time.process_time() - began, 2)
                rows.append(
                    {"variant": variant, "geometry": name, "mirrors": mirrors, "question": label, "blocks": blocks} | row
                )
                print(json.dumps(rows[-1]), flush=True)
    put(ROWS, "".join(json.dumps(row) + "\n" for row in rows))


def round_(x: float) -> float:
    """Three digits."""
    return float(f"{x:.3g}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("variant", choices=[*VARIANTS, "figure"])
    chosen = parser.parse_args().variant
    if chosen == "figure":
        draw()
    else:
        measure(chosen)
