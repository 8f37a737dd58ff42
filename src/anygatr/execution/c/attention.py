"""Attention in C from channels to channels: the features that attention.c unrolls, its memory, its calls."""

from collections.abc import Sequence
from ctypes import CDLL, Structure, byref, c_double, c_long, c_void_p, cast
from functools import lru_cache
from itertools import accumulate

import torch
from jaxtyping import Float
from torch import Tensor

from anygatr.execution.c import build, tensors
from anygatr.execution.c.linear import Stage
from anygatr.execution.c.samples import Samples, Streams, even_offsets
from anygatr.execution.c.tensors import KEYS, TOKENS, Tensors, addresses, header, ready
from anygatr.ops.attention import Attention
from anygatr.spaces.features import Distance, Feature, Inner

# axes: k blades, n query tokens, m key tokens, h heads, w learned features, c channels of a head
INPUTS = ("x", "s", "keys_x", "keys_s", "weights", "mask", "query_offsets", "key_offsets")


class AttentionArgs(Structure):
    """attention_args in attention.h."""

    _fields_ = (
        *((name, c_void_p) for name in (*INPUTS, "out_x", "out_s", "log_sum")),
        *((name, c_long) for name in ("tokens", "key_tokens", "samples", "heads", "key_heads", "scalars", "threads")),
        ("scale", c_double),
    )


class AttentionGrads(Structure):
    """attention_grads in attention.h."""

    _fields_ = tuple(
        (name, c_void_p) for name in ("out_x", "out_s", "x", "s", "keys_x", "keys_s", "weights", "row_sums", "dots")
    )


def supports(features: Sequence[Feature]) -> bool:
    """Whether there is C for all of these features."""
    return all(type(feature) in (Inner, Distance) for feature in features)


def forward(
    streams: Streams, weights: Float[Tensor, "w h c"], samples: Samples, op: Attention
) -> tuple[Float[Tensor, "k *n hc"], Float[Tensor, "*n hs"], Float[Tensor, "*n h"]]:
    """The mixed channels and, of each query, the logarithm of the sum of exponentials.

    `streams` are x, s of queries and keys_x, keys_s, which are None where keys and values follow the queries' own channels;
    `samples` say where their queries and keys begin, and which keys are real.
    """
    x, s, mv, scalars = streams.x, streams.s, *op.head
    tokens, heads = s.shape[:-1], op.heads
    out_x = x.new_empty(op.blades, *tokens, heads * mv)
    out_s, log_sum = s.new_empty(*tokens, heads * scalars), x.new_empty(*tokens, heads)
    given = _inputs(streams, weights, samples, (out_x, out_s, log_sum))
    args = _args(given, streams, samples, op)
    tensors.call(_library(op, mv, weights.dtype).attention, given, byref(args))
    return out_x, out_s, log_sum


def backward(
    grads: tuple[Tensor, Tensor],
    results: tuple[Tensor, Tensor, Tensor],
    streams: Streams,
    weights: Float[Tensor, "w h c"],
    samples: Samples,
    op: Attention,
) -> tuple[Tensor | None, ...]:
    """The gradients of the streams and of the weights from those of the mixed channels and what `forward` returned.

    Every sample must have keys.
    """
    found = [None if t is None else t.new_empty(t.shape) for t in streams]
    threads, tokens, heads = torch.get_num_threads(), results[2].shape[:-1].numel(), op.heads
    mv, scalars = op.head
    size = sum(f.size for f in op.features) * mv + scalars
    blocks = samples.longest > KEYS
    rows = weights.new_zeros(threads, tokens, heads, size) if blocks else None  # sums over blocks of keys, for each thread
    dots = torch.empty_like(results[2]) if blocks else None
    grad_weights = weights.new_zeros(threads, *weights.shape)
    given = _inputs(streams, weights, samples, results)
    others = ready((*grads, *found, grad_weights, rows, dots))
    args = _args(given, streams, samples, op)
    run = _library(op, mv, weights.dtype).attention_backward
    tensors.call(run, (*given, *others), byref(args), byref(AttentionGrads(*addresses(others))))
    return *found, grad_weights.sum(0)


