"""What blocks know about a batch besides its channels: mask, ragged layout, join reference, reinserted inputs."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from anygatr.ops.near import Near
from anygatr.ops.pairs import TokenPairs
from anygatr.ops.ragged import Packed
from anygatr.ops.shard import Shard
from anygatr.spaces.geometry import Geometry


class Batch(NamedTuple):
    """`mask` (dense, padded) or `packed` (ragged), or neither (dense and full).

    `reference` multiplies products that are odd under mirrors. `inputs` and `scalars` are the network's input channels that
    every query and key sees again. `condition_mask` is True for the real tokens of a condition. `near` says which keys the
    queries of sparse attention have, `shard` which other processes have tokens of the same samples, `pairs` what pairs of
    tokens add to attention.
    """

    reference: Float[Tensor, "*#tokens 1"]
    inputs: Float[Tensor, "k *tokens r"]
    mask: Bool[Tensor, "*batch n"] | None = None
    packed: Packed | None = None
    scalars: Float[Tensor, "*tokens r_s"] | None = None
    condition_mask: Bool[Tensor, "*batch m"] | None = None
    near: Near | None = None
    shard: Shard | None = None
    pairs: TokenPairs | None = None


def join_reference(
    x: Float[Tensor, "k *tokens c"],
    geometry: Geometry,
    mask: Bool[Tensor, "*tokens"] | None = None,
    packed: Packed | None = None,
    axes: int = 1,
    shard: Shard | None = None,
) -> Float[Tensor, "*#tokens 1"]:
    """The mean of the reference blade's coefficient over a sample's channels and real tokens; 1 where none is needed.

    A sample's tokens are the last `axes` axes of *tokens, or as `packed` says.
    """
    if not geometry.needs_reference or geometry.join_reference == "canonical":
        return x.new_ones(1)
    value = x[geometry.reference_blade].mean(-1)
    if packed is not None:
        total = torch.index_add(value.new_zeros(len(packed.lengths)), 0, packed.sample, value)
        return (total / packed.lengths)[packed.sample].unsqueeze(-1)
    tokens = tuple(range(-axes, 0))
    if shard is not None:
        real = torch.ones_like(value) if mask is None else mask.to(value)
        total, count = shard.sum(torch.stack([value * real, real]).sum(-1, keepdim=True))
        return (total / count.clamp(min=1)).unsqueeze(-1)
    if mask is None:
        return value.mean(tokens, keepdim=True).unsqueeze(-1)
    count = mask.sum(tokens, keepdim=True).clamp(min=1)
    return (torch.where(mask, value, 0).sum(tokens, keepdim=True) / count).unsqueeze(-1)
