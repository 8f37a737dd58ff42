"""How attention's tokens are split into samples: where each begins and ends, which keys are real."""

from functools import lru_cache
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anygatr.ops.attention import Attention
from anygatr.ops.batch import Batch
from anygatr.ops.sdpa import attended

# axes: k blades, n query tokens, m key tokens


class Streams(NamedTuple):
    """Channels of queries, and of keys followed by values; the keys' are None where they follow the queries' own."""

    x: Float[Tensor, "k *n c_q"]
    s: Float[Tensor, "*n s_q"]
    keys_x: Float[Tensor, "k *m c_k"] | None = None
    keys_s: Float[Tensor, "*m s_k"] | None = None


class Samples(NamedTuple):
    """Where the samples' queries and keys begin and end; which keys are real, if not all; the most keys of a sample."""

    queries: Int[Tensor, " b+1"]
    keys: Int[Tensor, " b+1"]
    mask: Bool[Tensor, " m"] | None
    longest: int


def samples_of(streams: Streams, batch: Batch, op: Attention) -> Samples:
    """The samples of a batch, dense or packed."""
    if batch.packed is not None and not op.cross:
        lengths = batch.packed.lengths
        offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        return Samples(offsets, offsets, None, int(lengths.max()) if len(lengths) else 0)
    queries, keys = streams.s.shape[-2], (streams.s if streams.keys_s is None else streams.keys_s).shape[-2]
    mask = batch.condition_mask if op.cross else batch.mask
    count = streams.s.shape[:-1].numel() // queries
    real = None if mask is None else attended(mask).flatten()
    return Samples(even_offsets(count, queries), even_offsets(count, keys), real, keys)


@lru_cache(maxsize=128)
def even_offsets(count: int, length: int) -> Int[Tensor, " b+1"]:
    """Where samples of one length begin."""
    return length * torch.arange(count + 1, device="cpu")
