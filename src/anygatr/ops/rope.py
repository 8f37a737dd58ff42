"""Rotary position encoding of scalar channels, for tokens that have an order."""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

BASE = 4096.0  # the longest wave, in tokens over 2 pi


def rotate(s: Float[Tensor, "*tokens h c"], position: Shaped[Tensor, "*#tokens"]) -> Float[Tensor, "*tokens h c"]:
    """Turn channel pairs (i, i + c/2) by position * BASE^(-2i/c), so that q.k depends on the difference of positions."""
    half = s.shape[-1] // 2
    frequency = BASE ** (-torch.arange(half, device=s.device, dtype=s.dtype) / half)
    angle = position.to(s.dtype)[..., None, None] * frequency
    a, b, rest = s[..., :half], s[..., half : 2 * half], s[..., 2 * half :]
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos(), rest], -1)
