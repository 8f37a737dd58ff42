"""Sparse bilinear products of multivectors: their terms as a plan, evaluated in few launches or term by term."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from anygatr.ops.batch import Batch
from anygatr.ops.op import Op, Tensors
from anygatr.ops.precision import lengthened, without_autocast
from anygatr.ops.torch_state import eager_on_cpu
from anygatr.spaces.stream_basis import ProductTerm, StreamBasis

# axes: g factors, p products, k blades
TERMS = 512  # that are gathered at once: each takes the memory of a blade
Entries = tuple[ProductTerm, ...]


class Term(NamedTuple):
    """out[target] += sum over its entries (k, i, j, sign) of sign * a[left]_i * b[right]_j, times the reference if `odd`."""

    entries: Entries
    target: int
    left: int
    right: int
    odd: bool


@dataclass(frozen=True)
class ProductPlan:
    """Sparse bilinear forms of two stacks of multivectors, a stack being equal parts of the channels.

    `sizes` says how many multivectors the output, the left and the right stack have. The derivatives of a plan are plans:
    products of the gradient with the other factor by permuted tables.
    """

    terms: tuple[Term, ...]
    sizes: tuple[int, int, int]

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.terms, self.sizes))

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds per channel."""
        return sum(len(term.entries) for term in self.terms)

    @cached_property
    def wrt_left(self) -> "ProductPlan":
        """(gradient, right) -> gradient of left."""
        out, left, right = self.sizes
        terms = tuple(t._replace(entries=_permuted(t.entries, (1, 0, 2)), target=t.left, left=t.target) for t in self.terms)
        return ProductPlan(terms, (left, out, right))

    @cached_property
    def wrt_right(self) -> "ProductPlan":
        """(gradient, left) -> gradient of right."""
        out, left, right = self.sizes
        terms = tuple(Term(_permuted(t.entries, (2, 0, 1)), t.right, t.target, t.left, t.odd) for t in self.terms)
        return ProductPlan(terms, (right, out, left))

    @cached_property
    def wrt_both(self) -> "ProductPlan":
        """(gradient, h) -> gradient of h, for both factors taken from the same stack h."""
        return ProductPlan(self.wrt_left.terms + self.wrt_right.terms, self.wrt_left.sizes)


@lru_cache(maxsize=64)
def product_plan(basis: StreamBasis, names: tuple[str, ...], odd: tuple[bool, ...] = ()) -> ProductPlan:
    """The plan of h -> (h_0 * h_1, h_2 * h_3, ...), one pair of factors for each product; `odd` ones times a number."""
    odd = odd or (False,) * len(names)
    terms = tuple(Term(basis.terms(name), p, 2 * p, 2 * p + 1, odd[p]) for p, name in enumerate(names))
    return ProductPlan(terms, (len(names), 2 * len(names), 2 * len(names)))


@lru_cache(maxsize=256)
def narrowed(plan: ProductPlan, reads: tuple[int, ...], writes: tuple[int, ...], odd: bool = True) -> ProductPlan:
    """The part of a plan that reads and writes these blades; without the odd products, where their number is zero."""
    terms = []
    for term in plan.terms:
        entries = () if term.odd and not odd else term.entries
        kept = tuple(e for e in entries if e[0] in writes and e[1] in reads and e[2] in reads)
        terms.append(term._replace(entries=kept))
    return replace(plan, terms=tuple(terms))


