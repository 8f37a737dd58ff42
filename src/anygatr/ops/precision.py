"""Which precision an operation runs in under autocast: matrix products in the short type, delicate sums in float32."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor


def shortened(*tensors: Any) -> tuple[Any, ...]:
    """The floating point tensors in autocast's type if autocast is on, everything else as it is."""
    dtype = autocast_type(tensors[0])
    if dtype is None:
        return tensors
    return tuple(t if t is None or not t.is_floating_point() else t.to(dtype) for t in tensors)


def autocast_type(x: Tensor) -> torch.dtype | None:
    """The short type where autocast is on."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if not x.is_meta and torch.is_autocast_enabled(device) else None


def lengthened(*tensors: Tensor) -> tuple[Tensor, ...]:
    """16-bit tensors in float32, others as they are."""
    return tuple(t.float() if t.dtype in (torch.bfloat16, torch.float16) else t for t in tensors)


def without_autocast(x: Tensor) -> AbstractContextManager[None]:
    """A region that autocast leaves alone.

    None where autocast is off: torch does not keep compiled code with such a region; nor does an exported graph know any.
    """
    if torch.compiler.is_exporting() or x.is_meta or not torch.is_autocast_enabled(x.device.type):
        return nullcontext()
    return torch.autocast(x.device.type, enabled=False)
