"""Count what a GPU would have to launch for one block's training step, on a machine without one.

`python -m benchmarks.gpu.launches` prints the counts of the torch and the Triton backend. Torch operations are counted as
they are dispatched, all but views and bare allocations; Triton's kernels where they would be launched, which they are not.
"""

import os
from collections import Counter
from contextlib import contextmanager
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import anygatr
from anygatr.execution import execute
from anygatr.nn import Block, Width
from anygatr.ops import product
from anygatr.ops.batch import Batch
from anygatr.spaces.presets import geometry

CONFIGURATIONS = {"a": ((64, 16), Width(16, 128), 8), "c": ((1, 7000), Width(8, 32), 4)}
FREE = (
    "empty",
    "empty_like",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "detach",
    "_unsafe_view",
    "lift_fresh",
    "promote_types",
)


class Launches(TorchDispatchMode):
    """Operators by name, and the bytes they read and write."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = func._schema.name.split("::")[1]
        if not (func.is_view or name in FREE):
            self.counts[name] += 1
            self.bytes += sum(t.numel() * t.element_size() for t in _tensors((args, out)))
        return out


def _tensors(value: object) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for part in value for t in _tensors(part)] if isinstance(value, list | tuple) else []


@contextmanager
def kernels_not_run(counted: Launches):
    """The Triton backend on CPU tensors, its kernels counted and left out; what they would write is undefined."""
    from anygatr.execution.triton import attention, linear, product, selfcheck

    def call(kernel, grid, *args, **constants):
        if 0 not in grid:
            counted.counts[f"triton {kernel.fn.__name__}"] += 1
            counted.bytes += sum(t.numel() * t.element_size() for t in _tensors(args))

    with (
        mock.patch.dict(os.environ, TRITON_INTERPRET="1"),
        mock.patch.object(linear, "call", call),
        mock.patch.object(product, "call", call),
        mock.patch.object(attention, "call", call),
        mock.patch.object(selfcheck, "passes", return_value=True),
    ):
        yield


def block_step(preset: str, configuration: str, backend: str, tokens: tuple[int, int] | None = None) -> Launches:
    """The launches of one block's training step; fewer tokens launch the same."""
    shape, width, heads = CONFIGURATIONS[configuration]
    geo, shape = geometry(preset), tokens or shape
    block = Block(geo, width, heads)
    x = torch.randn(geo.algebra.dim, *shape, width.mv, requires_grad=True)
    s = torch.randn(*shape, width.s, requires_grad=True)
    batch = Batch(torch.ones(*shape, 1), x[..., :0].detach(), scalars=s[..., :0].detach())
    asked = [x, s, *(p for p in block.parameters() if p.requires_grad)]
    counted = Launches()

    def step() -> None:
        y, t = execute(block, x, s, batch)
        torch.autograd.grad([y, t], asked, [y.detach(), t.detach()])

    with mock.patch.object(product, "IN_CACHE", 1 << 40):  # as another device runs it: nothing cut to a CPU's caches
        if backend == "triton":
            with kernels_not_run(counted), anygatr.backend("triton"):
                step()  # tables are copied to the device once
                counted.counts.clear()
                counted.bytes = 0
                with counted:
                    step()
        else:
            with anygatr.backend(backend):
                step()
                with counted:
                    step()
    return counted


def main() -> None:
    """Print the table."""
    print(f"{'':10}{'torch':>8}{'triton':>8}")
    for preset in ("E", "P", "iP", "C"):
        counts = [sum(block_step(preset, "a", name, (4, 16)).counts.values()) for name in ("torch", "triton")]
        print(f"{preset:10}{counts[0]:>8}{counts[1]:>8}")


if __name__ == "__main__":
    main()
