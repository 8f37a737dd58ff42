"""Equivariant linear maps in C: their memory, their threads, their calls."""

import ctypes
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from anygatr.kernels import native
from anygatr.kernels.linear_plan import LinearPlan, Weights
from anygatr.kernels.linear_source import linear_source
from anygatr.kernels.maps_source import FUNCTIONS, TOKENS, maps_source
from anygatr.kernels.product import lanes
from anygatr.kernels.prologue import Prologue

Map = tuple[LinearPlan, Prologue, bool]
"""What is done before it, and whether it takes the scalars that are `beside`."""
Tensors = Sequence[Tensor | None]


def forward(
    x: Tensor,
    s: Tensor,
    maps: Sequence[tuple[Map, Tensors]],
    onto: tuple[Tensor | None, Tensor | None] = (None, None),
    keep: bool = True,
    beside: Tensor | None = None,
) -> list[tuple[Tensor, Tensor]]:
    """(k, *tokens, c) and (*tokens, c_s) mapped by one after the other, the last results added to `onto`.

    The tensors of a map are its weights and a number for each token that its prologue may need. The results of all maps, or
    of the last alone unless they are to `keep`: then those between do not leave the cache.
    """
    tokens, channels, last = s.shape[:-1], x.shape[-1], len(maps) - 1
    results, told, kept = [], list[Any](), native.ready((x, s, s if beside is None else beside, *onto))
    streams = native.addresses(kept)
    for i, ((plan, before, is_beside), tensors) in enumerate(maps):
        mv, _, _, s_to_s, *_ = tensors
        (c_out, c_in, _), (s_out, s_in) = mv.shape, s_to_s.shape  # type: ignore[union-attr]
        made: Any = (None, None)
        if keep or i == last:
            made = x.new_empty(plan.blades, *tokens, c_out), s.new_empty(*tokens, s_out)
            results.append(made)
        kept += (given := native.ready((*tensors, *made)))
        told += (*_functions(plan, before, x.dtype, channels), *native.addresses(given))
        told += (is_beside, plan.blades, c_in, s_in, c_out, s_out)
        channels = c_out
    count, table = tokens.numel(), (ctypes.c_void_p * len(told))(*told)
    _run(_maps(x.dtype), kept, table, *streams, last + 1, x.shape[-1], s.shape[-1], count, _threads(count))
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
    return native.function(maps_source(native.REALS[real]), "maps", 6, 5)


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
