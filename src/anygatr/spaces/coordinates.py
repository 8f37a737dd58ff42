"""Coordinates on their way in and out: what is checked, what is subtracted, and what is safe to divide by.

A check of numbers has to read them back from their device. `checked_together` reads those of a whole call back at once, and
`unchecked` switches them off.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Coordinates = Float[Tensor, "*#batch d"]
Multivector = Float[Tensor, "*batch k"]

SMALL = 1e-3  # a homogeneous weight below this is replaced by it, so that a read-out never divides by zero


def coordinates(x: Tensor, label: str, size: int) -> Tensor:
    """The argument itself, once its type, last axis and finiteness have been checked."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        found = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"{label} is {found}; pass a floating point tensor, e.g. torch.as_tensor({label}).double()")
    if x.dim() < 1 or x.shape[-1] != size:
        raise ValueError(f"{label} has shape {tuple(x.shape)}; the last axis must have {size} components")
    return finite(x, label)


def finite(x: Tensor, label: str) -> Tensor:
    """The argument itself, once it is known to hold no NaN or infinity."""

    def error() -> ValueError:
        bad = tuple(int(i) for i in (~torch.isfinite(x)).nonzero()[0])
        return ValueError(f"{label} contains NaN or infinity, first at index {bad}; clean the data or mask that token")

    require(lambda: torch.isfinite(x).all(), error)
    return x


Condition = Callable[[], Bool[Tensor, ""]]


class _Waiting(NamedTuple):
    """What is read back together: conditions with their errors, and whole tensors with who wants them."""

    checks: list[tuple[Bool[Tensor, ""], Callable[[], ValueError]]]
    integers: list[tuple[Int[Tensor, " n"], Callable[[Tensor], None]]]


_checks: ContextVar[_Waiting | bool] = ContextVar("anygatr_checks", default=True)
"""What waits to be read back; True where each is read back at once, False where no check is made."""


def require(condition: Condition, error: Callable[[], ValueError]) -> None:
    """Raise the error unless the condition holds; compiled code cannot look."""
    if torch.compiler.is_compiling():
        return
    waiting = _checks.get()
    if isinstance(waiting, _Waiting):
        waiting.checks.append((condition(), error))
    elif waiting and not bool(condition()):
        raise error()


def read_back(integers: Int[Tensor, " n"], use: Callable[[Tensor], None]) -> None:
    """Give `use` a copy on the CPU: at once, or with the checks that are read back together."""
    waiting = _checks.get()
    if isinstance(waiting, _Waiting):
        waiting.integers.append((integers, use))
    else:
        use(integers.detach().to("cpu", torch.int64))


def checked_together() -> AbstractContextManager[None]:
    """A region whose checks are read back at its end, all at once: one wait for the device instead of one each."""
    return nullcontext() if torch.compiler.is_compiling() or _checks.get() is False else _together()


@contextmanager
def _together() -> Iterator[None]:
    waiting = _Waiting([], [])
    token = _checks.set(waiting)
    try:
        yield
    finally:
        _checks.reset(token)
    if not waiting.checks and not waiting.integers:
        return
    wanted = [integers.detach().long() for integers, _ in waiting.integers]
    held = [torch.stack([holds for holds, _ in waiting.checks]).long()] if waiting.checks else []
    holds, *found = torch.cat([*held, *wanted]).cpu().split([len(waiting.checks), *map(len, wanted)])
    for numbers, (_, use) in zip(found, waiting.integers, strict=True):
        use(numbers)
    for held_one, (_, error) in zip(holds.tolist(), waiting.checks, strict=True):
        if not held_one:
            raise error()


def unchecked() -> AbstractContextManager[None]:
    """A region in which numbers are taken for what they should be, so that nothing waits for the device."""
    return nullcontext() if torch.compiler.is_compiling() else _unchecked()


@contextmanager
def _unchecked() -> Iterator[None]:
    token = _checks.set(False)
    try:
        yield
    finally:
        _checks.reset(token)


def relative(x: Tensor, origin: Tensor | None) -> Tensor:
    """Coordinates from the origin, subtracted in their own dtype."""
    if origin is None:
        return x
    if origin.dim() < 1 or origin.shape[-1] != x.shape[-1]:
        raise ValueError(
            f"origin has shape {tuple(origin.shape)}; give it {x.shape[-1]} coordinates, e.g. geo.origin(points)"
        )
    return x - origin.to(x)


def absolute(x: Tensor, origin: Tensor | None) -> Tensor:
    """Coordinates back in the frame of the origin, in the wider of the two dtypes."""
    return x if origin is None else x + origin


def nonzero(x: Tensor, least: float = SMALL) -> Tensor:
    """Homogeneous weights safe to divide by: those of at most `least` in absolute value become `least`."""
    return torch.where(x.abs() > least, x, torch.full_like(x, least))
