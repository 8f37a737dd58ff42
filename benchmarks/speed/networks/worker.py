"""A process that times single calls of one network, built by whichever checkout's `anygatr` it imports, on request.

It is started by `benchmarks.speed.old_and_new` and uses nothing of `anygatr` but what every version of it offers. The first
line that it reads is a job in JSON, which it answers by a description of the network; each following line names a call,
"train" or "infer", which it answers by its seconds.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import anygatr
from anygatr import GATr, Width, geometry

WARM = 1024  # tokens of the call before the first that is timed


def main() -> None:
    job = json.loads(sys.stdin.readline())
    torch.set_num_threads(job["threads"])
    if job["backend"] is not None and hasattr(anygatr, "backend"):
        anygatr.backend(job["backend"])
    net, inputs = _network(job)
    few = tuple(x[:, : max(1, WARM // len(x))] for x in inputs)
    calls: dict[str, Callable[..., Any]] = {"train": lambda *x: _train(net, *x), "infer": lambda *x: _infer(net, *x)}
    calls["infer"](*few)
    _answer(
        {"source": anygatr.__file__, "parameters": sum(p.numel() for p in net.parameters()), "loss": calls["train"](*few)}
    )
    for line in sys.stdin:
        call = calls[line.strip()]
        cpu, wall = time.process_time(), time.perf_counter()
        call(*inputs)
        _answer({"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall})


def _network(job: dict[str, Any]) -> tuple[GATr, tuple[Tensor, Tensor]]:
    """The same weights and inputs for every version that draws its weights in the same order."""
    torch.manual_seed(0)
    geo, size, one = geometry(job["geometry"]), job["size"], Width(1, 1)
    net = GATr(geo, one, Width(size["mv"], size["s"]), one, blocks=size["blocks"], heads=size["heads"])
    torch.manual_seed(1)
    tokens = size["batch"], size["tokens"]
    return net, (torch.randn(*tokens, 1, geo.algebra.dim), torch.randn(*tokens, 1))


def _train(net: GATr, *inputs: Tensor) -> float:
    """Forward and backward."""
    loss = sum((y.square().mean() for y in net(*inputs)), torch.zeros(()))
    loss.backward()
    net.zero_grad()
    return loss.item()


@torch.no_grad()
def _infer(net: GATr, *inputs: Tensor) -> None:
    """Forward alone."""
    net(*inputs)


def _answer(record: dict[str, Any]) -> None:
    print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
