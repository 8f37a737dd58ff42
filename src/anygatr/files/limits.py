"""Limits on what a checkpoint may ask for: how many numbers are allocated on its word, and what is in its configuration."""

from math import isfinite
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from anygatr.files.reading import shortened

ITEMS = 4096  # in one list or dictionary of a configuration
DEPTH = 8  # of lists and dictionaries within each other
FACTORIES = (torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.eye)


class Allowance(TorchFunctionMode):
    """While it is active, tensors of at most `numbers` entries in total may be made; the next one raises a ValueError.

    What a call would make is found on torch's meta device, before anything is allocated. Active in this thread alone.
    """

    def __init__(self, numbers: int) -> None:
        super().__init__()
        self.allowed, self.used = numbers, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in FACTORIES:
            self.used += func(*args, **kwargs | {"device": "meta"}).numel()
            if self.used > self.allowed:
                raise ValueError(f"it needs at least {self.used:,} numbers, more than the {self.allowed:,} that it may have")
        return func(*args, **kwargs)


def check_plain(name: str, value: Any, most: int, depth: int = DEPTH) -> None:
    """Raise unless a value is made of texts, finite numbers and short lists; integers are taken for sizes, up to `most`."""
    if value is None or isinstance(value, bool | str):
        return
    if isinstance(value, int):
        if value < 0:
            raise ValueError(f"{name}={value} must be a non-negative integer")
        if value > most:
            raise ValueError(f"{name}={shortened(value, 80)} needs at least as many numbers, but the file has {most:,}")
    elif isinstance(value, float):
        if not isfinite(value):
            raise ValueError(f"{name}={value} must be a finite number")
    elif isinstance(value, list | dict) and depth:
        if len(value) > ITEMS:
            raise ValueError(f"{name} has {len(value):,} entries; files may have up to {ITEMS}")
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            check_plain(f"{name}.{shortened(key, 80)}", item, most, depth - 1)
    else:
        raise ValueError(f"{name}={shortened(value, 80)} is nested deeper than {DEPTH} lists or dictionaries")
