"""Division of multivectors by their invariant size over channels, saving nothing but the input."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from anygatr.algebra import Algebra
from anygatr.kernels import graph, native
from anygatr.kernels.function import Function

NORMS = ("inner", "abs", "grade_abs")
FORMS = ("add", "clamp")
TILE = 256  # numbers of a blade that are handled together


@dataclass(frozen=True)
class NormPlan:
    """size(x) = mean over channels of sum_g |sum_{b in g} sign_b x_b^2|; `absolute` switches the absolute value on.

    `floor` ("add", eps) divides by sqrt(size + eps), ("clamp", eps) by sqrt(max(size, eps)).
    """

    groups: tuple[tuple[tuple[int, float], ...], ...]  # for each group its (blade, sign)
    absolute: bool
    floor: tuple[str, float]  # a tuple is a constant to torch's tracing, which begins anew for a number by itself


def norm_plan(algebra: Algebra, norm: str, eps: float, form: str) -> NormPlan:
    """The paper's three norms: "inner" <x, x>, "abs" |<x, x>|, "grade_abs" sum over grades of |<<x>_k, <x>_k>|."""
    if norm not in NORMS:
        raise ValueError(f"norm={norm!r} is unknown; choose from {', '.join(map(repr, NORMS))}")
    if form not in FORMS:
        raise ValueError(f"norm_form={form!r} is unknown; choose from {', '.join(map(repr, FORMS))}")
    if not eps > 0:
        raise ValueError(f"norm_eps={eps!r} must be positive; the default is 0.01")
    metric = algebra.metric.tolist()
    blades = [range(s.start, s.stop) for s in algebra.slices] if norm == "grade_abs" else [range(algebra.dim)]
    groups = tuple(tuple((b, metric[b]) for b in group if metric[b]) for group in blades)
    return NormPlan(tuple(g for g in groups if g), norm != "inner", (form, eps))


def normalise(x: Float[Tensor, "k *tokens c"], plan: NormPlan) -> Float[Tensor, "k *tokens c"]:
    """x divided by the root of its size."""
    if not x.shape[-1]:
        return x
    if torch.compiler.is_compiling():  # the compiler fuses and recomputes by itself
        return graph.normalise(x, plan.groups, plan.absolute, plan.floor)
    return _Normalise.apply(x, plan)


