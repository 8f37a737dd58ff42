"""Equivariant linear maps in C, and attention between them: their tables, their memory, their calls."""

from collections.abc import Sequence
from ctypes import POINTER, Structure, addressof, byref, c_double, c_int, c_long, c_void_p
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from anygatr.execution.c import tensors as calls
from anygatr.execution.c.prologue import Prologue, PrologueTables
from anygatr.execution.c.prologue import tables_of as prologue_tables
from anygatr.execution.c.tensors import TOKENS, Tensors, addresses, kernels, ready, table
from anygatr.ops.linear import LinearPlan

# axes: k blades, n tokens, c channels
WEIGHTS = ("mv", "s_to_mv", "mv_to_s", "s_to_s", "bias_mv", "bias_s")
Streams = tuple[Tensor | None, Tensor | None]


class Combination(Structure):
    """combination in linear.h."""

    _fields_ = (("target", c_int), ("source", c_int), ("factor", c_double))


class LinearTerm(Structure):
    """linear_term in linear.h."""

    _fields_ = (("pair", c_int), ("target", c_int), ("source", c_int))


class LinearTables(Structure):
    """linear_plan in linear.h."""

    _fields_ = (
        *((size, c_long) for size in ("blades", "maps", "pairs", "invariants", "terms", "mixings")),
        ("makes_scalars", c_long),
        *((name, POINTER(c_int)) for name in ("invariant", "invariant_of", "reads", "writes")),
        *((name, POINTER(LinearTerm)) for name in ("in_order", "by_target", "by_source")),
        *((name, POINTER(Combination)) for name in ("mix", "unmix")),
    )


class LinearWidth(Structure):
    """linear_width in linear.h."""

    _fields_ = tuple((name, c_long) for name in ("mv_in", "s_in", "mv_out", "s_out"))


class WeightPointers(Structure):
    """linear_weights and linear_arrays in linear.h."""

    _fields_ = tuple((name, c_void_p) for name in WEIGHTS)


class LinearBackwardIO(Structure):
    """linear_backward_io in linear.h."""

    _fields_ = tuple(
        (name, c_void_p)
        for name in (
            *("x", "s", "join_reference", "grad_y", "grad_t", "grad_residual_x", "grad_residual_s"),
            *("grad_x", "grad_s"),
        )
    )


class StageStruct(Structure):
    """stage in pipeline.c."""

    _fields_ = (
        *((name, c_void_p) for name in ("plan", "before", "attend")),
        ("weights", WeightPointers),
        *((name, c_void_p) for name in ("feature_weights", "offsets")),
        ("scale", c_double),
        *((name, c_long) for name in ("length", "heads", "key_heads")),
        *((name, c_void_p) for name in ("join_reference", "y", "t")),
        *((name, c_long) for name in ("takes_side_scalars", "blades")),
        ("width", LinearWidth),
    )


class Stage(NamedTuple):
    """A stage of `forward`: a linear map with its tables and weights, or attention with its function and features."""

    plan: LinearTables | None
    prologue: PrologueTables | None
    attend: int | None
    tensors: Tensors  # the weights of a map; of attention those of features and where samples begin
    settings: tuple[float, int, int, int]  # of attention: scale, length of samples, heads, key heads
    join_reference: Tensor | None  # a number for each token
    side: bool  # whether it takes the side scalars instead of those made last
    blades: int
    widths: tuple[int, int, int, int]  # channels and scalars that it takes and that it makes


@lru_cache(maxsize=1024)
def tables_of(plan: LinearPlan) -> LinearTables:
    """The tables of a LinearPlan."""
    terms = plan.entries
    pairs = sorted({(e, factor) for e, factor, _, _ in terms})
    in_order = [(pairs.index((e, factor)), target, source) for e, factor, target, source in terms]
    mixing = plan.mixing
    mix = [(p, m, row[e] * factor) for p, (e, factor) in enumerate(pairs) for m, row in enumerate(mixing) if row[e]]
    unmix = sorted(((m, p, factor) for p, m, factor in mix), key=lambda entry: entry[:2])
    sizes = plan.blades, len(mixing), len(pairs), len(plan.invariant), len(terms), len(mix)
    place = {blade: j for j, blade in enumerate(plan.invariant)}
    every = range(plan.blades)
    return LinearTables(
        *sizes,
        plan.scalars,
        table(c_int, plan.invariant),
        table(c_int, (place.get(b, -1) for b in every)),
        *(table(c_int, (b in blades for b in every)) for blades in (plan.reads, plan.writes)),
        table(LinearTerm, in_order),
        table(LinearTerm, sorted(in_order, key=lambda term: term[1])),
        table(LinearTerm, sorted(in_order, key=lambda term: term[2])),
        table(Combination, mix),
        table(Combination, unmix),
    )


