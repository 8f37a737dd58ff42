"""The most general equivariant linear map as a handful of matrix products on runs of blades."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from anygatr.kernels import graph, linear_native, native
from anygatr.kernels.function import Function
from anygatr.kernels.linear_plan import LinearPlan, Weights
from anygatr.kernels.plans import recall
from anygatr.kernels.precision import autocast_type, shortened
from anygatr.kernels.product import lanes, per_token
from anygatr.kernels.prologue import NOTHING, Prologue
from anygatr.kernels.runs import Run, transposed
from anygatr.kernels.second import gradients

# axes: k blades, m maps, e effective weights, j invariant blades


def equi_linear(
    x: Float[Tensor, "k *tokens c_in"],
    s: Float[Tensor, "*tokens s_in"],
    weights: Weights,
    mixing: Float[Tensor, "m e"],
    plan: LinearPlan,
    before: Prologue = NOTHING,
    onto: tuple[Tensor, Tensor] | None = None,
    reference: Float[Tensor, "*#tokens 1"] | None = None,
) -> tuple[Float[Tensor, "k *tokens c_out"], Float[Tensor, "*tokens s_out"]]:
    """Apply the maps to multivectors, and one matrix to scalars and the multivectors' invariant blades together.

    Both after `before`, for which `reference` is, and the results are added to `onto`.
    """
    given = (x, s, *weights, *(onto or ()))
    fits = before.products is None or lanes(x.shape[-1], before.products)
    if fits and autocast_type(x) is None and native.applies(*(t for t in given if t is not None)):
        number = None if reference is None else per_token(reference, x)
        return _Linear.apply(x, s, *(onto or (None, None)), number, mixing, plan, before, True, *weights)
    y, t = _alone(*before(x, s, reference), weights, mixing, plan)
    return (y, t) if onto is None else (onto[0] + y, onto[1] + t)


def _alone(x: Tensor, s: Tensor, weights: Weights, mixing: Tensor, plan: LinearPlan) -> tuple[Tensor, Tensor]:
    """The map by itself, however it can be had."""
    if torch.compiler.is_exporting():
        return graph.linear(x, s, *weights, plan.table)
    x, s, mixing, *given = shortened(x, s, mixing, *weights)
    if torch.compiler.is_compiling():
        y, t = _linear(x.flatten(1, -2), s.flatten(0, -2), mixing, *given, plan.key)
        return y.unflatten(1, x.shape[1:-1]), t.unflatten(0, x.shape[1:-1])
    return _Linear.apply(x, s, None, None, None, mixing, plan, NOTHING, _inside(x, s, Weights(*given)), *given)


def clear(x: Tensor, s: Tensor, mixing: Tensor, weights: Weights, plan: LinearPlan) -> tuple[Tensor, Tensor]:
    """The same from operations that torch differentiates any number of times."""
    effective = (weights.mv @ mixing).movedim(-1, 0)
    x = recombine(x, plan.enter)
    terms: list[list[Tensor]] = [[] for _ in range(plan.blades)]
    for weight, factor, o, i in plan.joint:
        terms[plan.invariant[o]].append(factor * functional.linear(x[plan.invariant[i]], effective[weight]))
    for run in plan.products:
        for j in range(run.length):
            terms[run.target + j].append(run.factor * functional.linear(x[run.source + j], effective[run.weight]))
    for j in plan.outer:
        bias = None if weights.bias_mv is None else weights.bias_mv[j]
        terms[plan.invariant[j]].append(functional.linear(s, weights.s_to_mv[j], bias))
    t = functional.linear(s, weights.s_to_s, weights.bias_s) if plan.scalars else s.new_zeros(_scalars(s, weights))
    for j in plan.inner if plan.scalars else ():
        t = t + functional.linear(x[plan.invariant[j]], weights.mv_to_s[j])
    nothing = x.new_zeros(*x.shape[1:-1], weights.mv.shape[0])
    return recombine(torch.stack([sum(parts, nothing) for parts in terms]), plan.leave), t


class _Linear(Function):
    """Matrix products straight into slices of the result; saves nothing but its inputs."""

    @staticmethod
    def forward(
        x: Tensor,
        s: Tensor,
        onto_x: Tensor | None,
        onto_s: Tensor | None,
        number: Tensor | None,
        mixing: Tensor,
        plan: LinearPlan,
        before: Prologue,
        inside: bool,
        *weights: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        if inside:
            entry = linear_native.entry(plan, before, (*weights, number), x.dtype, x.shape[-1])
            return linear_native.forward(x, s, [entry], (onto_x, onto_s))[0]
        return _by_torch(x, s, mixing, Weights(*weights), plan)  # type: ignore[arg-type]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        x, s, _, _, number, mixing, ctx.plan, ctx.before, ctx.inside, *weights = inputs
        ctx.save_for_backward(x, s, number, mixing, *weights)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, s, number, mixing, *weights = ctx.saved_tensors
        if torch.is_grad_enabled():
            found = _differentiable(x, s, number, mixing, weights, ctx.plan, ctx.before, grads)
        else:
            below = ctx.needs_input_grad[0] or ctx.needs_input_grad[1]
            grad_y, grad_t = grads
            inside = ctx.inside and native.applies(grad_y, grad_t)
            given = Weights(*weights)
            found = _gradients(grad_y, grad_t, x, s, mixing, given, ctx.plan, below, inside, ctx.before, number)
        onto = (grad if needed else None for grad, needed in zip(grads, ctx.needs_input_grad[2:4], strict=True))
        return *found[:2], *onto, *(None,) * 5, *found[2:]


@torch.library.custom_op("anygatr::linear", mutates_args=())
def _linear(
    x: Tensor,
    s: Tensor,
    mixing: Tensor,
    mv: Tensor,
    s_to_mv: Tensor,
    mv_to_s: Tensor,
    s_to_s: Tensor,
    bias_mv: Tensor | None,
    bias_s: Tensor | None,
    key: str,
) -> tuple[Tensor, Tensor]:
    plan, weights = recall(key), Weights(mv, s_to_mv, mv_to_s, s_to_s, bias_mv, bias_s)
    if _inside(x, s, weights):
        return linear_native.forward(x, s, [linear_native.entry(plan, NOTHING, (*weights, None), x.dtype, x.shape[-1])])[0]
    return _by_torch(x, s, mixing, weights, plan)


@_linear.register_fake
def _(x: Tensor, s: Tensor, mixing: Tensor, mv: Tensor, s_to_mv: Tensor, mv_to_s: Tensor, s_to_s: Tensor, *_: Any) -> Any:
    return x.new_empty(*x.shape[:2], mv.shape[0]), s.new_empty(s.shape[0], s_to_s.shape[0])


@torch.library.custom_op("anygatr::linear_backward", mutates_args=())
def _linear_backward(
    grad_y: Tensor,
    grad_t: Tensor,
    x: Tensor,
    s: Tensor,
    mixing: Tensor,
    mv: Tensor,
    s_to_mv: Tensor,
    mv_to_s: Tensor,
    s_to_s: Tensor,
    bias: bool,
    key: str,
) -> list[Tensor]:
    plan = recall(key)
    biases = (s_to_s.new_zeros(len(plan.invariant), mv.shape[0]), s_to_s.new_zeros(s_to_s.shape[0])) if bias else ()
    weights = Weights(mv, s_to_mv, mv_to_s, s_to_s, *biases)
    inside = native.applies(grad_y, grad_t) and _inside(x, s, weights)
    grad_x, grad_s, *others = _gradients(grad_y, grad_t, x, s, mixing, weights, plan, True, inside)
    # results of an operator must not share memory, and some of these are parts of one matrix
    copies = [gradient.clone(memory_format=torch.contiguous_format) for gradient in others if gradient is not None]
    assert grad_x is not None
    assert grad_s is not None
    return [grad_x, grad_s, *copies]


@_linear_backward.register_fake
def _(grad_y: Tensor, grad_t: Tensor, x: Tensor, s: Tensor, mixing: Tensor, *others: Any) -> list[Tensor]:
    mv, s_to_mv, _, s_to_s, bias, _ = others
    found = [t.new_empty(t.shape) for t in (x, s, *others[:4])]
    return found + ([mv.new_empty(len(s_to_mv), mv.shape[0]), mv.new_empty(s_to_s.shape[0])] if bias else [])


def _save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    *tensors, bias_mv, _, ctx.key = inputs
    ctx.bias = bias_mv is not None
    ctx.save_for_backward(*tensors)


def _differentiate(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
    x, s, mixing, *weights = ctx.saved_tensors
    grad_x, grad_s, *others = _linear_backward(*grads, x, s, mixing, *weights, ctx.bias, ctx.key)
    return grad_x, grad_s, None, *others, *(() if ctx.bias else (None, None)), None


_linear.register_autograd(_differentiate, setup_context=_save)


def _inside(x: Tensor, s: Tensor, weights: Weights) -> bool:
    """Whether C can do it."""
    return native.applies(x, s, *(w for w in weights if w is not None))


def _by_torch(x: Tensor, s: Tensor, mixing: Tensor, weights: Weights, plan: LinearPlan) -> tuple[Tensor, Tensor]:
    """The map by itself, by matrix products on slices."""
    tokens = x.shape[1:-1]
    x, s = recombine(x, plan.enter).flatten(1, -2), s.flatten(0, -2)
    effective = _effective_weights(weights.mv, mixing)
    joint = _joint(effective, weights, plan)
    rows = _rows(x, s, plan.picked(plan.inner))
    if weights.bias_mv is None or weights.bias_s is None:
        out = rows @ joint.t()
    else:
        bias = [*(weights.bias_mv[j] for j in plan.outer), *([weights.bias_s] if plan.scalars else [])]
        out = torch.addmm(torch.cat(bias) if bias else rows.new_empty(0), rows, joint.t())
    y = x.new_empty(plan.blades, x.shape[1], weights.mv.shape[0])
    t = _unrows(out, y, plan.picked(plan.outer))
    t = t if plan.scalars else s.new_zeros(_scalars(s, weights))
    _multiply(x, effective.transpose(1, 2), y, plan.products, plan.unwritten)
    return recombine(y, plan.leave).unflatten(1, tokens), t.unflatten(0, tokens)


def _gradients(
    grad_y: Tensor,
    grad_t: Tensor,
    x: Tensor,
    s: Tensor,
    mixing: Tensor,
    weights: Weights,
    plan: LinearPlan,
    below: bool,
    inside: bool,
    before: Prologue = NOTHING,
    number: Tensor | None = None,
) -> tuple[Tensor | None, ...]:
    """The gradients of x, s and the weights; those of x and s only if something is `below`."""
    if inside:
        return linear_native.backward(grad_y, grad_t, x, s, weights, plan, before, below, number)
    if before != NOTHING:
        with torch.enable_grad():
            found = _differentiable(x, s, number, mixing, list(weights), plan, before, (grad_y, grad_t))
        return tuple(None if gradient is None else gradient.detach() for gradient in found)
    tokens = x.shape[1:-1]
    x, s, grad_t = recombine(x, plan.enter).flatten(1, -2), s.flatten(0, -2), grad_t.flatten(0, -2)
    grad_y = recombine(grad_y, transposed(plan.leave)).flatten(1, -2).contiguous()
    effective = _effective_weights(weights.mv, mixing)
    rows = _rows(x, s, plan.picked(plan.inner))
    grad_rows = _rows(grad_y, grad_t if plan.scalars else grad_t[:, :0], plan.picked(plan.outer))
    grad_x = grad_s = None
    if below:
        grad_in = grad_rows @ _joint(effective, weights, plan)
        grad_x = x.new_empty(x.shape)
        grad_s = _unrows(grad_in, grad_x, plan.picked(plan.inner)).unflatten(0, tokens)
        _multiply(grad_y, effective, grad_x, plan.backwards, plan.unread)
        grad_x = recombine(grad_x, transposed(plan.enter)).unflatten(1, tokens)
    grad_joint = grad_rows.t() @ rows
    (c_out, c_in), invariants = weights.mv.shape[:2], len(plan.invariant)
    inner, outer = len(plan.inner) * c_in, len(plan.outer) * c_out
    grad_effective = _weight_gradient(x, grad_y, grad_joint[:outer, :inner], plan)
    grad_bias = grad_rows.sum(0) if weights.bias_mv is not None else None
    scalars = range(weights.s_to_s.shape[0]) if plan.scalars else ()
    mv_to_s = grad_joint[outer:, :inner].unflatten(1, (len(plan.inner), c_in)).movedim(1, 0)
    return (
        grad_x,
        grad_s,
        (mixing @ grad_effective.flatten(1)).view(len(mixing), c_out, c_in).movedim(0, -1),
        _spread(grad_joint[:outer, inner:].unflatten(0, (len(plan.outer), c_out)), plan.outer, invariants),
        _spread(mv_to_s, plan.inner, invariants) if plan.scalars else torch.zeros_like(weights.mv_to_s),
        grad_joint[outer:, inner:] if plan.scalars else torch.zeros_like(weights.s_to_s),
        None if grad_bias is None else _spread(grad_bias[:outer].view(len(plan.outer), c_out), plan.outer, invariants),
        None if grad_bias is None else _spread(grad_bias[outer:], scalars, len(weights.s_to_s)),
    )


def _scalars(s: Tensor, weights: Weights) -> tuple[int, ...]:
    """The shape of the scalars made."""
    return *s.shape[:-1], weights.s_to_s.shape[0]


def _spread(part: Float[Tensor, "p *rest"], places: Sequence[int], count: int) -> Float[Tensor, "count *rest"]:
    """The rows at their places among zeros."""
    if len(places) == count:
        return part
    out = part.new_zeros(count, *part.shape[1:])
    out[list(places)] = part
    return out


def _differentiable(
    x: Tensor,
    s: Tensor,
    number: Tensor | None,
    mixing: Tensor,
    weights: Sequence[Tensor | None],
    plan: LinearPlan,
    before: Prologue,
    grads: tuple[Tensor, ...],
) -> tuple[Tensor | None, ...]:
    """The gradients of x, s and the weights as functions that can be differentiated again."""

    def again(x: Tensor, s: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        reference = None if number is None else number.view(*s.shape[:-1], 1)
        return clear(*before(x, s, reference), mixing, Weights(*weights), plan)

    return tuple(gradients(again, (x, s, *weights), grads))


def _effective_weights(weight: Float[Tensor, "o i m"], mixing: Float[Tensor, "m e"]) -> Float[Tensor, "e o i"]:
    return (mixing.t() @ weight.flatten(0, 1).t()).view(mixing.shape[1], *weight.shape[:2])


def _joint(effective: Float[Tensor, "e o i"], weights: Weights, plan: LinearPlan) -> Float[Tensor, "jo+t ji+s"]:
    """The matrix that takes invariant blades and scalars to invariant blades and scalars."""
    _, c_out, c_in = effective.shape
    inner, outer = len(plan.inner) * c_in, len(plan.outer) * c_out
    scalars = weights.s_to_s.shape[0] if plan.scalars else 0
    out = effective.new_empty(outer + scalars, inner + weights.s_to_s.shape[1])
    if len(plan.joint) < len(plan.inner) * len(plan.outer):
        out[:outer, :inner].zero_()
    for weight, factor, target, source in plan.joint:
        o, i = plan.outer.index(target), plan.inner.index(source)
        block = out[o * c_out : (o + 1) * c_out, i * c_in : (i + 1) * c_in]
        torch.mul(effective[weight], factor, out=block)
    for o, j in enumerate(plan.outer):
        out[o * c_out : (o + 1) * c_out, inner:] = weights.s_to_mv[j]
    for i, j in enumerate(plan.inner):
        out[outer:, i * c_in : (i + 1) * c_in] = weights.mv_to_s[j][:scalars]
    out[outer:, inner:] = weights.s_to_s[:scalars]
    return out


def _rows(x: Float[Tensor, "k n c"], s: Float[Tensor, "n s"], invariant: tuple[int, ...]) -> Float[Tensor, "n jc+s"]:
    """The invariant blades and the scalars of each token side by side."""
    return torch.cat([*(x[blade] for blade in invariant), s], -1)


def _unrows(rows: Tensor, x: Float[Tensor, "k n c"], invariant: tuple[int, ...]) -> Tensor:
    """The inverse: write the invariant blades into x, return the scalars."""
    c = x.shape[-1]
    for j, blade in enumerate(invariant):
        x[blade] = rows[:, j * c : (j + 1) * c]
    return rows[:, len(invariant) * c :].clone(memory_format=torch.contiguous_format)  # a view would keep all rows


def _multiply(
    x: Float[Tensor, "k n i"],
    weight: Float[Tensor, "e i o"],
    y: Float[Tensor, "k n o"],
    products: tuple[Run, ...],
    untouched: tuple[int, ...],
) -> None:
    """Add the products of all runs to y."""
    for run in products:
        source, target = x[run.inputs].flatten(0, 1), y[run.outputs].flatten(0, 1)
        target.addmm_(source, weight[run.weight], beta=0 if run.first else 1, alpha=run.factor)
    for blade in untouched:
        y[blade].zero_()


def _weight_gradient(x: Tensor, grad: Tensor, joint: Tensor, plan: LinearPlan) -> Float[Tensor, "e o i"]:
    """weight_e = sum over its runs of grad^T x, as matrices with at least as many columns as rows: those are fastest."""
    wide = grad.shape[-1] >= x.shape[-1]
    rows, columns = (x, grad) if wide else (grad, x)
    out = x.new_zeros(plan.mixing.shape[1], rows.shape[-1], columns.shape[-1])
    for run in plan.products:
        left, right = (run.inputs, run.outputs) if wide else (run.outputs, run.inputs)
        out[run.weight].addmm_(rows[left].flatten(0, 1).t(), columns[right].flatten(0, 1), alpha=run.factor)
    out = out.transpose(1, 2) if wide else out
    _, c_out, c_in = out.shape
    for weight, factor, target, source in plan.joint:
        o, i = plan.outer.index(target), plan.inner.index(source)
        out[weight].add_(joint[o * c_out : (o + 1) * c_out, i * c_in : (i + 1) * c_in], alpha=factor)
    return out


def recombine(x: Float[Tensor, "k n c"], change: tuple[Run, ...]) -> Float[Tensor, "k n c"]:
    """The linear combinations of blades that `change` lists; x itself if it lists none."""
    return torch.tensordot(_matrix(change, len(x)).to(x), x, 1) if change else x


@lru_cache(maxsize=64)
def _matrix(change: tuple[Run, ...], blades: int) -> Float[Tensor, "k k"]:
    out = torch.zeros(blades, blades, dtype=torch.float64)
    for run in change:
        for j in range(run.length):
            out[run.target + j, run.source + j] += run.factor
    return out
