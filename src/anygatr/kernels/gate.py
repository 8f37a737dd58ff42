"""Multivectors gated by the GELU of their own scalar part, saving nothing but the input."""

from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from anygatr.kernels import native
from anygatr.kernels.exponential import exponential
from anygatr.kernels.function import Function
from anygatr.kernels.tiles import matrix_product

TILE = 256  # numbers of a blade that are handled together


def gated_gelu(x: Float[Tensor, "k *tokens c"]) -> Float[Tensor, "k *tokens c"]:
    """y = gelu(x_0) x, with the tanh form of GELU."""
    if torch.compiler.is_compiling():  # the compiler fuses and recomputes by itself
        return x * torch.nn.functional.gelu(x[0], approximate="tanh")
    return _GatedGelu.apply(x)


class _GatedGelu(Function):
    @staticmethod
    def forward(x: Tensor) -> Tensor:
        if x.is_contiguous() and native.applies(x):
            return _run("gate", (x,))
        return x * torch.nn.functional.gelu(x[0], approximate="tanh")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (x,), (grad,) = ctx.saved_tensors, grads
        if not torch.is_grad_enabled() and native.applies(x, grad):
            return _run("gate_backward", (x.contiguous(), grad.contiguous()))
        dot = torch.zeros_like(x[0])
        for x_b, grad_b in zip(x.unbind(), grad.unbind(), strict=True):
            dot = dot.addcmul_(x_b, grad_b)
        out = grad * torch.nn.functional.gelu(x[0], approximate="tanh")
        out[0] += torch.ops.aten.gelu_backward(dot, x[0], approximate="tanh")
        return out


def _run(name: str, inputs: tuple[Tensor, ...]) -> Tensor:
    x = inputs[0]
    out, n = torch.empty_like(x), x[0].numel()
    run = native.function(_source(len(x), native.REALS[x.dtype]), name, len(inputs) + 1, 2)
    run(*(t.data_ptr() for t in inputs), out.data_ptr(), n, native.threads(n))
    return out


@lru_cache(maxsize=64)
def _source(blades: int, real: str) -> str:
    return f"""{matrix_product(real)}{exponential(real)}{gate_tiles(blades)}
#define TILES _Pragma("omp parallel for num_threads(threads) if (threads > 1)") for (long at = 0; at < n; at += {TILE})
void gate(const real *x, real *o, long n, long threads) {{
    TILES gate_some(x + at, n, o + at, n, LEAST({TILE}, n - at));
}}
void gate_backward(const real *x, const real *y, real *o, long n, long threads) {{
    TILES gate_some_backward(x + at, n, y + at, n, o + at, n, LEAST({TILE}, n - at));
}}
"""


def gate_tiles(blades: int) -> str:
    """C of `gate_tile` and its derivative for so many numbers of each blade, blades being lx, ly or lo numbers apart."""
    products = "".join(f"EACH o[{b} * lo + i] = gate[i] * x[{b} * lx + i];\n" for b in range(blades))
    dot = " + ".join(f"x[{b} * lx + i] * y[{b} * ly + i]" for b in range(blades))
    pulls = "".join(f"EACH o[{b} * lo + i] = gate[i] * y[{b} * ly + i];\n" for b in range(1, blades))
    return f"""
#define EACH for (long i = 0; i < n; i++)
#define STEPS for (long at = 0; at < n; at += {TILE})
/* gelu(x) = x / (1 + exp(-2u)), u = sqrt(2 / pi) (x + 0.044715 x^3), and its slope */
static void gelu(const real *restrict x, real *restrict gate, real *restrict slope, long n) {{
    real from[{TILE}];
    memset(from, 0, sizeof from);
    memcpy(from, x, n * sizeof(real));
    for (long i = 0; i < n; i += LANES) {{
        vec v = AT(from + i), u = (real)1.5957691216057308 * v * (1 + (real)0.044715 * v * v);
        ivec below = u < 0;
        vec one = (vec){{0}} + 1, small = exponential((vec)(((ivec)u & below) | ((ivec)-u & ~below)));
        vec share = (vec)(((ivec)small & below) | ((ivec)one & ~below)) / (1 + small);
        AT(gate + i) = v * share;
        vec steep = (real)1.5957691216057308 * (1 + 3 * (real)0.044715 * v * v);
        if (slope) AT(slope + i) = share + v * share * (1 - share) * steep;
    }}
}}
static void gate_some(const real *restrict x, long lx, real *restrict o, long lo, long n) {{
    real gate[{TILE}];
    gelu(x, gate, 0, n);
    {products}
}}
static void gate_some_backward(const real *restrict x, long lx, const real *restrict y, long ly, real *restrict o, long lo,
                               long n) {{
    real gate[{TILE}], slope[{TILE}];
    gelu(x, gate, slope, n);
    EACH o[i] = gate[i] * y[i] + slope[i] * ({dot});
    {pulls}
}}
static void gate_tile(const real *x, long lx, real *o, long lo, long n) {{
    STEPS gate_some(x + at, lx, o + at, lo, LEAST({TILE}, n - at));
}}
static void gate_tile_backward(const real *x, long lx, const real *y, long ly, real *o, long lo, long n) {{
    STEPS gate_some_backward(x + at, lx, y + at, ly, o + at, lo, LEAST({TILE}, n - at));
}}
#undef EACH
#undef STEPS
"""
