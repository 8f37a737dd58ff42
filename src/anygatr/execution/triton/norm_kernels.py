"""Norms and gates: the numbers with which a linear map normalises its inputs, and the gradients of both."""

import triton
import triton.language as tl

from anygatr.execution.triton.pointwise import (
    ACTIVE,
    DEVIATION,
    EXACT,
    GATE,
    MEAN,
    NORM,
    SCALE,
    TANH,
    gelu_exact_slope,
    gelu_tanh,
    gelu_tanh_slope,
    mv_tile,
    scalar_tile,
)

SIZES = ["tokens", "x_width", "s_width", "groups", "blades", "mv_numbers", "s_numbers"]


@triton.jit
def _squares(x, members, group, n, c, tokens, width, REAL: tl.constexpr, TOKENS: tl.constexpr, CHANNELS: tl.constexpr):
    """The signed sum of a group's terms, blades times their partners."""
    total = tl.zeros((TOKENS, CHANNELS), dtype=REAL)
    for at in range(tl.load(members + 2 * group), tl.load(members + 2 * group + 1), 3):
        value = mv_tile(x, x, tl.load(members + at), n, c, tokens, width, REAL, 0)
        partner = mv_tile(x, x, tl.load(members + at + 1), n, c, tokens, width, REAL, 0)
        total += tl.load(members + at + 2).to(REAL) * value * partner
    return total


