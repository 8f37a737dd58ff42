"""Division of multivectors by their invariant size over channels, saving nothing but the input."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from anygatr.algebra import Algebra

NORMS = ("inner", "abs", "grade_abs")
FORMS = ("add", "clamp")


@dataclass(frozen=True)
class NormPlan:
    """size(x) = mean over channels of sum_g |sum_{b in g} sign_b x_b^2|; `absolute` switches the absolute value on.

    `form` "add" divides by sqrt(size + eps), "clamp" by sqrt(max(size, eps)).
    """

    groups: tuple[tuple[tuple[int, float], ...], ...]  # for each group its (blade, sign)
    absolute: bool
    eps: float
    form: str


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
    return NormPlan(tuple(g for g in groups if g), norm != "inner", eps, form)


def normalise(x: Float[Tensor, "k *tokens c"], plan: NormPlan) -> Float[Tensor, "k *tokens c"]:
    """x divided by the root of its size."""
    return _Normalise.apply(x, plan) if x.shape[-1] else x


class _Normalise(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, plan: NormPlan) -> Tensor:
        return x * _scale(x, plan)[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        x, ctx.plan = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (x,), (grad,), plan = ctx.saved_tensors, grads, ctx.plan
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
    if plan.form == "clamp":
        return mean.clamp(min=plan.eps).rsqrt(), (mean > plan.eps).to(x), signs
    # an indefinite inner product may be negative: then eps alone is left
    return (mean.clamp(min=0) + plan.eps).rsqrt(), (mean > 0).to(x), signs
