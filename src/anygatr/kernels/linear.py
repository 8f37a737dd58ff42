"""The most general equivariant linear map as a handful of matrix products on runs of blades."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations
from math import prod
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from anygatr.kernels.precision import shortened
from anygatr.kernels.runs import Run, runs, transposed, unwritten
from anygatr.solver import LinearBasis
from anygatr.symmetry import Frame

# axes: k blades, m maps, e effective weights, j invariant blades
DIGITS = 9  # entries of a basis closer than this are one number


@dataclass(frozen=True, eq=False)
class LinearPlan:
    """Which runs of blades each effective weight multiplies.

    Entries of the basis that are proportional for all maps share one effective weight: weight_e = sum_m mixing_me weight_m.
    `enter` and `leave` change to the group's frame and back where the maps are sparser there (o and infinity for conformal
    space); both are empty where the algebra's own blades do.
    """

    mixing: Float[Tensor, "m e"]
    blades: int
    products: tuple[Run, ...]
    invariant: tuple[int, ...]
    enter: tuple[Run, ...] = ()
    leave: tuple[Run, ...] = ()

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds per pair of an input and an output channel."""
        return sum(run.length for run in self.products)

    @cached_property
    def unwritten(self) -> tuple[int, ...]:
        """The blades that nothing is mapped to."""
        return unwritten(self.products, self.blades)

    @cached_property
    def transposed(self) -> "LinearPlan":
        """The plan of the map's transpose."""
        return LinearPlan(
            self.mixing,
            self.blades,
            transposed(self.products),
            self.invariant,
            transposed(self.leave),
            transposed(self.enter),
        )


@lru_cache(maxsize=64)
def linear_plan(basis: LinearBasis) -> LinearPlan:
    """The plan for the maps of a basis, each divided by its Frobenius norm."""
    algebra = basis.symmetry.algebra
    maps = basis.tensor.numpy() / basis.tensor.flatten(1).norm(dim=1).clamp(min=1e-30).numpy()[:, None, None]
    invariant = invariant_blades(basis)
    leave = _blades_of(basis.symmetry.frame)
    enter = np.linalg.inv(leave)
    framed = enter @ maps @ leave
    keeps = all(
        np.array_equal(leave[j], np.eye(algebra.dim)[j]) and np.array_equal(leave[:, j], leave[j]) for j in invariant
    )
    if keeps and _entries(framed) < _entries(maps):
        changes = {"enter": _linear_runs(enter), "leave": _linear_runs(leave)}
        mixing, products = _effective(framed)
    else:
        changes = {}
        mixing, products = _effective(maps)
    return LinearPlan(torch.from_numpy(mixing), algebra.dim, products, invariant, **changes)


def invariant_blades(basis: LinearBasis) -> tuple[int, ...]:
    """The blades with a non-zero square that the group leaves alone: the scalar, and the pseudoscalar without mirrors."""
    out = []
    for matrix, (source, _) in zip(basis.tensor, basis.grades, strict=True):
        support = matrix[:, 0].nonzero().flatten().tolist()
        if source == 0 and len(support) == 1 and basis.symmetry.algebra.metric[support[0]] != 0:
            out.append(support[0])
    return tuple(sorted(out))


def equi_linear(
    x: Float[Tensor, "g k *tokens c_in"],
    weight: Float[Tensor, "e g*c_in h*c_out"],
    extra: Float[Tensor, "j *tokens h*c_out"],
    plan: LinearPlan,
    parts: int = 1,
) -> tuple[Float[Tensor, "h k *tokens c_out"], Float[Tensor, "j *tokens g*c_in"]]:
    """Apply the map with these effective weights, add `extra` to the invariant blades; also return the input's.

    y_k = sum over runs of x_i @ weight_e. The input's channels come in g stacked parts and the output's leave in h = `parts`
    stacked parts, so that what follows reads contiguous memory. Handing the invariant blades in and out here spares the
    gradients of slices, which would fill all blades with zeros.
    """
    x, weight, extra = shortened(x, weight, extra)
    tokens = x.shape[2:-1]
    n = prod(tokens)
    flat = recombine(x.reshape(len(x), plan.blades, n, x.shape[-1]), plan.enter)
    y, picked = _Linear.apply(flat, weight, extra.reshape(len(plan.invariant), n, weight.shape[-1]), plan, parts)
    y = recombine(y, plan.leave)
    return y.view(parts, plan.blades, *tokens, y.shape[-1]), picked.view(len(plan.invariant), *tokens, weight.shape[1])


def recombine(x: Float[Tensor, "g k n c"], change: tuple[Run, ...]) -> Float[Tensor, "g k n c"]:
    """The linear combinations of blades that `change` lists; x itself if it lists none."""
    return _Recombine.apply(x, change) if change else x


