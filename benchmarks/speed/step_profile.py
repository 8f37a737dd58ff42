"""Where a training step of iP-GATr goes: each kernel's time, what it computes and moves, and what is left outside kernels.

    python -m benchmarks.speed.step_profile [--configurations a b] [--repetitions 7]

Every round times the machine itself, too, a large matrix product and a copy, so that all columns are of the same minutes.
One thread, processor seconds, float32.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from anygatr.execution.c import tensors as c_calls
from anygatr.networks.gatr import GATr
from anygatr.networks.network_program import network_program
from benchmarks.harness.files import RESULTS, SNIPPETS, put, put_json
from benchmarks.harness.machine import with_peers
from benchmarks.harness.timing import load
from benchmarks.speed.networks.arithmetic import forward_flops
from benchmarks.speed.networks.contestants import CONFIGURATIONS, contestant
from benchmarks.speed.tables.networks import about, table

PARTS = {
    "linear": "linear maps and products, forwards",
    "linear_backward": "linear maps and products, backwards",
    "attend": "attention, forwards",
    "attend_backward": "attention, backwards",
    "outside": "outside kernels: Python, torch, sums of gradients",
}
KERNELS = tuple(PARTS)[:-1]
FUNCTIONS = {
    "pipeline": "linear",
    "linear_backward": "linear_backward",
    "attention": "attend",
    "attention_backward": "attend_backward",
}
"""The part that each function in C belongs to."""
PASSES = {"linear": 1.0, "linear_backward": 2.0, "attend": 1.0, "attend_backward": 2.5}
"""Multiply-adds over those forwards; attention computes its logits again."""
GEMM, COPY = 1024, 2**23  # rows of a square matrix, numbers


class Clock:
    """Seconds and bytes of every kernel in a step."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(KERNELS, 0.0)
        self.bytes = dict.fromkeys(KERNELS, 0)

    def note(self, name: str, seconds: float, tensors: Iterable[Tensor]) -> None:
        """Add a call; what it is given and makes is moved once."""
        self.seconds[name] += seconds
        self.bytes[name] += sum(t.nbytes for t in tensors)


@contextmanager
def watched(clock: Clock) -> Iterator[None]:
    """Kernels report to the clock."""
    call = c_calls.call

    def timed(function: Any, kept: Sequence[Tensor | None], *arguments: Any) -> None:
        seconds = _seconds(lambda: call(function, kept, *arguments))
        clock.note(FUNCTIONS[function.__name__], seconds, {id(t): t for t in kept if t is not None}.values())

    c_calls.call = timed
    try:
        yield
    finally:
        c_calls.call = call


def profile(configuration: str, repetitions: int) -> list[dict[str, Any]]:
    """The rows of a configuration: the median of the rounds for each part."""
    size = CONFIGURATIONS[configuration]
    network = contestant("iP", size)
    network.warm()
    network.train()
    a, b, x = torch.randn(GEMM, GEMM), torch.randn(GEMM, GEMM), torch.randn(COPY)
    y = torch.empty_like(x)
    rounds = []
    for _ in range(repetitions):
        clock = Clock()
        with watched(clock):
            whole = _seconds(network.train)
        gemm, copy = _seconds(lambda: a @ b), _seconds(lambda: y.copy_(x))
        rounds.append({"step": whole, "gemm": 2 * GEMM**3 / gemm, "copy": 2 * x.nbytes / copy, "clock": clock})
    about_all = {"configuration": configuration, "load": load()}
    middle = {key: median(r[key] for r in rounds) for key in ("step", "gemm", "copy")}
    flops = _flops(network.net, size.tokens, size.batch * size.tokens)
    rows = [{"kind": "machine", **about_all, **middle}]
    for part in KERNELS:
        seconds = median(r["clock"].seconds[part] for r in rounds)
        moved = rounds[0]["clock"].bytes[part]
        rows.append({"kind": "part", **about_all, "part": part, "seconds": seconds, "flops": flops[part], "bytes": moved})
    outside = median(r["step"] - sum(r["clock"].seconds.values()) for r in rounds)
    return [*rows, {"kind": "part", **about_all, "part": "outside", "seconds": outside, "flops": 0, "bytes": 0}]


def page(stored: dict[str, Any]) -> str:
    """The table, one line for each part of each configuration."""
    lines = []
    for machine in (row for row in stored["rows"] if row["kind"] == "machine"):
        name = machine["configuration"]
        parts = [row for row in stored["rows"] if row["kind"] == "part" and row["configuration"] == name]
        total = {key: sum(row[key] for row in parts) for key in ("seconds", "flops", "bytes")}
        rates = f"matrix product {machine['gemm'] / 1e9:.0f} GFLOP/s, copy {machine['copy'] / 1e9:.1f} GB/s"
        for row in (*parts, {"part": "step", **total}):
            computing, moving = row["flops"] / machine["gemm"], row["bytes"] / machine["copy"]
            lines.append(
                (
                    name, PARTS.get(row["part"], f"**step** ({rates})"),
                    f"{1e3 * row['seconds']:.0f}", f"{100 * row['seconds'] / total['seconds']:.0f} %",
                    f"{row['flops'] / row['seconds'] / 1e9:.0f}" if row["flops"] else "–",
                    f"{1e3 * computing:.0f}" if row["flops"] else "–", f"{1e3 * moving:.0f}" if row["bytes"] else "–",
                )
            )  # fmt: skip
    header = ("size", "part", "ms", "share", "GFLOP/s", "ms to compute", "ms to move")
    return table(header, lines) + f"\n{about(stored, max(row['load'] for row in stored['rows']))}\n"


def _flops(net: GATr, tokens: int, count: int) -> dict[str, float]:
    """FLOPs of each part of a step on `count` tokens."""
    once = dict(zip(("linear", "attend"), forward_flops(network_program(net), tokens), strict=True))
    return {part: PASSES[part] * count * once[part.removesuffix("_backward")] for part in KERNELS}


def _seconds(call: Callable[[], object]) -> float:
    before = time.thread_time()
    call()
    return time.thread_time() - before


def main() -> None:
    parser = argparse.ArgumentParser(description="Where a training step goes.")
    parser.add_argument("--configurations", nargs="+", choices=list(CONFIGURATIONS), default=["a", "b"])
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--out", type=Path, default=RESULTS / "speed-profile.json")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = [row for name in arguments.configurations for row in profile(name, arguments.repetitions)]
    put_json(arguments.out, {"machine": with_peers(), "rows": rows})
    text = page(json.loads(arguments.out.read_text()))
    put(SNIPPETS / "speed-profile.md", text)
    print(text)


if __name__ == "__main__":
    main()
