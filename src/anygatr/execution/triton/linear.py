"""Calls of the kernels of linear maps: forward with prologue and residual, gradients of inputs, weights and prologue."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from anygatr.execution.triton import linear_kernels
from anygatr.execution.triton.launch import LANGUAGE, call, channel_tile, precision, programs, sum_type
from anygatr.execution.triton.linear_tables import PackedTables, Reads, Widths, linear_tables
from anygatr.execution.triton.prologue import modes, prologue_backward, statistics
from anygatr.execution.triton.schedule import LinearKernel, LoadPrologue
from anygatr.execution.triton.tuning import Tile, best_tile
from anygatr.ops.linear import Linear
from anygatr.ops.precision import autocast_type

IN = 16  # channels that are read at once
TOKENS, WEIGHT = 32, 16  # tokens, rows and columns of a tile of a weight's gradient: larger ones spill on some cards
OPTIONS = {"num_stages": 1, "maxnreg": 96}
"""Registers for five programs on a processor: loads in flight would take those of others, fewer would spill."""
CHUNK = 512  # tokens whose part of a weight's gradient one program adds up


class Saved(NamedTuple):
    """What the backward pass needs besides inputs and parameters."""

    packed: Tensor
    statistics: Tensor


def forward(kernel: LinearKernel, given: Sequence[Tensor]) -> tuple[tuple[Tensor, Tensor], Saved]:
    """The results; `given` are x, s, perhaps the residual stream, then the parameters that the layer has."""
    x, s, *residual = (t.contiguous() for t in given[: len(kernel.inputs)])
    weights = _six(kernel, given[len(kernel.inputs) :])
    short = autocast_type(x)
    tokens, widths, real = s.shape[:-1], _widths(weights), sum_type(x)
    tables, out = _tables(kernel, widths, x), short or x.dtype
    out = torch.promote_types(out, residual[0].dtype) if residual else out
    packed = _packed(weights, tables, real)
    found = statistics(kernel.prologue, x, s, real)
    y, t = x.new_empty(len(x), *tokens, widths.c_out, dtype=out), s.new_empty(*tokens, widths.s_out, dtype=out)
    _linear(x, s, found, packed, tables.forward, residual, (y, t), kernel.prologue, short, False)
    return (y, t), Saved(packed, found)


def backward(
    kernel: LinearKernel, grads: tuple[Tensor | None, ...], given: Sequence[Tensor], saved: Saved, short: torch.dtype | None
) -> list[Tensor | None]:
    """The gradients of all that `forward` was given."""
    count = len(kernel.inputs)
    x, s, *residual = (t.contiguous() for t in given[:count])
    weights = _six(kernel, given[count:])
    widths, real = _widths(weights), sum_type(x)
    tables = _tables(kernel, widths, x)
    shapes = (len(x), *s.shape[:-1], widths.c_out), (*s.shape[:-1], widths.s_out)
    gy, gt = (x.new_zeros(shape) if g is None else g.contiguous() for g, shape in zip(grads, shapes, strict=True))
    gx, gs = torch.empty_like(x), torch.empty_like(s)
    _linear(gy, gt, saved.statistics, saved.packed, tables.backward, (), (gx, gs), LoadPrologue(), short, True)
    own = _weight_gradients(kernel, x, s, gy, gt, saved.statistics, widths, tables, weights, short)
    gx, gs = prologue_backward(kernel.prologue, gx, gs, x, s, saved.statistics, real)
    kept = [g.to(r.dtype) for g, r in zip((gy, gt), residual, strict=False)]
    return [gx, gs, *kept, *own]


def _linear(
    x: Tensor,
    s: Tensor,
    statistics: Tensor,
    packed: Tensor,
    reads: Reads,
    residual: Sequence[Tensor],
    results: tuple[Tensor, Tensor],
    prologue: LoadPrologue,
    short: torch.dtype | None,
    transposed: bool,
) -> None:
    y, t = results
    tokens, real = s.shape[:-1].numel(), packed.dtype
    widths = x.shape[-1], s.shape[-1], y.shape[-1], t.shape[-1]
    out = channel_tile(max(widths[2:]))
    targets = programs(y.shape[-1], out) * len(y) + programs(t.shape[-1], out)
    added = residual or (x, s)  # pointers that are not read
    constants = modes(prologue) | _types(real, short or x.dtype)

    def launch(tile: Tile) -> None:
        call(
            linear_kernels.linear_kernel,
            (programs(tokens, tile.tokens), targets),
            *(x, s, statistics, packed, *reads, *added, y, t, tokens, *widths, len(y)),
            **constants,
            TRANSPOSED=transposed,
            RESIDUAL=bool(residual),
            TOKENS=tile.tokens,
            OUT=out,
            IN=IN,
            num_warps=tile.warps,
            **OPTIONS,
        )

    # what decides about the work: not the prologue, so that maps of the same size share a decision
    key = "linear", len(y), len(reads.factors), *widths, x.dtype, y.dtype, real, short, precision()
    launch(best_tile(key, tokens, results, launch))


def _weight_gradients(
    kernel: LinearKernel,
    x: Tensor,
    s: Tensor,
    gy: Tensor,
    gt: Tensor,
    statistics: Tensor,
    widths: Widths,
    tables: PackedTables,
    weights: Sequence[Tensor | None],
    short: torch.dtype | None,
) -> list[Tensor | None]:
    """Of the parameters that the layer has."""
    tokens, real = s.shape[:-1].numel(), sum_type(x)
    chunks = max(programs(tokens, CHUNK), 1)
    parts = x.new_empty(chunks, tables.size, dtype=real)
    call(
        linear_kernels.weight_kernel,
        (len(tables.weights.tiles), chunks),
        *(x, s, statistics, gy, gt, *tables.weights, parts),
        *(tokens, widths.c_in, widths.s_in, widths.c_out, widths.s_out, tables.size, CHUNK),
        **modes(kernel.prologue),
        **_types(real, short or x.dtype),
        TOKENS=TOKENS,
        OUT=WEIGHT,
        IN=WEIGHT,
    )
    total = parts[0] if chunks == 1 else parts.sum(0)
    shape = tables.mixing.shape[1], widths.c_out * widths.c_in
    effective = shape[0] * shape[1]
    mv = total[:effective].view(shape).T @ tables.mixing.T
    rest = iter(total[effective:].split([w.numel() for w in weights[1:] if w is not None]))
    found = [mv, *(None if w is None else next(rest) for w in weights[1:])]
    return [g.view(w.shape).to(w.dtype) for g, w in zip(found, weights, strict=True) if w is not None and g is not None]


def _packed(weights: Sequence[Tensor | None], tables: PackedTables, real: torch.dtype) -> Tensor:
    """Effective weights, then all others, one behind the other."""
    mv, *others = (None if w is None else w.detach().to(real) for w in weights)
    assert mv is not None
    effective = tables.mixing.T @ mv.flatten(0, 1).T
    return torch.cat([effective.flatten(), *(w.flatten() for w in others if w is not None)])


def _six(kernel: LinearKernel, given: Sequence[Tensor]) -> list[Tensor | None]:
    """The parameters in the order of `LinearWeights`, None for those that the layer does not have."""
    rest = iter(given)
    return [None if missing else next(rest) for missing in kernel.missing]


def _widths(weights: Sequence[Tensor | None]) -> Widths:
    mv, s_to_s = weights[0], weights[Linear.parameter_names.index("s_to_s")]
    assert mv is not None
    assert s_to_s is not None
    return Widths(mv.shape[1], s_to_s.shape[1], mv.shape[0], s_to_s.shape[0])


def _tables(kernel: LinearKernel, widths: Widths, like: Tensor) -> PackedTables:
    return linear_tables(kernel.plan, widths, not kernel.missing[-1], WEIGHT, sum_type(like), like.device)


def _types(real: torch.dtype, dot: torch.dtype) -> dict[str, object]:
    return {"REAL": LANGUAGE[real], "DOT": LANGUAGE[dot], "PRECISION": precision()}
