"""Attention in C from channels to channels: what it takes, its memory, its calls."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anygatr.kernels import native
from anygatr.kernels.attend_source import KEYS, attend_source
from anygatr.kernels.linear_native import Entry
from anygatr.kernels.maps_source import TOKENS
from anygatr.kernels.row_source import EMITTERS
from anygatr.spaces.features import Feature

# axes: k blades, n query tokens, m key tokens, h heads, w learned features, c channels of a head


class Comparison(NamedTuple):
    """What is compared: the features of each channel; how many heads; of all blades, those that are mixed."""

    features: tuple[Feature, ...]
    heads: int
    key_heads: int
    blades: int
    mixed: tuple[int, ...]

    @property
    def known(self) -> bool:
        """Whether C can be generated for all features."""
        return all(type(feature) in EMITTERS for feature in self.features)


class Streams(NamedTuple):
    """Channels of queries, and of keys followed by values; the keys' are None where they follow the queries' own."""

    x: Float[Tensor, "k *queries c_q"]
    s: Float[Tensor, "*queries s_q"]
    keys_x: Float[Tensor, "k *keys c_k"] | None
    keys_s: Float[Tensor, "*keys s_k"] | None


class Samples(NamedTuple):
    """Where the samples' queries and keys begin and end; which keys are real, if not all; the most keys of a sample."""

    queries: Int[Tensor, " b+1"]
    keys: Int[Tensor, " b+1"]
    mask: Bool[Tensor, " m"] | None
    longest: int


def feature_weights(log_weights: Sequence[Tensor], heads: int, width: int, like: Tensor) -> Float[Tensor, "w h c"]:
    """The learned features' weights for each head and channel, from their logarithms."""
    if not log_weights:
        return like.new_empty(0, heads, width)
    together = log_weights[0].unsqueeze(0) if len(log_weights) == 1 else torch.stack(tuple(log_weights))
    return together.exp().to(like.dtype)


def forward(
    streams: Streams, weights: Float[Tensor, "w h c"], samples: Samples, scale: float, comparison: Comparison
) -> tuple[Float[Tensor, "k *queries hc"], Float[Tensor, "*queries hs"], Float[Tensor, "*queries h"]]:
    """The mixed channels and, of each query, the logarithm of the sum of exponentials."""
    x, s, mv, scalars = streams.x, streams.s, *_head(streams, comparison)
    tokens = s.shape[:-1]
    out_x = x.new_empty(comparison.blades, *tokens, comparison.heads * mv)
    out_s = s.new_empty(*tokens, comparison.heads * scalars)
    total = x.new_empty(*tokens, comparison.heads)
    _run("attend", streams, weights, samples, scale, comparison, (out_x, out_s, total))
    return out_x, out_s, total


def entry(
    weights: Float[Tensor, "w h c"], length: int, scale: float, comparison: Comparison, channels: int, scalars: int
) -> Entry:
    """Attention of samples of that length among linear maps, in whose tiles they are whole."""
    heads, key_heads = comparison.heads, comparison.key_heads
    mv, s = channels // (heads + 2 * key_heads), scalars // (heads + 2 * key_heads)
    run = _address(comparison, mv, weights.dtype)
    tensors, integers = (weights, even(TOKENS // length, length), _number(scale)), (length, heads, key_heads)
    widths = channels, scalars, heads * mv, heads * s
    return Entry((None, None, None, run), tensors, integers, None, False, comparison.blades, widths)


def backward(
    grads: tuple[Tensor, Tensor],
    results: tuple[Tensor, Tensor, Tensor],
    streams: Streams,
    weights: Float[Tensor, "w h c"],
    samples: Samples,
    scale: float,
    comparison: Comparison,
) -> tuple[Tensor | None, ...]:
    """The gradients of the streams and of the weights from the mixed channels' and what `forward` returned.

    Every sample must have keys.
    """
    found = [None if t is None else t.new_empty(t.shape) for t in streams]
    threads, tokens, heads = torch.get_num_threads(), results[2].shape[:-1].numel(), comparison.heads
    size = sum(f.size for f in comparison.features) * weights.shape[-1] + _head(streams, comparison)[1]
    blocks = samples.longest > KEYS
    rows = weights.new_zeros(threads, tokens, heads, size) if blocks else None  # sums over blocks of keys, for each thread
    grad_weights = weights.new_zeros(threads, *weights.shape)
    dots = torch.empty_like(results[2]) if blocks else None
    others = (*(g.contiguous() for g in grads), *results, *found, grad_weights, rows, dots)
    _run("attend_backward", streams, weights, samples, scale, comparison, others)
    return *found, grad_weights.sum(0)


def _head(streams: Streams, comparison: Comparison) -> tuple[int, int]:
    """The multivector and scalar channels of a head."""
    heads = comparison.heads + (2 * comparison.key_heads if streams.keys_x is None else 0)
    return streams.x.shape[-1] // heads, streams.s.shape[-1] // heads


def _run(
    name: str,
    streams: Streams,
    weights: Tensor,
    samples: Samples,
    scale: float,
    comparison: Comparison,
    others: Sequence[Tensor | None],
) -> None:
    mv, scalars = _head(streams, comparison)
    kept = native.ready((*streams, weights, samples.mask, samples.queries, samples.keys, _number(scale), *others))
    queries = streams.s.shape[:-1].numel()
    keys = queries if streams.keys_s is None else streams.keys_s.shape[:-1].numel()
    sizes = (queries, keys, len(samples.queries) - 1, comparison.heads, comparison.key_heads, scalars)
    run = _function(name, comparison, mv, weights.dtype, len(kept), len(sizes) + 1)
    run(*native.addresses(kept), *sizes, torch.get_num_threads())


@lru_cache(maxsize=256)
def _function(
    name: str, comparison: Comparison, width: int, real: torch.dtype, pointers: int, integers: int
) -> Callable[..., None]:
    return native.function(_source(comparison, width, real), name, pointers, integers)


@lru_cache(maxsize=256)
def _address(comparison: Comparison, width: int, real: torch.dtype) -> int:
    return native.address(_source(comparison, width, real), "attend")


def _source(comparison: Comparison, width: int, real: torch.dtype) -> str:
    return attend_source(comparison.features, comparison.blades, comparison.mixed, width, native.REALS[real])


@lru_cache(maxsize=128)
def even(count: int, length: int) -> Int[Tensor, " b+1"]:
    """Where samples of one length begin."""
    return length * torch.arange(count + 1, device="cpu")


@lru_cache(maxsize=64)
def _number(value: float) -> Float[Tensor, "1"]:
    return torch.tensor([value], dtype=torch.float64, device="cpu")
