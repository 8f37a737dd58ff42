"""Count what a GPU would have to launch for one block's training step, on a machine without one.

`python -m benchmarks.gpu.launches` prints the counts. Tensors are on torch's "meta" device, which has shapes and no numbers.
Torch operations are counted as they are dispatched, all but views and bare allocations; Triton's kernels where they would be
launched; attention without N^2 memory as one launch forwards and two backwards.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

import anygatr
from anygatr.execution import execute
from anygatr.execution.triton.backend import TritonBackend
from anygatr.nn import Block, Width
from anygatr.ops.batch import Batch
from anygatr.spaces.presets import geometry
from benchmarks.speed.networks.contestants import CONFIGURATIONS, contestant

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
AUTOCAST = ("ops.precision", "ops.attention", "execution.triton.linear", "execution.triton.function")
MULTIPLIED = ("mm", "bmm", "addmm", "baddbmm")


class Launch(NamedTuple):
    """One kernel: the bytes of its operands, each once, its floating point operations, and numbers that it reads again.

    Those are in the cache of the processor that runs it.
    """

    name: str
    bytes: int
    flops: int = 0
    cached: int = 0


Specialisation = tuple[str, tuple[tuple[str, Any], ...]]
"""A kernel's name, which for a generated one tells its source, and its constants and options."""


class Launches(TorchDispatchMode):
    """Everything that is launched while it is active; of Triton's kernels, every specialisation that has to be compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Launch] = []
        self.specialisations: dict[Specialisation, Any] = {}

    @property
    def counts(self) -> Counter[str]:
        """Launches by name."""
        return Counter(launch.name for launch in self.made)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = func._schema.name.split("::")[1]
        if func.namespace == "aten" and not (func.is_view or name in FREE):
            flops = 2 * _tensors(args)[-2].shape[-1] * _tensors(out)[0].numel() if name in MULTIPLIED else 0
            self.made.append(Launch(name, _bytes((args, out)), flops))
        return out


def _tensors(value: object) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [t for part in value for t in _tensors(part)] if isinstance(value, list | tuple) else []


def _bytes(value: object) -> int:
    return sum(t.numel() * t.element_size() for t in _tensors(value))


@contextmanager
def triton_not_run(counted: Launches) -> Iterator[None]:
    """The Triton backend on meta tensors, its kernels counted where they would be launched."""
    from anygatr.execution.triton import attention, linear, product, prologue, selfcheck

    def call(kernel: Any, grid: Any, *args: Any, **constants: Any) -> None:
        if 0 not in grid:
            counted.made.append(Launch(f"triton {kernel.fn.__name__}", _bytes(args), *_triton_work(kernel, args)))
            counted.specialisations[kernel.fn.__code__.co_filename + kernel.fn.__name__, tuple(constants.items())] = kernel

    with ExitStack() as stack:
        for module in (attention, linear, product, prologue):
            stack.enter_context(mock.patch.object(module, "call", call))
        stack.enter_context(mock.patch.object(selfcheck, "passes", return_value=True))
        stack.enter_context(mock.patch.object(TritonBackend, "available", return_value=None))
        stack.enter_context(mock.patch.object(TritonBackend, "accepts", return_value=True))
        yield


def _triton_work(kernel: Any, args: Any) -> tuple[int, int]:
    """FLOPs of linear maps and their weights' gradients, by the rows of their tables; cached reads of products by table."""
    named = dict(zip((p.name for p in kernel.params), args, strict=False))
    if kernel.fn.__name__ == "product_table_kernel":  # a pair and two blades for each term
        return 0, 3 * len(named["pairs"]) * named["tokens"] * named["channels"]
    if kernel.fn.__name__ not in ("linear_kernel", "weight_kernel"):
        return 0, 0
    sizes = [named[name] for name in ("tokens", "x_width", "y_width", "s_width", "t_width")]
    tokens, x, y, s, t = sizes
    return 2 * tokens * (len(named["factors"]) * x * y + s * (t + y) + x * t), 0


