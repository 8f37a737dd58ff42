"""Each operation against what the machine can do, and the cost of a block against tokens, channels and blades.

    python -m benchmarks.speed.roofline [--repetitions 5]

The machine's limits are measured first: the best rate of a float32 matrix product and of copying memory. An operation's
floor is the longer of its multiply-adds at the one and its inputs and outputs at the other, forward and backward;
intermediate results count as nothing. Products, norms and gates are timed with the linear map behind them, as one kernel,
which is how networks run them. One thread, processor seconds, float32.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from anygatr import Geometry, Width, geometry
from anygatr.execution import BACKENDS, execute
from anygatr.nn import Block
from anygatr.ops.batch import Batch, join_reference
from anygatr.program.trace import trace, values_of
from benchmarks.harness.files import PICTURES, RESULTS, SNIPPETS, put_json
from benchmarks.harness.machine import with_peers
from benchmarks.harness.timing import interleaved, load, spread
from benchmarks.speed.networks.arithmetic import forward_flops
from benchmarks.speed.networks.contestants import CONFIGURATIONS, Configuration

BACKWARD = 2  # a bilinear operation's backward pass has as many multiply-adds again for each of its two factors
NUMBER = 4  # bytes


class Operation(NamedTuple):
    """A program on leaves, with the multiply-adds (twice, as FLOPs) of its forward pass."""

    call: Callable[..., tuple[Tensor, ...]]
    leaves: tuple[Tensor, ...]
    weights: tuple[Tensor, ...]
    flops: int

    def step(self) -> None:
        """Forward and backward."""
        out = self.call(*self.leaves)
        torch.autograd.grad(out, (*self.leaves, *self.weights), [torch.ones_like(y) for y in out], allow_unused=True)

    def numbers(self) -> int:
        """Numbers that a step must read or write: inputs and outputs, inputs again with both gradients."""
        outputs = sum(y.numel() for y in self.call(*self.leaves))
        inputs = sum(x.numel() for x in self.leaves)
        return 3 * inputs + 2 * outputs


def limits() -> dict[str, float]:
    """FLOPs per second of matrix products and bytes per second of a copy, the best of several sizes."""
    best = 0.0
    for n in (512, 1024, 2048):
        a, b = torch.randn(n, n), torch.randn(n, n)
        seconds = min(interleaved({"": lambda a=a, b=b: a @ b}, 6)[""].cpu)  # type: ignore[misc]
        best = max(best, 2 * n**3 / seconds)
    x = torch.randn(2**24)
    y = torch.empty_like(x)
    copy = min(interleaved({"": lambda: y.copy_(x)}, 8)[""].cpu)  # type: ignore[dict-item, return-value]
    return {"gemm": best, "copy": 2 * NUMBER * x.numel() / copy}


def operations(geo: Geometry, size: Configuration) -> dict[str, Operation]:
    """The operations of a block, with the shapes they have in it."""
    block, k = Block(geo, Width(size.mv, size.s), size.heads), geo.algebra.dim
    norm, qkv, attend, project = block.norm, block.attention.qkv, block.attention.attend, block.attention.out
    bilinear, gate, out = block.mlp.bilinear, block.mlp.activation, block.mlp.out
    reference = torch.ones(size.batch, size.tokens, 1)
    batch = Batch(reference, torch.empty(k, size.batch, size.tokens, 0))

    def multiplied(h: Tensor, s: Tensor, reference: Tensor) -> Any:
        return bilinear.out(bilinear.products(h, reference), s)

    def made(calculate: Callable[..., Any], width: Width, *others: Any, pointwise: int = 0) -> Operation:
        return _operation(block, calculate, width, size, others, pointwise)

    mv, s = out.inputs
    return {
        "linear": made(project, project.inputs),
        "product + linear": made(multiplied, Width(bilinear.factors.outputs.mv, size.s), reference),
        "norm + linear": made(lambda x, s: qkv(*norm(x, s)), block.inputs, pointwise=4 * k * size.mv + 8 * size.s),
        "gate + linear": made(lambda x, s: out(*gate(x, s)), out.inputs, pointwise=(k + 8) * mv + 8 * s),
        "attention": made(attend, qkv.outputs, batch),
    }


def _operation(
    block: Block,
    calculate: Callable[..., Any],
    width: Width,
    size: Configuration,
    others: tuple[Any, ...],
    pointwise: int,
) -> Operation:
    """A part of a block as a program of its own, run by the backend that a network would use.

    `pointwise` are the FLOPs per token of what is done once per number, which programs do not count.
    """
    leaves = _leaf(block.geometry.algebra.dim, size.batch, size.tokens, width.mv), _leaf(size.batch, size.tokens, width.s)
    program = trace(block, (*leaves, *others), calculate, names=("x", "s", "reference")[: 2 + len(others)])
    named = {**dict(block.named_parameters()), **dict(block.named_buffers())}
    parameters = [named[name] for name in program.parameters]
    rest, batch = values_of(others)
    backend = next(b for b in BACKENDS if b.accepts(program, [*leaves, *rest], parameters))
    flops = size.batch * size.tokens * (sum(forward_flops(program, size.tokens)) + pointwise)
    weights = tuple(p for p in parameters if p.requires_grad)
    return Operation(lambda *given: backend.run(program, [*given, *rest], parameters, batch), leaves, weights, flops)


def shares(limit: dict[str, float], repetitions: int) -> Iterator[dict[str, Any]]:
    """Each operation's rate, and the time it needs at least over the time it takes."""
    for geometry_name in ("E", "P", "iP", "C"):
        for name, size in CONFIGURATIONS.items():
            if geometry_name != "iP" and name != "a":
                continue
            chosen = operations(geometry(geometry_name), size)
            for operation in chosen.values():
                operation.step()
            timed = interleaved({label: operation.step for label, operation in chosen.items()}, repetitions)
            for label, operation in chosen.items():
                seconds, wide = spread(timed[label].cpu)
                flops = (1 + BACKWARD) * operation.flops
                floor = max(flops / limit["gemm"], NUMBER * operation.numbers() / limit["copy"])
                yield {
                    "kind": "share", "geometry": geometry_name, "configuration": name, "operation": label,
                    "seconds": seconds, "spread": wide, "gflops": flops / seconds / 1e9,
                    "of_gemm": flops / seconds / limit["gemm"], "of_floor": floor / seconds, "load": load(),
                }  # fmt: skip


