"""Linear maps by table: one kernel for results and for gradients of inputs, one for gradients of all weights."""

import triton
import triton.language as tl

from anygatr.execution.triton.pointwise import mv_tile, scalar_tile

SIZES = ["tokens", "x_width", "s_width", "y_width", "t_width", "blades", "size", "chunk"]


@triton.jit(do_not_specialize=SIZES)
def linear_kernel(
    x, s, statistics, packed, targets, entries, factors, residual_x, residual_s, y, t,
    tokens, x_width, s_width, y_width, t_width, blades,
    MV: tl.constexpr, SCALARS: tl.constexpr, TRANSPOSED: tl.constexpr, RESIDUAL: tl.constexpr,
    REAL: tl.constexpr, DOT: tl.constexpr, PRECISION: tl.constexpr,
    TOKENS: tl.constexpr, OUT: tl.constexpr, IN: tl.constexpr,
):  # fmt: skip
    """One tile of tokens and channels of one target: a blade of y, or the scalars t.

    Weights are stored by output and input; transposed, the kernel takes gradients of outputs to gradients of inputs.
    """
    n = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    per_blade = tl.maximum(tl.cdiv(y_width, OUT), 1)
    of_blades = tl.cdiv(y_width, OUT) * blades
    is_scalar = tl.program_id(1) >= of_blades
    target = tl.where(is_scalar, blades, tl.program_id(1) // per_blade)
    width = tl.where(is_scalar, t_width, y_width)
    o = tl.where(is_scalar, tl.program_id(1) - of_blades, tl.program_id(1) % per_blade) * OUT + tl.arange(0, OUT)
    inside = (n < tokens)[:, None] & (o < width)[None, :]
    place = n.to(tl.int64)[:, None] * width + o[None, :]
    place = tl.where(is_scalar, place, place + target.to(tl.int64) * tokens * y_width)

    total = tl.zeros((TOKENS, OUT), dtype=REAL)
    start = tl.load(targets + 4 * target)
    stop = tl.load(targets + 4 * target + 1)
    from_scalars = tl.load(targets + 4 * target + 2)
    bias = tl.load(targets + 4 * target + 3)
    for entry in range(start, stop):
        source = tl.load(entries + 2 * entry)
        weight = tl.load(entries + 2 * entry + 1)
        factor = tl.load(factors + entry)
        for first in range(0, x_width, IN):
            c = first + tl.arange(0, IN)
            a = mv_tile(x, statistics, source, n, c, tokens, x_width, REAL, MV) * factor
            w = _weights(packed + weight, c, o, x_width, width, TRANSPOSED)
            total = tl.dot(a.to(DOT), w.to(DOT), total, input_precision=PRECISION, out_dtype=REAL)
    if from_scalars >= 0:
        for first in range(0, s_width, IN):
            c = first + tl.arange(0, IN)
            a = scalar_tile(s, statistics, n, c, tokens, s_width, REAL, SCALARS)
            w = _weights(packed + from_scalars, c, o, s_width, width, TRANSPOSED)
            total = tl.dot(a.to(DOT), w.to(DOT), total, input_precision=PRECISION, out_dtype=REAL)
    if bias >= 0:
        total += tl.load(packed + bias + o, mask=o < width, other=0.0).to(REAL)[None, :]
    if is_scalar:
        if RESIDUAL:
            total += tl.load(residual_s + place, mask=inside, other=0.0).to(REAL)
        tl.store(t + place, total, mask=inside)
    else:
        if RESIDUAL:
            total += tl.load(residual_x + place, mask=inside, other=0.0).to(REAL)
        tl.store(y + place, total, mask=inside)


@triton.jit
def _weights(weight, c, o, rows, columns, TRANSPOSED: tl.constexpr):
    """A tile (in, out) of a weight that is stored (out, in), or of its transpose."""
    inside = (c < rows)[:, None] & (o < columns)[None, :]
    place = c[:, None] * columns + o[None, :] if TRANSPOSED else o[None, :] * rows + c[:, None]
    return tl.load(weight + place, mask=inside, other=0.0)


@triton.jit(do_not_specialize=SIZES)
def weight_kernel(
    x, s, statistics, grad_y, grad_t, tiles, pairs, factors, out,
    tokens, x_width, s_width, y_width, t_width, size, chunk,
    MV: tl.constexpr, SCALARS: tl.constexpr,
    REAL: tl.constexpr, DOT: tl.constexpr, PRECISION: tl.constexpr,
    TOKENS: tl.constexpr, OUT: tl.constexpr, IN: tl.constexpr,
):  # fmt: skip
    """A tile of the gradient of one weight, summed over a chunk of tokens: out[chunk, weight] = sum_n grad_n input_n."""
    tile = tiles + 8 * tl.program_id(0)
    target_kind = tl.load(tile)
    source_kind = tl.load(tile + 1)
    start, stop = tl.load(tile + 2), tl.load(tile + 3)
    o = tl.load(tile + 4) + tl.arange(0, OUT)
    i = tl.load(tile + 5) + tl.arange(0, IN)
    place, columns = tl.load(tile + 6), tl.load(tile + 7)
    rows = tl.where(target_kind == 0, y_width, t_width)
    begin = tl.program_id(1) * chunk
    end = tl.minimum(begin + chunk, tokens)
    total = tl.zeros((OUT, IN), dtype=REAL)
    for pair in range(start, stop):
        target = tl.load(pairs + 2 * pair)
        source = tl.load(pairs + 2 * pair + 1)
        factor = tl.load(factors + pair)
        for first in range(begin, end, TOKENS):
            n = first + tl.arange(0, TOKENS)
            n = tl.where(n < end, n, tokens)
            if target_kind == 0:
                g = mv_tile(grad_y, statistics, target, n, o, tokens, y_width, REAL, 0)
            else:
                g = scalar_tile(grad_t, statistics, n, o, tokens, t_width, REAL, 0)
            if source_kind == 0:
                a = mv_tile(x, statistics, source, n, i, tokens, x_width, REAL, MV)
            elif source_kind == 1:
                a = scalar_tile(s, statistics, n, i, tokens, s_width, REAL, SCALARS)
            else:
                a = tl.where((n < tokens)[:, None] & (i == 0)[None, :], 1.0, 0.0).to(REAL)
            g = tl.trans(g * factor)
            total = tl.dot(g.to(DOT), a.to(DOT), total, input_precision=PRECISION, out_dtype=REAL)
    inside = (o < rows)[:, None] & (i < columns)[None, :]
    where = out + tl.program_id(1).to(tl.int64) * size + place + o[:, None] * columns + i[None, :]
    tl.store(where, total, mask=inside)