class _Normalise(Function):
    @staticmethod
    def forward(x: Tensor, plan: NormPlan) -> Tensor:
        if x.is_contiguous() and native.applies(x):
            return _run("norm", (x,), plan)
        return x * _scale(x, plan)[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        x, ctx.plan = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (x,), (grad,), plan = ctx.saved_tensors, grads, ctx.plan
        if not torch.is_grad_enabled() and native.applies(x, grad):
            return _run("norm_backward", (x.contiguous(), grad.contiguous()), plan), None
        scale, active, signs = _scale(x, plan)
        dot = torch.zeros_like(x[0])
        for x_b, grad_b in zip(x.unbind(), grad.unbind(), strict=True):
            dot = dot.addcmul_(x_b, grad_b)
        factor = dot.mean(-1, keepdim=True) * scale**3 * active
        out = grad * scale
        for group, sign in zip(plan.groups, signs, strict=True):
            pull = factor * sign
            for b, metric in group:
                out[b].addcmul_(pull, x[b], value=-metric)
        return out, None


def _scale(x: Tensor, plan: NormPlan) -> tuple[Tensor, Tensor, list[Tensor]]:
    """1 / sqrt(size), whether the size is in its differentiable range, and each group's sign. Differentiable."""
    size, signs = torch.zeros_like(x[0]), []
    for group in plan.groups:
        square = torch.zeros_like(x[0])
        for b, metric in group:
            square = square.addcmul_(x[b], x[b], value=metric)
        signs.append(square.detach().sign() if plan.absolute else torch.ones_like(square[..., :1]))
        size = size + (square.abs() if plan.absolute else square)
    mean = size.mean(-1, keepdim=True)
    form, eps = plan.floor
    if form == "clamp":
        return mean.clamp(min=eps).rsqrt(), (mean > eps).to(x), signs
    # an indefinite inner product may be negative: then eps alone is left
    return (mean.clamp(min=0) + eps).rsqrt(), (mean > 0).to(x), signs


def _run(name: str, inputs: tuple[Tensor, ...], plan: NormPlan) -> Tensor:
    x = inputs[0]
    out = torch.empty_like(x)
    run = native.function(_source(plan, len(x), native.REALS[x.dtype]), name, len(inputs) + 1, 3)
    tokens, channels = x[0, ..., 0].numel(), x.shape[-1]
    run(*(t.data_ptr() for t in inputs), out.data_ptr(), tokens, channels, native.threads(tokens * channels))
    return out


@lru_cache(maxsize=64)
def _source(plan: NormPlan, blades: int, real: str) -> str:
    return f"""
typedef {real} real;
{norm_tiles(plan, blades)}
#define TILES _Pragma("omp parallel for num_threads(threads) if (threads > 1)") for (long at = 0; at < tokens; at += step)
#define SHAPE long n = tokens * channels, step = NORM_STEP(channels)
#define WIDTH (at + step < tokens ? step : tokens - at)
void norm(const real *x, real *o, long tokens, long channels, long threads) {{
    SHAPE;
    TILES norm_some(x + at * channels, n, o + at * channels, n, channels, WIDTH);
}}
void norm_backward(const real *x, const real *y, real *o, long tokens, long channels, long threads) {{
    SHAPE;
    TILES norm_some_backward(x + at * channels, n, y + at * channels, n, o + at * channels, n, channels, WIDTH);
}}
"""


def norm_tiles(plan: NormPlan, blades: int) -> str:
    """C of `norm_tile` and its derivative for any number of tokens of `channels` numbers, blades lx, ly or lo apart.

    NORM_STEP tokens at a time are handled together: rows of numbers that stay in the nearest cache.
    """
    entries = [(b, g, sign) for g, group in enumerate(plan.groups) for b, sign in group]
    others = [b for b in range(blades) if b not in {b for b, _, _ in entries}]
    groups = range(len(plan.groups))
    sizes = [f"(q[{g}][i] < 0 ? -q[{g}][i] : q[{g}][i])" if plan.absolute else f"q[{g}][i]" for g in groups]
    sign = "((q[g][i] > 0) - (q[g][i] < 0))" if plan.absolute else "1"
    form, eps = plan.floor
    if form == "clamp":
        scale, active = f"1 / ROOT(mean > {eps} ? mean : {eps})", f"mean > {eps}"
    else:
        scale, active = f"1 / ROOT((mean < 0 ? 0 : mean) + {eps})", "mean > 0"
    squares = f"""memset(q, 0, sizeof q);
    for (int e = 0; e < {len(entries)}; e++) {{
        const real *from = x + entry_blade[e] * lx, sign = entry_sign[e];
        real *sum = q[entry_group[e]];
        EACH sum[i] += sign * from[i] * from[i];
    }}
    EACH size[i] = {" + ".join(sizes) or "0"};"""
    mean = f"real mean = 0; CHANNELS mean += size[i]; mean /= channels;\nreal one = {scale};\nCHANNELS scale[i] = one;"
    return f"""
#include <math.h>
#include <string.h>
#define ROOT(x) (sizeof(real) == sizeof(float) ? (real)sqrtf(x) : (real)sqrt(x))
#define NORM_STEP(channels) ({TILE} > (channels) ? {TILE} / (channels) : 1)
#define EACH for (long i = 0; i < width; i++)
#define CHANNELS for (long i = t * channels; i < (t + 1) * channels; i++)
#define TOKEN for (long t = 0; t < tokens; t++)
{_array("int", "entry_blade", [b for b, _, _ in entries])}{_array("int", "entry_group", [g for _, g, _ in entries])}
{_array("real", "entry_sign", [sign for _, _, sign in entries])}{_array("int", "other_blade", others)}
static void norm_some(const real *restrict x, long lx, real *restrict o, long lo, long channels, long tokens) {{
    long width = tokens * channels;
    real q[{max(len(groups), 1)}][width], size[width], scale[width];
    {squares}
    TOKEN {{ {mean} }}
    for (long b = 0; b < {blades}; b++) EACH o[b * lo + i] = scale[i] * x[b * lx + i];
}}
static void norm_some_backward(const real *restrict x, long lx, const real *restrict y, long ly, real *restrict o, long lo,
                               long channels, long tokens) {{
    long width = tokens * channels;
    real q[{max(len(groups), 1)}][width], size[width], scale[width], pull[width];
    {squares}
    memset(pull, 0, sizeof pull);
    for (long b = 0; b < {blades}; b++) EACH pull[i] += x[b * lx + i] * y[b * ly + i];
    TOKEN {{
        {mean}
        real dot = 0; CHANNELS dot += pull[i];
        real factor = {active} ? dot / channels * one * one * one : 0;
        CHANNELS pull[i] = factor;
    }}
    for (int g = 0; g < {len(groups)}; g++) EACH q[g][i] = pull[i] * {sign};
    for (int e = 0; e < {len(entries)}; e++) {{
        long b = entry_blade[e];
        const real *pulled = q[entry_group[e]], sign = entry_sign[e];
        EACH o[b * lo + i] = scale[i] * y[b * ly + i] - sign * pulled[i] * x[b * lx + i];
    }}
    for (int e = 0; e < {len(others)}; e++) EACH o[other_blade[e] * lo + i] = scale[i] * y[other_blade[e] * ly + i];
}}
#undef EACH
#undef CHANNELS
#undef TOKEN
#define STEPS long step = NORM_STEP(channels); for (long at = 0, a = 0; at < tokens; at += step, a = at * channels)
#define SOME (at + step < tokens ? step : tokens - at)
static void norm_tile(const real *x, long lx, real *o, long lo, long channels, long tokens) {{
    STEPS norm_some(x + a, lx, o + a, lo, channels, SOME);
}}
static void norm_tile_backward(const real *x, long lx, const real *y, long ly, real *o, long lo,
                               long channels, long tokens) {{
    STEPS norm_some_backward(x + a, lx, y + a, ly, o + a, lo, channels, SOME);
}}
#undef STEPS
#undef SOME
"""


def _array(kind: str, name: str, values: Sequence[float]) -> str:
    return f"static const {kind} {name}[] = {{{', '.join(map(str, values)) or 0}}};\n"
