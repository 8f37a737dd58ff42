"""Multivectors gated by the GELU of their own scalar part, saving nothing but the input."""

from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from anygatr.kernels import native
from anygatr.kernels.function import Function
from anygatr.kernels.gelu import gelu_source
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
    return f"""{matrix_product(real)}{gelu_source(real)}{gate_tiles(blades)}
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
    return f"""
#define EACH for (long i = 0; i < n; i++)
#define STEPS for (long at = 0; at < n; at += {TILE})
static void gates(const real *restrict x, real *restrict gate, real *restrict slope, long n) {{
    real from[{TILE}];
    memset(from, 0, sizeof from);
    memcpy(from, x, n * sizeof(real));
    for (long i = 0; i < n; i += LANES) AT(gate + i) = gelu_tanh(AT(from + i), slope ? (vec *)(slope + i) : 0);
}}
static void gate_some(const real *restrict x, long lx, real *restrict o, long lo, long n) {{
    real gate[{TILE}];
    gates(x, gate, 0, n);
    for (long b = 0; b < {blades}; b++) EACH o[b * lo + i] = gate[i] * x[b * lx + i];
}}
static void gate_some_backward(const real *restrict x, long lx, const real *restrict y, long ly, real *restrict o, long lo,
                               long n) {{
    real gate[{TILE}], slope[{TILE}], dot[{TILE}] = {{0}};
    gates(x, gate, slope, n);
    for (long b = 0; b < {blades}; b++) EACH dot[i] += x[b * lx + i] * y[b * ly + i];
    for (long b = 0; b < {blades}; b++) EACH o[b * lo + i] = gate[i] * y[b * ly + i];
    EACH o[i] += slope[i] * dot[i];
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