def grouped(blades: int) -> tuple[tuple[int, int], ...]:
    """Runs of target blades with at most TERMS terms each, every right blade being one."""
    size = max(TERMS // blades, 1)
    return tuple((start, min(start + size, blades)) for start in range(0, blades, size))


@dataclass(frozen=True)
class Product(Op):
    """h_0 * h_1, h_2 * h_3, ... of a stack h of factors, odd ones times the join reference: (h, reference) -> (products,).

    `groups` cuts the target blades into parts of which the terms are in memory at once.
    """

    plan: ProductPlan
    groups: tuple[tuple[int, int], ...]

    def tables(self) -> dict[str, Tensor]:
        """For each product and group of target blades: which signed left blade meets which right one, if not each."""
        blades, tables = self.groups[-1][1], {}
        for p, term in enumerate(self.plan.terms):
            left = torch.full((blades, blades), 2 * blades, dtype=torch.int64)  # the row of zeros
            right = torch.arange(blades).repeat(blades, 1)
            for k, place, i, j, sign in _placed(term.entries):
                left[k, place], right[k, place] = i if sign > 0 else blades + i, j
            right = right[:, :0] if _every_right_blade_once(term.entries) else right
            for g, (start, stop) in enumerate(self.groups):
                sides = left[start:stop].flatten(), right[start:stop].flatten()
                tables[f"left_{p}_{g}"], tables[f"right_{p}_{g}"] = (side.clone() for side in sides)  # to be saved apart
        return tables

    def run(self, values: Sequence[Tensor], parameters: Tensors, batch: Batch | None = None) -> tuple[Tensor]:
        """In float32 under autocast."""
        h, reference = values
        count, groups = self.plan.sizes[1], len(self.groups)
        with without_autocast(h):
            (h,) = lengthened(h)
            factors = h.unflatten(-1, (count, h.shape[-1] // count)).movedim(-2, 0).flatten(2).unbind()
            out = []
            for p, term in enumerate(self.plan.terms):
                tables = parameters[2 * p * groups : 2 * (p + 1) * groups]
                product = _evaluate(factors[term.left], factors[term.right], term.entries, tables)
                product = product.view(*h.shape[:-1], h.shape[-1] // count)
                out.append(product * reference.to(h.dtype) if term.odd else product)
            return (out[0] if len(out) == 1 else torch.cat(out, -1),)


@dataclass(frozen=True)
class ScaledFactors(Op):
    """The left factors of odd products times the join reference: (h, reference) -> (h,).

    A product is linear in each factor: with these, `even(plan)` computes what `plan` does, and needs no reference.
    """

    plan: ProductPlan

    def run(self, values: Sequence[Tensor], parameters: Tensors = (), batch: Batch | None = None) -> tuple[Tensor]:
        """The whole stack."""
        h, reference = values
        parts = list(h.chunk(self.plan.sizes[1], -1))
        for term in self.plan.terms:
            if term.odd:
                parts[term.left] = parts[term.left] * reference.to(h.dtype)
        return (torch.cat(parts, -1),)


def even(plan: ProductPlan) -> ProductPlan:
    """The plan without its reference."""
    return replace(plan, terms=tuple(term._replace(odd=False) for term in plan.terms))


def _evaluate(a: Tensor, b: Tensor, entries: Entries, gathers: Tensors) -> Float[Tensor, "k n"]:
    """One product: term by term on a CPU, where a pass over one blade stays in the cache, elsewhere in few launches."""
    return _ByTerms.apply(a, b, entries) if eager_on_cpu(a, b) else _by_gathers(a, b, gathers)


def _by_gathers(a: Tensor, b: Tensor, gathers: Tensors) -> Float[Tensor, "k n"]:
    """sum_t (signed a)[left_kt] b[right_kt], group by group of targets k; the right blades as they are where they can be."""
    signed, out = torch.cat([a, -a, torch.zeros_like(a[:1])]), []
    for left, right in zip(gathers[::2], gathers[1::2], strict=True):
        terms = signed.index_select(0, left).unflatten(0, (-1, len(b)))  # type: ignore[arg-type]
        out.append((terms * (b.index_select(0, right).view_as(terms) if len(right) else b)).sum(1))  # type: ignore[arg-type]
    return torch.cat(out)


def _every_right_blade_once(entries: Entries) -> bool:
    """Whether no target has two terms with one right blade, as on orthogonal blades."""
    return len({(e.target, e.right) for e in entries}) == len(entries)


def _placed(entries: Entries) -> Iterator[tuple[int, int, int, int, int]]:
    """(target, place, left, right, sign): a term is at the place of its right blade or, if some share one, in order."""
    every, met = _every_right_blade_once(entries), Counter[int]()
    for k, i, j, sign in entries:
        yield k, j if every else met[k], i, j, sign
        met[k] += 1


class _ByTerms(torch.autograd.Function):
    """out_k = sum over entries (k, i, j, sign) of sign a_i b_j, saving nothing but a and b.

    It is linear in each, so its derivatives of any order are itself with the roles of the three blades exchanged.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, entries: Entries) -> Tensor:
        """The sums, blade by blade."""
        ctx.save_for_backward(a, b)
        ctx.entries = entries
        left, right, sums = a.unbind(), b.unbind(), dict[int, Tensor]()
        for k, i, j, sign in entries:
            if k in sums:
                sums[k].addcmul_(left[i], right[j], value=sign)
            else:
                sums[k] = (left[i] if sign > 0 else -left[i]) * right[j]
        return torch.stack([sums[k] if k in sums else torch.zeros_like(left[k]) for k in range(len(left))])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        """The products of the gradient with the other factor."""
        (a, b), (grad,) = ctx.saved_tensors, grads
        left, right = (_permuted(ctx.entries, order) for order in ((1, 0, 2), (2, 0, 1)))
        return _ByTerms.apply(grad, b, left), _ByTerms.apply(grad, a, right), None


@lru_cache(maxsize=256)
def _permuted(entries: Entries, order: tuple[int, int, int]) -> Entries:
    """Exchange the roles of the three blades; sorted by target, so that the blade being summed stays in cache."""
    return tuple(sorted(ProductTerm(e[order[0]], e[order[1]], e[order[2]], e.sign) for e in entries))
