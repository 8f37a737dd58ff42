"""Equivariant linear maps in C, and attention between them: their memory, their threads, their calls."""

import ctypes
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from anygatr.kernels import native
from anygatr.kernels.linear_plan import LinearPlan, Weights
from anygatr.kernels.linear_source import linear_source
from anygatr.kernels.maps_source import FUNCTIONS, TOKENS, maps_source
from anygatr.kernels.product import lanes
from anygatr.kernels.prologue import Prologue

Tensors = Sequence[Tensor | None]


class Entry(NamedTuple):
    """What `maps` is told of one of its operations: functions, tensors and sizes, and what its results have."""

    functions: tuple[int | None, ...]
    tensors: Tensors
    integers: tuple[int, ...]
    number: Tensor | None  # of each token
    beside: bool
    blades: int
    widths: tuple[int, int, int, int]  # channels and scalars that it takes and that it makes


def entry(
    plan: LinearPlan, before: Prologue, tensors: Tensors, real: torch.dtype, channels: int, beside: bool = False
) -> Entry:
    """A map of so many channels; its tensors are its weights and a number for each token that its prologue may need."""
    mv, _, _, s_to_s, *_ = tensors
    (c_out, c_in, _), (s_out, s_in) = mv.shape, s_to_s.shape  # type: ignore[union-attr]
    functions, widths = _functions(plan, before, real, channels), (c_in, s_in, c_out, s_out)
    return Entry(functions, tensors[:-1], (), tensors[-1], beside, plan.blades, widths)


def forward(
    x: Tensor,
    s: Tensor,
    entries: Sequence[Entry],
    onto: tuple[Tensor | None, Tensor | None] = (None, None),
    keep: bool = True,
    beside: Tensor | None = None,
    tile: int = TOKENS,
) -> list[tuple[Tensor, Tensor]]:
    """(k, *tokens, c) and (*tokens, c_s) mapped by one after the other, the last results added to `onto`.

    The results of all, or of the last alone unless they are to `keep`: then those between do not leave the cache, with
    attention on samples that are whole in every `tile` of tokens.
    """
    tokens, last = s.shape[:-1], len(entries) - 1
    results, told, kept = [], list[Any](), native.ready((x, s, s if beside is None else beside, *onto))
    streams = native.addresses(kept)
    for i, (functions, tensors, integers, number, is_beside, blades, widths) in enumerate(entries):
        made: Any = (None, None)
        if keep or i == last:
            made = x.new_empty(blades, *tokens, widths[2]), s.new_empty(*tokens, widths[3])
            results.append(made)
        ready = native.ready((*tensors, number, *made))
        kept += ready
        places = native.addresses(ready)
        told += (*functions, *places[:-3], *integers, *places[-3:], is_beside, blades, *widths)
    count, table = tokens.numel(), (ctypes.c_void_p * len(told))(*told)
    _run(_maps(x.dtype), kept, table, *streams, last + 1, x.shape[-1], s.shape[-1], count, tile, _threads(count))
    return results


def backward(
    grad_y: Tensor,
    grad_t: Tensor,
    x: Tensor,
    s: Tensor,
    weights: Weights,
    plan: LinearPlan,
    before: Prologue,
    below: bool,
    number: Tensor | None = None,
    plus: tuple[Tensor | None, Tensor | None] = (None, None),
) -> tuple[Tensor | None, ...]:
    """The gradients of x, s and the weights; those of x and s, with `plus` added, only if something is `below`."""
    found = [t.new_empty(t.shape) if below else None for t in (x, s)]
    found += [None if w is None else w.new_empty(w.shape) for w in weights]
    given = native.ready((x, s, number, *weights[:4], grad_y, grad_t, *plus, *found))
    (c_out, c_in, _), (s_out, s_in), count = weights.mv.shape, weights.s_to_s.shape, s.shape[:-1].numel()
    run = _backward(plan, before, x.dtype, x.shape[-1], len(given))
    _run(run, given, *native.addresses(given), count, c_in, s_in, c_out, s_out, _threads(count))
    return tuple(found)


def _run(run: Callable[..., None], kept: Tensors, *arguments: Any) -> None:
    """Call C; what it reads and writes is kept until it returns."""
    run(*arguments)


def _threads(tokens: int) -> int:
    return max(1, min(torch.get_num_threads(), tokens // TOKENS))


@lru_cache(maxsize=2)
def _maps(real: torch.dtype) -> Callable[..., None]:
    return native.function(maps_source(native.REALS[real]), "maps", 6, 6)


@lru_cache(maxsize=512)
def _functions(plan: LinearPlan, before: Prologue, real: torch.dtype, channels: int) -> tuple[int, ...]:
    source = _source(plan, before, real, channels)
    return tuple(native.address(source, name) for name in FUNCTIONS)


@lru_cache(maxsize=512)
def _backward(plan: LinearPlan, before: Prologue, real: torch.dtype, channels: int, pointers: int) -> Callable[..., None]:
    return native.function(_source(plan, before, real, channels), "linear_backward", pointers, 6)


def _source(plan: LinearPlan, before: Prologue, real: torch.dtype, channels: int) -> str:
    together = 0 if before.products is None else lanes(channels, before.products)
    return linear_source(plan, before, native.REALS[real], together)
