"""From blade-major channels to the rows that attention compares and mixes, one per token and head, and back, by torch."""

import torch
from jaxtyping import Float
from torch import Tensor

from anygatr.kernels.attend_native import Comparison, Streams
from anygatr.spaces.features import Feature

# axes: k blades, n query tokens, m key tokens, h heads, g key heads, c channels of a head, f and v numbers of a row


def rows(
    streams: Streams, weights: Float[Tensor, "w h c"], comparison: Comparison
) -> tuple[Float[Tensor, "n h f"], Float[Tensor, "m g f"], Float[Tensor, "m g v"]]:
    """Each feature for all channels of a head, then its scalars, of queries and keys; every mixed blade as it is, of values.

    Learned features of queries are multiplied by a weight for each head and channel.
    """
    heads, shared = comparison.heads, comparison.key_heads
    mv, x, s = weights.shape[-1], streams.x, streams.s
    scalars = s.shape[-1] // (heads + (2 * shared if streams.keys_x is None else 0))
    counts = [heads, shared, shared]
    if streams.keys_x is None or streams.keys_s is None:
        xs, ss = x.split([n * mv for n in counts], -1), s.split([n * scalars for n in counts], -1)
    else:
        xs = x, *streams.keys_x.split([n * mv for n in counts[1:]], -1)
        ss = s, *streams.keys_s.split([n * scalars for n in counts[1:]], -1)
    query = _features(xs[0], heads, comparison.features, weights)
    key = _features(xs[1], shared, comparison.features, None)
    value = _by_head(_some(xs[2], comparison), shared)
    parts = zip((query, key, value), ss, counts, strict=True)
    q, k, v = (torch.cat([row, t.unflatten(-1, (n, scalars))], -1) for row, t, n in parts)
    return q, k, v


def channels(
    out: Float[Tensor, "n h v"], comparison: Comparison, width: tuple[int, int]
) -> tuple[Float[Tensor, "k n h*c"], Float[Tensor, "n h*s"]]:
    """The inverse of the rows of values, zero where they have no blade; `width` has the channels of a head, mv and s."""
    count = len(comparison.mixed)
    x, s = out.split([count * width[0], width[1]], -1)
    x, s = x.unflatten(-1, (count, width[0])).movedim(-2, 0).flatten(-2), s.flatten(-2)
    if count == comparison.blades:
        return x, s
    parts, zero = dict(zip(comparison.mixed, x.unbind(), strict=True)), torch.zeros_like(x[0]) if count else x.sum(0)
    return torch.stack([parts.get(blade, zero) for blade in range(comparison.blades)]), s


def _some(x: Float[Tensor, "k n c"], comparison: Comparison) -> Float[Tensor, "v n c"]:
    """The blades that are mixed."""
    if len(comparison.mixed) == comparison.blades:
        return x
    parts = x.unbind()  # the gradient of a slice would fill all blades with zeros
    return torch.stack([parts[blade] for blade in comparison.mixed]) if comparison.mixed else x[:0]


def _features(x: Tensor, heads: int, features: tuple[Feature, ...], weights: Tensor | None) -> Float[Tensor, "n h f"]:
    """Of queries, which have weights, or of keys."""
    parts, learned = [], 0
    for feature in features:
        part = _by_head(feature.key(x) if weights is None else feature.query(x), heads)
        if feature.learned and weights is not None:
            part = part * weights[learned].repeat(1, feature.size)
            learned += 1
        parts.append(part)
    return torch.cat(parts, -1)


def _by_head(x: Float[Tensor, "f n h*c"], heads: int) -> Float[Tensor, "n h f*c"]:
    return x.unflatten(-1, (heads, -1)).movedim(0, -2).flatten(-2)
