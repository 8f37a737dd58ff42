"""Types and tiles of kernel calls, and the count of launches."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

LANGUAGE = {torch.float64: tl.float64, torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}
launches: Counter[str] = Counter()
"""How often each kernel was called in this process, for tests and accounts."""


def sum_type(*tensors: Tensor) -> torch.dtype:
    """The type that sums are taken in: float32, or float64 where numbers are."""
    return torch.float64 if any(t.dtype is torch.float64 for t in tensors) else torch.float32


def precision() -> str:
    """How float32 is multiplied: exactly, unless torch has been told that TF32, with ten bits, will do."""
    return "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"


def channel_tile(width: int) -> int:
    """Channels of a tile: matrix units take no fewer than 16, registers hold no more than 32."""
    return 16 if width <= 16 else 32


def programs(numbers: int, each: int) -> int:
    """How many programs or tiles take these numbers; `triton.cdiv` of plain integers takes as long as a launch."""
    return -(-numbers // each)


def call(kernel: Any, grid: Sequence[int], *args: Any, **constants: Any) -> None:
    """Launch a kernel, on the device of its first tensor, unless there is nothing to do."""
    if 0 in grid:
        return
    launches[kernel.fn.__name__] += 1
    first = next(a for a in args if isinstance(a, Tensor))
    if first.device.type == "cuda":
        with torch.cuda.device(first.device):
            kernel[tuple(grid)](*args, **constants)
    else:
        kernel[tuple(grid)](*args, **constants)