class _Flash(torch.autograd.Function):
    """Attention without N^2 memory, as shapes and launches."""

    @staticmethod
    def forward(ctx: Any, counted: Launches, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = q.new_empty(*q.shape[:-1], v.shape[-1])
        ctx.counted, ctx.launch = counted, Launch("flash", _bytes((q, k, v, out)), _attention_flops(q, k, v))
        ctx.save_for_backward(q, k, v)
        counted.made.append(ctx.launch)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        _, moved, flops, _ = ctx.launch
        ctx.counted.made += [Launch("flash rows", _bytes([grad, grad])), Launch("flash backward", 2 * moved, 5 * flops // 2)]
        return None, *(torch.empty_like(t) for t in ctx.saved_tensors)


def _attention_flops(q: Tensor, k: Tensor, v: Tensor) -> int:
    return 2 * q.shape[:-1].numel() * k.shape[-2] * (q.shape[-1] + v.shape[-1])


def recorded(step: Callable[[], None], triton: bool = False) -> Launches:
    """What a step launches; it runs once before, because tables are copied to a device once."""
    counted = Launches()

    def flash(q: Tensor, k: Tensor, v: Tensor, *_: Any, **__: Any) -> Tensor:
        return _Flash.apply(counted, q, k, v)

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(functional, "scaled_dot_product_attention", flash))
        stack.enter_context(anygatr.backend("torch"))
        if triton:
            stack.enter_context(triton_not_run(counted))
            stack.enter_context(anygatr.backend("triton"))
        step()
        counted.made.clear()
        with counted:
            step()
    return counted


def block_step(preset: str, configuration: str, backend: str, dtype: torch.dtype | None = None) -> Launches:
    """The launches of one block's training step, under autocast where a type is given."""
    size, geo = CONFIGURATIONS[configuration], geometry(preset)
    block = Block(geo, Width(size.mv, size.s), size.heads).to("meta")
    tokens = size.batch, size.tokens
    x = torch.empty(geo.algebra.dim, *tokens, size.mv, device="meta", requires_grad=True)
    s = torch.empty(*tokens, size.s, device="meta", requires_grad=True)
    batch = Batch(torch.ones(*tokens, 1, device="meta"), x[..., :0].detach(), scalars=s[..., :0].detach())
    asked = [x, s, *(p for p in block.parameters() if p.requires_grad)]

    def step() -> None:
        y, t = execute(block, x, s, batch)
        torch.autograd.grad([y, t], asked, [y.detach(), t.detach()])

    with ExitStack() as stack:
        for module in AUTOCAST if dtype is not None else ():  # torch has no autocast for shapes without numbers
            stack.enter_context(mock.patch(f"anygatr.{module}.autocast_type", return_value=dtype))
        return recorded(step, backend == "triton")


def peer_step(name: str, configuration: str) -> list[Launch]:
    """The same of a block of another network, "lgatr" or "transformer": two blocks without what one needs."""
    size, made = CONFIGURATIONS[configuration], []
    for blocks in (1, 2):
        net, inputs, _ = contestant(name, size.cut(blocks))
        net, given = net.to("meta"), [torch.empty_like(t, device="meta") for t in inputs]

        def step(net: Any = net, given: Any = given) -> None:
            out = net(*given)
            sum(y.sum() for y in (out if isinstance(out, tuple) else (out,))).backward()
            net.zero_grad()

        made.append(recorded(step).made)
    rest = Counter(made[1])
    rest.subtract(Counter(made[0]))
    return [launch for launch, count in rest.items() for _ in range(count)]


def main() -> None:
    """Print the table."""
    print(f"{'':12}{'a: torch':>10}{'triton':>8}{'c: torch':>10}{'triton':>8}")
    for preset in ("E", "P", "iP", "C"):
        counts = [len(block_step(preset, size, name).made) for size in "ac" for name in ("torch", "triton")]
        print(f"{preset:12}{counts[0]:>10}{counts[1]:>8}{counts[2]:>10}{counts[3]:>8}")
    for peer in ("lgatr", "transformer"):
        print(f"{peer:12}{len(peer_step(peer, 'a')):>10}{'':>8}{len(peer_step(peer, 'c')):>10}")


if __name__ == "__main__":
    main()
