"""Softmax attention over dense, masked and packed ragged tokens."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from anygatr.kernels.flash import explicit, fits, flash, fold, unfold
from anygatr.kernels.packed import Packed, packed_attention

# axes: b batch, n queries, m keys, h heads, g key heads, f features


def attention(
    q: Float[Tensor, "*batch n h f"],
    k: Float[Tensor, "*batch m g f"],
    v: Float[Tensor, "*batch m g w"],
    scale: float,
    mask: Bool[Tensor, "*batch m"] | None = None,
    packed: Packed | None = None,
) -> Float[Tensor, "*batch n h w"]:
    """softmax over keys of (scale q.k) applied to v; one key head (g = 1) serves all query heads, else g = h.

    `mask` is True for real keys; `packed` keeps each query to the keys of its own sample.
    """
    if packed is not None:
        return packed_attention(q, k, v, packed, scale)
    batch, (n, heads), width = q.shape[:-3], q.shape[-3:-1], v.shape[-1]
    q, k, v = (t.reshape(-1, *t.shape[-3:]) for t in (q, k, v))
    mask = None if mask is None else additive(mask.reshape(-1, 1, 1, k.shape[1]), q)
    q, k, v = fold(q, k, v)
    # when exporting, a branch on the number of tokens would freeze it
    if torch.compiler.is_exporting():
        out = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    else:
        out = (explicit if fits(k) else flash)(q, k, v, scale, mask)
    return unfold(out, heads).reshape(*batch, n, heads, width)


def attended(mask: Bool[Tensor, "*b m"]) -> Bool[Tensor, "*b m"]:
    """The keys that take part: a sample of nothing but padding attends to all of it, not to NaN."""
    return mask | ~mask.any(-1, keepdim=True)


def additive(mask: Bool[Tensor, "b 1 1 m"], like: Tensor) -> Float[Tensor, "b 1 1 m"]:
    """0 for keys that take part, minus infinity for others."""
    mask = attended(mask)
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill(~mask, -torch.inf)