@triton.jit(do_not_specialize=SIZES)
def statistics_kernel(
    x, s, members, out, tokens, x_width, s_width, groups,
    MV: tl.constexpr, SCALARS: tl.constexpr, ABSOLUTE: tl.constexpr, CLAMP: tl.constexpr,
    EPS: tl.constexpr, SCALAR_EPS: tl.constexpr,  # constants keep the digits that arguments, in float32, lose
    REAL: tl.constexpr, TOKENS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """For each token: 1 / size of the multivectors, mean and 1 / deviation of the scalars, and whether eps is exceeded."""
    n = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    inside = n < tokens
    if MV == NORM:
        size = tl.zeros((TOKENS,), dtype=REAL)
        for first in range(0, x_width, CHANNELS):
            c = first + tl.arange(0, CHANNELS)
            for group in range(groups):
                squares = _squares(x, members, group, n, c, tokens, x_width, REAL, TOKENS, CHANNELS)
                size += tl.sum(tl.abs(squares) if ABSOLUTE else squares, 1)
        size = size / x_width
        floor = tl.full((TOKENS,), EPS if CLAMP else 0.0, dtype=REAL)
        active = size >= floor
        size = tl.where(active, size, floor)
        tl.store(out + SCALE * tokens + n, 1.0 / tl.sqrt(size if CLAMP else size + EPS), mask=inside)
        tl.store(out + ACTIVE * tokens + n, active.to(REAL), mask=inside)
    if SCALARS == NORM:
        mean = tl.zeros((TOKENS,), dtype=REAL)
        for first in range(0, s_width, CHANNELS):
            mean += tl.sum(scalar_tile(s, s, n, first + tl.arange(0, CHANNELS), tokens, s_width, REAL, 0), 1)
        mean = mean / s_width
        variance = tl.zeros((TOKENS,), dtype=REAL)
        for first in range(0, s_width, CHANNELS):
            c = first + tl.arange(0, CHANNELS)
            centred = scalar_tile(s, s, n, c, tokens, s_width, REAL, 0) - mean[:, None]
            variance += tl.sum(tl.where((c < s_width)[None, :], centred * centred, 0.0), 1)
        tl.store(out + MEAN * tokens + n, mean, mask=inside)
        tl.store(out + DEVIATION * tokens + n, 1.0 / tl.sqrt(variance / s_width + SCALAR_EPS), mask=inside)


@triton.jit(do_not_specialize=SIZES)
def norm_backward_kernel(
    grad_x, grad_s, x, s, statistics, members, out_x, out_s, tokens, x_width, s_width, groups, blades,
    MV: tl.constexpr, SCALARS: tl.constexpr, ABSOLUTE: tl.constexpr,
    REAL: tl.constexpr, TOKENS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Gradients of normalised streams as gradients of what was normalised."""
    n = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    inside = n < tokens
    if MV == NORM:
        scale = tl.load(statistics + SCALE * tokens + n, mask=inside, other=0.0)
        active = tl.load(statistics + ACTIVE * tokens + n, mask=inside, other=0.0)
        dots = tl.zeros((TOKENS,), dtype=REAL)
        for first in range(0, x_width, CHANNELS):
            c = first + tl.arange(0, CHANNELS)
            for blade in range(blades):
                value = mv_tile(x, x, blade, n, c, tokens, x_width, REAL, 0)
                dots += tl.sum(value * mv_tile(grad_x, x, blade, n, c, tokens, x_width, REAL, 0), 1)
        along = active * dots * scale * scale * scale / x_width
        for first in range(0, x_width, CHANNELS):
            c = first + tl.arange(0, CHANNELS)
            within = inside[:, None] & (c < x_width)[None, :]
            place = n.to(tl.int64)[:, None] * x_width + c[None, :]
            for blade in range(blades):
                g = mv_tile(grad_x, x, blade, n, c, tokens, x_width, REAL, 0) * scale[:, None]
                terms = members + 2 * (groups + blade)
                for at in range(tl.load(terms), tl.load(terms + 1), 3):
                    term = tl.load(members + at + 2).to(REAL) * along[:, None]
                    term *= mv_tile(x, x, tl.load(members + at + 1), n, c, tokens, x_width, REAL, 0)
                    if ABSOLUTE:
                        group = tl.load(members + at)
                        squares = _squares(x, members, group, n, c, tokens, x_width, REAL, TOKENS, CHANNELS)
                        term = tl.where(squares > 0, term, tl.where(squares < 0, -term, 0.0))
                    g -= term
                tl.store(out_x + tokens.to(tl.int64) * x_width * blade + place, g, mask=within)
    if SCALARS == NORM:
        deviation = tl.load(statistics + DEVIATION * tokens + n, mask=inside, other=0.0)
        mean, along_s = tl.zeros((TOKENS,), dtype=REAL), tl.zeros((TOKENS,), dtype=REAL)
        for first in range(0, s_width, CHANNELS):
            c = first + tl.arange(0, CHANNELS)
            g = scalar_tile(grad_s, s, n, c, tokens, s_width, REAL, 0)
            mean += tl.sum(g, 1)
            along_s += tl.sum(g * scalar_tile(s, statistics, n, c, tokens, s_width, REAL, NORM), 1)
        for first in range(0, s_width, CHANNELS):
            c = first + tl.arange(0, CHANNELS)
            value = scalar_tile(s, statistics, n, c, tokens, s_width, REAL, NORM)
            g = scalar_tile(grad_s, s, n, c, tokens, s_width, REAL, 0)
            g = (g - (mean / s_width)[:, None] - value * (along_s / s_width)[:, None]) * deviation[:, None]
            within = inside[:, None] & (c < s_width)[None, :]
            tl.store(out_s + n.to(tl.int64)[:, None] * s_width + c[None, :], g, mask=within)


@triton.jit(do_not_specialize=SIZES)
def gate_backward_kernel(
    grad_x, grad_s, x, s, out_x, out_s, mv_numbers, s_numbers, blades,
    MV: tl.constexpr, SCALARS: tl.constexpr, REAL: tl.constexpr, NUMBERS: tl.constexpr,
):  # fmt: skip
    """Gradients of gated multivectors and of scalars behind GELU, number by number."""
    at = tl.program_id(0).to(tl.int64) * NUMBERS + tl.arange(0, NUMBERS)
    if MV == GATE:
        inside = at < mv_numbers
        scalar = tl.load(x + at, mask=inside, other=0.0).to(REAL)
        gate = gelu_tanh(scalar)
        along = tl.zeros((NUMBERS,), dtype=REAL)
        place = at
        for _ in range(1, blades):
            place += mv_numbers
            g = tl.load(grad_x + place, mask=inside, other=0.0).to(REAL)
            along += g * tl.load(x + place, mask=inside, other=0.0).to(REAL)
            tl.store(out_x + place, g * gate, mask=inside)
        g = tl.load(grad_x + at, mask=inside, other=0.0).to(REAL)
        tl.store(out_x + at, g * gate + (along + g * scalar) * gelu_tanh_slope(scalar), mask=inside)
    if SCALARS == EXACT or SCALARS == TANH:  # noqa: SIM109  Triton has no `in`
        inside_s = at < s_numbers
        z = tl.load(s + at, mask=inside_s, other=0.0).to(REAL)
        g_s = tl.load(grad_s + at, mask=inside_s, other=0.0).to(REAL)
        tl.store(out_s + at, g_s * (gelu_exact_slope(z) if SCALARS == EXACT else gelu_tanh_slope(z)), mask=inside_s)
