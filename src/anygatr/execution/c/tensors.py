"""How C is told where tensors are, and the constants that all kernels share."""

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from anygatr.execution.c import build

Tensors = Sequence[Tensor | None]
TOKENS = 64  # of a tile: all its blades stay in the second cache
KEYS = 512  # of a block: with their rows and the logits of some queries they fit the second cache


def ready(tensors: Iterable[Tensor | None]) -> list[Tensor | None]:
    """The tensors as C can take them: contiguous."""
    return [None if t is None else t.contiguous() for t in tensors]


def addresses(tensors: Iterable[Tensor | None]) -> list[int | None]:
    """Where tensors that are ready begin."""
    return [None if t is None else t.data_ptr() for t in tensors]


def call(function: Any, kept: Tensors, *arguments: Any) -> None:
    """Call C; the tensors that it reads and writes are kept until it returns. Profilers replace it."""
    function(*arguments)


def header(real: torch.dtype, **constants: object) -> str:
    """The generated.h with the constants that all sources need, and more."""
    constants = {"DOUBLE": int(real is torch.float64), "TOKENS": TOKENS, "KEYS": KEYS} | constants
    return "".join(f"#define {name} {value}\n" for name, value in constants.items())


def kernels(real: torch.dtype) -> ctypes.CDLL:
    """The library that every geometry shares."""
    return build.library(("linear.c", "pipeline.c", "product_table.c"), header(real))


def table(kind: Any, values: Iterable[Any]) -> Any:
    """A C array, which has a place even where it has no values."""
    given = list(values)
    return (kind * max(len(given), 1))(*given)
