"""Device functions that kernels share: GELU and its derivative; tiles of streams, normalised or gated as they are read."""

import triton
import triton.language as tl

AS_IT_IS, NORM, GATE = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)  # of multivectors
EXACT, TANH = tl.constexpr(2), tl.constexpr(3)  # of scalars, which may be AS_IT_IS or NORM as well
SCALE, MEAN, DEVIATION, ACTIVE = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2), tl.constexpr(3)  # rows of statistics
ROWS = tl.constexpr(4)


@triton.jit
def tanh(z):
    """From the exponential, which every type has."""
    return 2.0 / (1.0 + tl.exp(-2.0 * z)) - 1.0


@triton.jit
def gelu_tanh(z):
    """z/2 (1 + tanh(sqrt(2/pi) (z + 0.044715 z^3)))."""
    return 0.5 * z * (1.0 + tanh(0.7978845608028654 * (z + 0.044715 * z * z * z)))


@triton.jit
def gelu_tanh_slope(z):
    """Its derivative."""
    t = tanh(0.7978845608028654 * (z + 0.044715 * z * z * z))
    return 0.5 * (1.0 + t) + 0.5 * z * (1.0 - t * t) * 0.7978845608028654 * (1.0 + 3 * 0.044715 * z * z)


@triton.jit
def gelu_exact(z):
    """z Phi(z)."""
    return 0.5 * z * (1.0 + tl.erf(z * 0.7071067811865476))


@triton.jit
def gelu_exact_slope(z):
    """Phi(z) + z phi(z)."""
    return 0.5 * (1.0 + tl.erf(z * 0.7071067811865476)) + z * tl.exp(-0.5 * z * z) * 0.3989422804014327


@triton.jit
def mv_tile(x, statistics, blade, n, c, tokens, width, REAL: tl.constexpr, MODE: tl.constexpr):
    """x[blade] at tokens n and channels c: as it is, divided by its size, or gated by its scalar part."""
    inside = (n < tokens)[:, None] & (c < width)[None, :]
    place = n.to(tl.int64)[:, None] * width + c[None, :]
    value = tl.load(x + tokens.to(tl.int64) * width * blade + place, mask=inside, other=0.0).to(REAL)
    if MODE == NORM:
        value *= tl.load(statistics + SCALE * tokens + n, mask=n < tokens, other=0.0)[:, None]
    if MODE == GATE:
        value *= gelu_tanh(tl.load(x + place, mask=inside, other=0.0).to(REAL))
    return value


@triton.jit
def scalar_tile(s, statistics, n, c, tokens, width, REAL: tl.constexpr, MODE: tl.constexpr):
    """s at tokens n and channels c: as it is, with mean 0 and variance 1, or through GELU."""
    inside = (n < tokens)[:, None] & (c < width)[None, :]
    value = tl.load(s + n.to(tl.int64)[:, None] * width + c[None, :], mask=inside, other=0.0).to(REAL)
    if MODE == NORM:
        mean = tl.load(statistics + MEAN * tokens + n, mask=n < tokens, other=0.0)
        deviation = tl.load(statistics + DEVIATION * tokens + n, mask=n < tokens, other=0.0)
        value = tl.where(inside, (value - mean[:, None]) * deviation[:, None], 0.0)
    if MODE == EXACT:
        value = gelu_exact(value)
    if MODE == TANH:
        value = gelu_tanh(value)
    return value