def entry(
    plan: LinearPlan,
    before: Prologue,
    weights: Tensors,
    join_reference: Tensor | None,
    real: torch.dtype,
    side: bool = False,
) -> Stage:
    """A linear map with its prologue, which may need the join reference."""
    (c_out, c_in, _), (s_out, s_in) = weights[0].shape, weights[3].shape  # type: ignore[union-attr]
    prologue = prologue_tables(before, plan.blades, real, c_in, False)
    widths = c_in, s_in, c_out, s_out
    return Stage(tables_of(plan), prologue, None, weights, (0.0, 1, 1, 1), join_reference, side, plan.blades, widths)


def forward(
    x: Float[Tensor, "k *n c"],
    s: Float[Tensor, "*n c_s"],
    entries: Sequence[Stage],
    residual: Streams = (None, None),
    keep_intermediates: bool = True,
    side: Tensor | None = None,
    tile: int = TOKENS,
) -> list[tuple[Tensor, Tensor]]:
    """x and s through all stages, the residual added to the last results.

    The results of all stages or, unless `keep_intermediates`, of the last alone: then those between do not leave the cache,
    with attention on samples that are whole in every `tile` of tokens. `side` are the scalars of stages that take them.
    """
    tokens, last = s.shape[:-1], len(entries) - 1
    results, stages, kept = [], list[StageStruct](), ready((x, s, s if side is None else side, *residual))
    streams = addresses(kept)
    for i, (plan, prologue, attend, tensors, settings, join_reference, is_side, blades, widths) in enumerate(entries):
        made: Any = (None, None)
        if keep_intermediates or i == last:
            made = x.new_empty(blades, *tokens, widths[2]), s.new_empty(*tokens, widths[3])
            results.append(made)
        given = ready((*tensors, join_reference, *made))
        kept += given
        *own, reference, y, t = addresses(given)
        weights, others = (WeightPointers(*own), (None, None)) if attend is None else (WeightPointers(), own)
        tables = None if plan is None else addressof(plan), None if prologue is None else addressof(prologue)
        width = _width(*widths)
        stages.append(StageStruct(*tables, attend, weights, *others, *settings, reference, y, t, is_side, blades, width))
    count = tokens.numel()
    run = _function("pipeline", x.dtype, 6, 6)
    told = (StageStruct * len(stages))(*stages)
    sizes = last + 1, x.shape[-1], s.shape[-1], count, tile, _threads(count)
    calls.call(run, kept, byref(told), *streams, *sizes)
    return results


def backward(
    grad_y: Tensor,
    grad_t: Tensor,
    x: Tensor,
    s: Tensor,
    weights: Sequence[Tensor | None],
    plan: LinearPlan,
    before: Prologue,
    wants_inputs: bool,
    join_reference: Tensor | None = None,
    grad_residual: Streams = (None, None),
) -> tuple[Tensor | None, ...]:
    """The gradients of x, s and the weights; those of x and s, with `grad_residual` added, only if they are wanted."""
    grads = [_like(t) if wants_inputs else None for t in (x, s)]
    grads += [None if w is None else _like(w) for w in weights]
    given = ready((*weights[:4], x, s, join_reference, grad_y, grad_t, *grad_residual, *grads))
    places = addresses(given)
    (c_out, c_in, _), (s_out, s_in) = weights[0].shape, weights[3].shape  # type: ignore[union-attr]
    tables, prologue = tables_of(plan), prologue_tables(before, plan.blades, x.dtype, c_in, True)
    io, found = LinearBackwardIO(*places[4:13]), WeightPointers(*places[13:])
    width, parameters = _width(c_in, s_in, c_out, s_out), WeightPointers(*places[:4])
    run, count = _function("linear_backward", x.dtype, 6, 2), s.shape[:-1].numel()
    structs = (tables, prologue, width, parameters, io, found)
    calls.call(run, given, *map(byref, structs), count, _threads(count))
    return tuple(grads)


def _like(t: Tensor) -> Tensor:
    return torch.empty_like(t, memory_format=torch.contiguous_format)


@lru_cache(maxsize=256)
def _width(*sizes: int) -> LinearWidth:
    return LinearWidth(*sizes)


def _threads(tokens: int) -> int:
    return max(1, min(torch.get_num_threads(), tokens // TOKENS))


@lru_cache(maxsize=16)
def _function(name: str, real: torch.dtype, pointers: int, integers: int) -> Any:
    function = kernels(real)[name]
    function.argtypes, function.restype = [c_void_p] * pointers + [c_long] * integers, None
    return function
