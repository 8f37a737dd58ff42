"""Sparse bilinear products of multivectors, unrolled blade by blade, saving nothing but their inputs."""

from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from anygatr.algebra import Algebra
from anygatr.kernels.precision import lengthened, without_autocast

# axes: g factors, p products, k blades
Entries = tuple[tuple[int, int, int, int], ...]  # target blade, left blade, right blade, sign


class Term(NamedTuple):
    """out[target] += sum over its entries (k, i, j, sign) of sign * a[left]_i * b[right]_j."""

    entries: Entries
    target: int
    left: int
    right: int


class BilinearPlan:
    """Sparse bilinear forms of two stacks of multivectors.

    `wrt_left` and `wrt_right` are the plans of the derivatives: products of the gradient with the other factor by permuted
    tables, so a derivative of any order is again such a plan.
    """

    def __init__(self, terms: tuple[Term, ...], sizes: tuple[int, int, int]):
        self.terms = terms
        self.sizes = sizes  # how many multivectors out, left and right stack

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds per channel."""
        return sum(len(term.entries) for term in self.terms)

    @cached_property
    def wrt_left(self) -> "BilinearPlan":
        """(gradient, right) -> gradient of left."""
        out, left, right = self.sizes
        terms = tuple(Term(_permuted(t.entries, (1, 0, 2)), t.left, t.target, t.right) for t in self.terms)
        return BilinearPlan(terms, (left, out, right))

    @cached_property
    def wrt_right(self) -> "BilinearPlan":
        """(gradient, left) -> gradient of right."""
        out, left, right = self.sizes
        terms = tuple(Term(_permuted(t.entries, (2, 0, 1)), t.right, t.target, t.left) for t in self.terms)
        return BilinearPlan(terms, (right, out, left))

    @cached_property
    def wrt_both(self) -> "BilinearPlan":
        """(gradient, h) -> gradient of h, for both factors taken from the same stack h."""
        return BilinearPlan(self.wrt_left.terms + self.wrt_right.terms, self.wrt_left.sizes)


@lru_cache(maxsize=64)
def product_plan(algebra: Algebra, names: tuple[str, ...]) -> BilinearPlan:
    """The plan of h -> (h_0 * h_1, h_2 * h_3, ...), one pair of factors for each product named."""
    terms = tuple(Term(_entries(algebra, name), p, 2 * p, 2 * p + 1) for p, name in enumerate(names))
    return BilinearPlan(terms, (len(names), 2 * len(names), 2 * len(names)))


def products(h: Float[Tensor, "g k *tokens c"], plan: BilinearPlan) -> Float[Tensor, "p k *tokens c"]:
    """The products of a plan, both factors taken from the stack h; in float32 under autocast."""
    with without_autocast(h):
        (h,) = lengthened(h)
        return _Products.apply(h, plan)


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(h: Tensor, plan: BilinearPlan) -> Tensor:
        return _evaluate(h, h, plan)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        h, ctx.plan = inputs
        ctx.save_for_backward(h)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (h,) = ctx.saved_tensors
        return _Bilinear.apply(grads[0], h, ctx.plan.wrt_both), None


class _Bilinear(torch.autograd.Function):
    @staticmethod
    def forward(a: Tensor, b: Tensor, plan: BilinearPlan) -> Tensor:
        return _evaluate(a, b, plan)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        a, b, ctx.plan = inputs
        ctx.save_for_backward(a, b)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (a, b), (grad,), plan = ctx.saved_tensors, grads, ctx.plan
        return _Bilinear.apply(grad, b, plan.wrt_left), _Bilinear.apply(grad, a, plan.wrt_right), None


def _evaluate(a: Tensor, b: Tensor, plan: BilinearPlan) -> Tensor:
    a, b = a.contiguous(), b.contiguous()
    out = a.new_zeros(plan.sizes[0], *a.shape[1:])
    for term in plan.terms:
        # all views made once: making a view of a blade costs as much as multiplying it
        left, right = a[term.left].unbind(), b[term.right].unbind()
        target = [out[term.target, k] for k in range(out.shape[1])]  # one by one: views from unbind are not written in place
        for k, i, j, sign in term.entries:
            target[k].addcmul_(left[i], right[j], value=sign)
    return out


@lru_cache(maxsize=64)
def _entries(algebra: Algebra, product: str) -> Entries:
    index, sign = algebra.table(product)
    return tuple((k, int(index[k, j]), j, int(sign[k, j])) for k, j in sign.nonzero().tolist())


@lru_cache(maxsize=256)
def _permuted(entries: Entries, order: tuple[int, int, int]) -> Entries:
    """Exchange the roles of the three blades; sorted by target, so that the blade being summed stays in cache."""
    return tuple(sorted((e[order[0]], e[order[1]], e[order[2]], e[3]) for e in entries))
