"""What norms see of conformal multivectors: sizes of coefficients and of attention's logits over the depth of new networks.

    python -m benchmarks.numerics.growth [--seeds 5] [--blocks 16]

Writes results/numerics-growth.json and docs/img/numerics-growth.svg. Clouds are clusters of points one unit apart whose
centres are twenty units from each other; networks start as the paper's, in float64. Coefficients are those of the worst
seed, logits the median over seeds.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import math
import statistics
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from anygatr import geometry, model
from anygatr.nn.attention import Attend
from anygatr.nn.block import Block
from anygatr.ops.norm import NORMS
from benchmarks.harness.files import PICTURES, RESULTS, put_json

CLUSTERS, EACH, WIDTH = 4, 4, 20.0
Row = dict[str, Any]


def cloud(seed: int) -> dict[str, Tensor]:
    """Two samples of clusters of moving points."""
    rng = torch.Generator().manual_seed(seed)
    centres = WIDTH * torch.randn(2, CLUSTERS, 1, 3, generator=rng, dtype=torch.float64)
    near, velocity = (torch.randn(2, CLUSTERS, EACH, 3, generator=rng, dtype=torch.float64) for _ in range(2))
    return {"position": (centres + near).flatten(1, 2), "velocity": velocity.flatten(1, 2)}


@torch.no_grad()
def sizes(norm: str, blocks: int, seed: int) -> tuple[list[float], list[float]]:
    """After each block the largest coefficient, and in each the median over heads of the deviation of a token's logits."""
    torch.manual_seed(seed)
    geo = geometry("C", norm=norm, init="kaiming")
    fields = {"position": "point", "velocity": "vector"}
    net = model(geo, fields, {"final": "point"}, (8, 32), blocks, 4, invariants=False, init="paper", unit=None).double()
    largest: list[float] = []
    spread: list[float] = []
    for module in net.modules():
        if isinstance(module, Attend):
            module.register_forward_hook(lambda layer, given, _: spread.append(_deviation(layer, given)))
        if isinstance(module, Block):
            module.register_forward_hook(lambda _, given, made: largest.append(float(made[0].abs().max())))
    net(**cloud(seed))
    return largest, spread


def _deviation(layer: nn.Module, given: tuple[Any, ...]) -> float:
    assert isinstance(layer, Attend)
    x, s, _ = given
    q, k, _ = layer.op.rows((x, s), (*layer.log_weights, *layer.tables))
    q, k = (rows.unflatten(0, x.shape[1:-1]) for rows in (q, k))
    logits = layer.op.scale * torch.einsum("bnhf,bmf->bhnm", q, k.squeeze(2))
    return float(logits.std(-1).mean((0, 2)).median())


def rows(seeds: int, blocks: int) -> Iterator[Row]:
    """The worst seed's coefficients and the median logits for each norm."""
    for norm in NORMS:
        found = [sizes(norm, blocks, seed) for seed in range(seeds)]
        largest = [max(values) for values in zip(*(run[0] for run in found), strict=True)]
        spread = [statistics.median(values) for values in zip(*(run[1] for run in found), strict=True)]
        yield {"norm": norm, "largest": [_finite(x) for x in largest], "logits": [_finite(x) for x in spread]}


def _finite(x: float) -> float | None:
    return float(f"{x:.4g}") if math.isfinite(x) else None


def draw(found: list[Row]) -> None:
    """Two panels over depth, one line for each norm."""
    from matplotlib.figure import Figure

    figure = Figure((8, 3.6), layout="constrained")
    for ax, key in zip(figure.subplots(1, 2), ("largest", "logits"), strict=True):
        for row in found:
            values = [math.nan if x is None else x for x in row[key]]
            ax.semilogy(range(1, len(values) + 1), values, marker="o", markersize=3, label=row["norm"])
        ax.set(xlabel="block", title={"largest": "largest coefficient", "logits": "deviation of a token's logits"}[key])
        ax.grid(alpha=0.3)
        ax.set_ylim({"largest": (1e1, 1e8), "logits": (1e-2, 1e3)}[key])
    ax.legend(frameon=False, fontsize=8)
    figure.savefig(PICTURES / "numerics-growth.svg", metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description="Sizes over depth by norm.")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--blocks", type=int, default=16)
    args = parser.parse_args()
    torch.set_num_threads(1)
    found = list(rows(args.seeds, args.blocks))
    put_json(RESULTS / "numerics-growth.json", {"seeds": args.seeds, "rows": found})
    draw(found)
    for row in found:
        print(
            row["norm"].ljust(10),
            "largest",
            row["largest"][:: args.blocks - 1],
            "logits",
            row["logits"][:3],
            row["logits"][-1],
        )


if __name__ == "__main__":
    main()