def entry(weights: Float[Tensor, "w h c"], length: int, op: Attention) -> Stage:
    """Attention of samples of that length as a stage among linear maps, in whose tiles they are whole."""
    (mv, s), every = op.head, op.heads + 2 * op.key_heads
    attend = _address(op, mv, weights.dtype)
    settings, widths = (op.scale, length, op.heads, op.key_heads), (every * mv, every * s, op.heads * mv, op.heads * s)
    given = weights, even_offsets(TOKENS // length, length)
    return Stage(None, None, attend, given, settings, None, False, op.blades, widths)


def _inputs(streams: Streams, weights: Tensor, samples: Samples, results: Tensors) -> list[Tensor | None]:
    """The tensors of AttentionArgs, to be kept until C returns."""
    return ready((*streams, weights, samples.mask, samples.queries, samples.keys, *results))


def _args(given: Tensors, streams: Streams, samples: Samples, op: Attention) -> AttentionArgs:
    queries = streams.s.shape[:-1].numel()
    keys = queries if streams.keys_s is None else streams.keys_s.shape[:-1].numel()
    heads = op.heads, op.key_heads, op.head[1]
    sizes = queries, keys, len(samples.queries) - 1, *heads, torch.get_num_threads()
    return AttentionArgs(*addresses(given), *sizes, op.scale)


@lru_cache(maxsize=256)
def _address(op: Attention, width: int, real: torch.dtype) -> int:
    return cast(_library(op, width, real).attention, c_void_p).value or 0


@lru_cache(maxsize=256)
def _library(op: Attention, width: int, real: torch.dtype) -> CDLL:
    out = build.library(("attention.c",), tables_of(op, width, real))
    out.attention.restype = out.attention_backward.restype = None
    return out


def tables_of(op: Attention, width: int, real: torch.dtype) -> str:
    """The generated.h of attention for heads of `width` channels: its features, its blades and those that are mixed."""
    features, blades = op.features, range(op.blades)
    compared = sum(f.size for f in features)
    sizes = {"BLADES": op.blades, "HEAD": width, "MIXED": len(op.mixed), "COMPARED": compared}
    sizes["LEARNED"] = sum(f.learned for f in features)
    places = list(accumulate((f.size for f in features), initial=0))
    inner = [(f, place) for f, place in zip(features, places, strict=False) if isinstance(f, Inner)]
    queries = [(place + j, blade, 1.0) for f, place in inner for j, blade in enumerate(f.blades)]
    keys = [(p + j, b, sign) for f, p in inner for j, (b, sign) in enumerate(zip(f.key_blades, f.signs, strict=True))]
    distances = _distances(features, places, {blade for _, blade, _ in queries})
    read = {blade for f in features for blade in f.blades}  # type: ignore[attr-defined]
    lists = {
        "QUERY_BLADES": _blades(queries),
        "KEY_BLADES": _blades(keys),
        "VALUE_BLADES": _blades([(place, blade, 1.0) for place, blade in enumerate(op.mixed)]),
        "UNREAD": ", ".join(str(b) for b in blades if b not in read),
        "VALUE_UNREAD": ", ".join(str(b) for b in blades if b not in op.mixed),
        **distances,
    }
    return header(real, **sizes) + "".join(f"#define {name} {text}\n" for name, text in lists.items())


def _blades(entries: Sequence[tuple[int, int, float]]) -> str:
    """Numbers that are one blade: place, blade, whether its gradient is added to another number's, factor."""
    begun, out = set[int](), list[str]()
    for place, blade, factor in entries:
        out.append(f"{{{place}, {blade}, {int(blade in begun)}, {factor}}}")
        begun.add(blade)
    return ", ".join(out)


def _distances(features: Sequence[Feature], places: Sequence[int], begun: set[int]) -> dict[str, str]:
    """The macros of distances, and of each one's axes; `begun` has the blades whose gradients are written before."""
    calls, axes = list[str](), dict[str, str]()
    for n, (feature, place) in enumerate(zip(features, places, strict=False)):
        if isinstance(feature, Distance):
            learned = sum(f.learned for f in features[:n])
            read = feature.blades
            weight, *assigns = ("+=" if blade in begun or blade in read[:i] else "=" for i, blade in enumerate(read))
            calls.append(f"D(AXES_{n}, {place}, {feature.weight}, {feature.eps}, {learned}, {weight})")
            listed = enumerate(zip(feature.coordinates, feature.signs, assigns, strict=True))
            axes[f"AXES_{n}(M)"] = " ".join(f"M({j}, {blade}, {sign}, {assign})" for j, (blade, sign, assign) in listed)
            begun |= set(feature.blades)
    return axes | {"DISTANCES(D)": " ".join(calls)}
