"""Attention in C from channels to channels: the features that attention.c unrolls, its memory, its calls."""

from collections.abc import Sequence
from ctypes import CDLL, Structure, byref, c_double, c_long, c_void_p, cast
from functools import lru_cache
from typing import Any

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
    features, blades = op.features, op.blades
    values = Inner(op.mixed, (1.0,) * len(op.mixed))
    sizes = {"BLADES": blades, "HEAD": width, "MIXED": values.size, "COMPARED": sum(f.size for f in features)}
    sizes["LEARNED"] = sum(f.learned for f in features)
    read = {blade for f in features for blade in f.blades}  # type: ignore[attr-defined]
    lists = {
        "QUERY(INNER, DISTANCE)": _rows(features, False),
        "KEY(INNER, DISTANCE)": _rows(features, True),
        "VALUE(INNER)": _rows((values,), True),
        "QUERY_UNREAD(ZERO)": [f"ZERO({b})" for b in range(blades) if b not in read],
        "VALUE_UNREAD(ZERO)": [f"ZERO({b})" for b in range(blades) if b not in op.mixed],
    } | {f"AXES_{n}(M)": axes for n, axes in enumerate(_axes(features))}
    return header(real, **sizes) + "".join(f"#define {name} {' '.join(items)}\n" for name, items in lists.items())


def _assigns(features: Sequence[Any], key: bool) -> list[list[str]]:
    """How each feature writes the gradients of its blades: the first one for a blade writes it, later ones add to it."""
    begun: set[int] = set()
    out = []
    for feature in features:
        blades = feature.key_blades if key else feature.blades
        out.append(["+=" if blade in begun or blade in blades[:i] else "=" for i, blade in enumerate(blades)])
        begun.update(blades)
    return out


def _rows(features: Sequence[Any], key: bool) -> list[str]:
    """Each feature with the place of its first number in a row."""
    out, place, learned = list[str](), 0, 0
    for n, (feature, assigns) in enumerate(zip(features, _assigns(features, key), strict=True)):
        if isinstance(feature, Inner):
            blades = feature.key_blades if key else feature.blades
            for j, (blade, sign, assign) in enumerate(zip(blades, feature.signs, assigns, strict=True)):
                out.append(f"INNER({place + j}, {blade}, {sign if key else 1.0}, {assign})")
        else:
            out.append(f"DISTANCE(AXES_{n}, {place}, {feature.weight}, {feature.eps}, {learned}, {assigns[0]})")
        place += feature.size
        learned += feature.learned
    return out


def _axes(features: Sequence[Any]) -> list[list[str]]:
    """The coordinates of each distance: axis, blade, sign; nothing for other features."""
    out: list[list[str]] = [[] for _ in features]
    for axes, feature, (_, *assigns) in zip(out, features, [a or [""] for a in _assigns(features, False)], strict=True):
        if isinstance(feature, Distance):
            coordinates = zip(feature.coordinates, feature.signs, assigns, strict=True)
            axes += [f"M({j}, {blade}, {sign}, {assign})" for j, (blade, sign, assign) in enumerate(coordinates)]
    return out
