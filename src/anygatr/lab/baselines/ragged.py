"""Packed tokens as a dense batch, for networks that work on (samples, tokens, columns)."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def pad(x: Float[Tensor, "N c"], offsets: Int[Tensor, " samples+1"]) -> tuple[Float[Tensor, "b n c"], Bool[Tensor, "b n"]]:
    """Packed tokens as a dense batch with a mask of the real ones."""
    counts = offsets.diff()
    mask = torch.arange(int(counts.max()), device=x.device) < counts.unsqueeze(-1).to(x.device)
    padded = x.new_zeros(*mask.shape, x.shape[-1])
    padded[mask] = x
    return padded, mask