class _Linear(torch.autograd.Function):
    """(x, weight, extra) -> (y, x on the invariant blades). Its derivative is itself with the transposed plan."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, extra: Tensor, plan: LinearPlan, parts: int) -> tuple[Tensor, Tensor]:
        x = x.contiguous()
        width = weight.shape[-1] // parts
        y = x.new_empty(parts, plan.blades, x.shape[2], width)
        blocks = _blocks(weight, len(x), parts)
        for run in plan.products:
            sources = [x[g, run.inputs].flatten(0, 1) for g in range(len(x))]
            for h in range(parts):
                target = y[h, run.outputs].flatten(0, 1)
                for g, source in enumerate(sources):
                    beta = 0 if run.first and g == 0 else 1
                    target.addmm_(source, blocks[g][h][run.weight], beta=beta, alpha=run.factor)
        for k in plan.unwritten:
            y[:, k].zero_()
        for j, k in enumerate(plan.invariant):
            y[:, k] += extra[j].unflatten(-1, (parts, width)).movedim(1, 0)
        return y, _invariant(x, plan)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        x, weight, _, ctx.plan, ctx.parts = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight), (grad, grad_picked), plan = ctx.saved_tensors, grads, ctx.plan
        grad_x, grad_weight = None, None
        if ctx.needs_input_grad[0]:
            grad_x, grad_extra = _Linear.apply(grad, weight.transpose(1, 2), grad_picked, plan.transposed, len(x))
        else:
            grad_extra = _invariant(grad, plan)
        if ctx.needs_input_grad[1]:
            grad_weight = _WeightGradient.apply(x, grad, plan)
        return grad_x, grad_weight, grad_extra, None, None


class _WeightGradient(torch.autograd.Function):
    """weight_e = sum over its runs of x^T y: the other half of the derivative of `_Linear`."""

    @staticmethod
    def forward(x: Tensor, y: Tensor, plan: LinearPlan) -> Tensor:
        x, y = x.contiguous(), y.contiguous()
        out = x.new_zeros(plan.mixing.shape[1], len(x) * x.shape[-1], len(y) * y.shape[-1])
        blocks = _blocks(out, len(x), len(y))
        for run in plan.products:
            targets = [y[h, run.outputs].flatten(0, 1) for h in range(len(y))]
            for g in range(len(x)):
                source = x[g, run.inputs].flatten(0, 1).t()
                for h, target in enumerate(targets):
                    blocks[g][h][run.weight].addmm_(source, target, alpha=run.factor)
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        x, y, ctx.plan = inputs
        ctx.save_for_backward(x, y)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (x, y), (grad,), plan = ctx.saved_tensors, grads, ctx.plan
        nothing_x = x.new_zeros(len(plan.invariant), x.shape[2], grad.shape[1])
        nothing_y = x.new_zeros(len(plan.invariant), x.shape[2], grad.shape[2])
        grad_x, _ = _Linear.apply(y, grad.transpose(1, 2), nothing_x, plan.transposed, len(x))
        grad_y, _ = _Linear.apply(x, grad, nothing_y, plan, len(y))
        return grad_x, grad_y, None


def _blocks(weight: Tensor, rows: int, columns: int) -> list[list[Tensor]]:
    """The weights (e, c_in, c_out) between each part of the input and each part of the output."""
    inner, outer = weight.shape[1] // rows, weight.shape[2] // columns
    parts = range(columns)
    return [[weight[:, g * inner : (g + 1) * inner, h * outer : (h + 1) * outer] for h in parts] for g in range(rows)]


def _invariant(x: Tensor, plan: LinearPlan) -> Tensor:
    """The invariant blades (j, n, g*c) of stacked parts (g, k, n, c)."""
    return torch.stack([x[:, k].movedim(0, 1).flatten(1) for k in plan.invariant])


class _Recombine(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, change: tuple[Run, ...]) -> Tensor:
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        for run in change:
            source, target = x[:, run.inputs], y[:, run.outputs]
            if not run.first:
                target.add_(source, alpha=run.factor)
            else:
                target.copy_(source if run.factor == 1 else source * run.factor)
        return y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.change = inputs[1]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return _Recombine.apply(grads[0], transposed(ctx.change)), None


def _blades_of(frame: Frame) -> np.ndarray:
    """The frame's blades as columns: x = matrix @ (coefficients in the frame)."""
    algebra = frame.algebra
    columns = []
    for grade in range(algebra.n + 1):
        for subset in combinations(range(algebra.n), grade):
            blade = algebra["1"]
            for i in subset:
                blade = algebra.outer(blade, frame.multivector(i))
            columns.append(blade.numpy())
    return np.stack(columns, axis=1)


def _entries(maps: np.ndarray) -> int:
    """How many pairs of blades any of the maps connects."""
    return int(np.any(np.abs(maps) > 10.0**-DIGITS, axis=0).sum())


def _effective(maps: np.ndarray) -> tuple[np.ndarray, tuple[Run, ...]]:
    """The mixing matrix (m, e) and the runs."""
    classes: dict[tuple[float, ...], tuple[int, np.ndarray]] = {}
    entries = []
    for target, source in np.argwhere(np.any(np.abs(maps) > 10.0**-DIGITS, axis=0)).tolist():
        vector = maps[:, target, source]
        pivot = np.abs(vector).max()
        direction = np.round(vector / pivot, DIGITS)
        sign = float(np.sign(direction[np.flatnonzero(direction)[0]]))
        index, first = classes.setdefault(tuple((sign * direction).tolist()), (len(classes), sign * vector))
        factor = round(float(sign * pivot / np.abs(first).max()), DIGITS)
        entries.append((index, factor, target, source))
    mixing = np.array([vector for _, vector in classes.values()]).reshape(len(classes), len(maps)).T
    return mixing, runs(entries)


def _linear_runs(matrix: np.ndarray) -> tuple[Run, ...]:
    return runs((0, float(matrix[o, i]), int(o), int(i)) for o, i in np.argwhere(np.abs(matrix) > 10.0**-DIGITS))