def scaling(repetitions: int) -> Iterator[dict[str, Any]]:
    """One block's training step against tokens of one sample, channels, and blades of the algebra."""
    mesh, many = CONFIGURATIONS["c"], CONFIGURATIONS["a"]
    cases: list[tuple[str, int, Geometry, Configuration]] = []
    for tokens in (1000, 2000, 4000, 8000, 16000):
        cases.append(("tokens", tokens, geometry("iP"), Configuration(1, tokens, 1, mesh.mv, mesh.s, mesh.heads)))
    for mv in (4, 8, 16, 32, 64):
        cases.append(("channels", mv, geometry("iP"), Configuration(many.batch, many.tokens, 1, mv, 8 * mv, 8)))
    for geo in (geometry("E", 2), geometry("E"), geometry("P"), geometry("C")):
        cases.append(("blades", geo.algebra.dim, geo, many))
    for along, value, geo, size in cases:
        step = block_step(geo, size)
        rounds = min(repetitions, 3) if value > 4000 else repetitions
        seconds, wide = spread(interleaved({"": step}, rounds)[""].cpu)
        yield {"kind": "scaling", "along": along, "value": value, "seconds": seconds, "spread": wide, "load": load()}


def block_step(geo: Geometry, size: Configuration) -> Callable[[], None]:
    """Forward and backward of one block."""
    block = Block(geo, Width(size.mv, size.s), size.heads)
    x = _leaf(geo.algebra.dim, size.batch, size.tokens, size.mv)
    s = _leaf(size.batch, size.tokens, size.s)
    reference = join_reference(x.detach(), geo).expand(*s.shape[:-1], 1).contiguous()
    batch = Batch(reference, x.detach()[..., :0])

    def step() -> None:
        y, t = execute(block, x, s, batch)
        (y.square().mean() + t.square().mean()).backward()
        block.zero_grad()

    return step


def _leaf(*shape: int) -> Tensor:
    return torch.randn(*shape).requires_grad_()


def main() -> None:
    parser = argparse.ArgumentParser(description="Operations against the machine's limits.")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS / "speed-roofline.json")
    parser.add_argument("--report", action="store_true", help="measure nothing; tables and plots from the stored rows")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if not arguments.report:
        limit = limits()
        rows = [{"kind": "limits", **limit}, *shares(limit, arguments.repetitions), *scaling(arguments.repetitions)]
        put_json(arguments.out, {"machine": with_peers(), "rows": rows})

    from benchmarks.speed.tables.operations import figures, snippets

    stored = json.loads(arguments.out.read_text())
    print(snippets(stored, SNIPPETS))
    figures(stored, PICTURES)


if __name__ == "__main__":
    main()
