"""Sparse bilinear products of multivectors: their terms as a plan, evaluated by a signed gather, a product and a sum."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from anygatr.ops.batch import Batch
from anygatr.ops.op import Op, Tensors
from anygatr.ops.precision import lengthened, without_autocast
from anygatr.spaces.stream_basis import ProductTerm, StreamBasis

# axes: g factors, p products, k blades
TERMS = 512  # that are gathered at once: each takes the memory of a blade
IN_CACHE = 1 << 18  # numbers of an intermediate that stays in the caches of a CPU
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
        """For each product and group of target blades: which signed left blade meets which right blade."""
        blades, tables = self.groups[-1][1], {}
        for p, term in enumerate(self.plan.terms):
            left = torch.full((blades, blades), 2 * blades, dtype=torch.int64)  # the row of zeros
            right, met = torch.zeros(blades, blades, dtype=torch.int64), [0] * blades
            for k, i, j, sign in term.entries:
                left[k, met[k]], right[k, met[k]] = i if sign > 0 else blades + i, j
                met[k] += 1
            for g, (start, stop) in enumerate(self.groups):
                tables[f"left_{p}_{g}"], tables[f"right_{p}_{g}"] = left[start:stop].flatten(), right[start:stop].flatten()
        return tables

    def run(self, values: Sequence[Tensor], parameters: Tensors, batch: Batch | None = None) -> tuple[Tensor]:
        """In float32 under autocast."""
        h, reference = values
        tables, groups = iter(parameters), len(self.groups)
        with without_autocast(h):
            (h,) = lengthened(h)
            factors, out = h.chunk(self.plan.sizes[1], -1), []
            for term in self.plan.terms:
                gathers = [(next(tables), next(tables)) for _ in range(groups)]
                product = _evaluate(factors[term.left], factors[term.right], gathers)  # type: ignore[arg-type]
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


def _evaluate(a: Tensor, b: Tensor, gathers: Sequence[tuple[Tensor, Tensor]]) -> Float[Tensor, "k *tokens c"]:
    """sum_t (signed a)[left_kt] b[right_kt], by groups of targets k; on the CPU some numbers of each blade at a time."""
    left, right = a.flatten(1), b.flatten(1)
    signed = torch.cat([left, -left, torch.zeros_like(left[:1])])
    if a.device.type != "cpu" or torch.compiler.is_compiling():
        return _summed(signed, right, gathers).view(a.shape)
    most = max(IN_CACHE // max((len(left) for left, _ in gathers), default=1), 1)
    parts = zip(signed.split(most, 1), right.split(most, 1), strict=True)
    return torch.cat([_summed(s, r, gathers) for s, r in parts], 1).view(a.shape)


def _summed(signed: Tensor, right: Tensor, gathers: Sequence[tuple[Tensor, Tensor]]) -> Float[Tensor, "k n"]:
    terms = (signed.index_select(0, of_left) * right.index_select(0, of_right) for of_left, of_right in gathers)
    return torch.cat([term.unflatten(0, (-1, len(right))).sum(1) for term in terms])


@lru_cache(maxsize=256)
def _permuted(entries: Entries, order: tuple[int, int, int]) -> Entries:
    """Exchange the roles of the three blades; sorted by target, so that the blade being summed stays in cache."""
    return tuple(sorted(ProductTerm(e[order[0]], e[order[1]], e[order[2]], e.sign) for e in entries))
