"""Coordinates on their way in and out: what is checked, what is subtracted, and what is safe to divide by."""

import torch
from jaxtyping import Float
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
    if not torch.compiler.is_compiling() and not bool(torch.isfinite(x).all()):
        bad = tuple(int(i) for i in (~torch.isfinite(x)).nonzero()[0])
        raise ValueError(f"{label} contains NaN or infinity, first at index {bad}; clean the data or mask that token")
    return x


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
