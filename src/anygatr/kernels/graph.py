"""The hot operations as small pure graphs, for exporters: nothing written in place, no gradients of our own.

The fast forms unroll tables of blades, thousands of nodes for one block; here the tables are constants of the graph. They
are made when a layer is, because a table made while tracing would be traced itself.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from anygatr.algebra import Algebra
from anygatr.equivariance.solver import LinearBasis

# axes: k blades, m maps, j invariant blades, e the blades that each map reads, then the invariant blades


class LinearTable(NamedTuple):
    """Which blades each map reads, and the columns of all maps for these, followed by those of the invariant blades."""

    reads: tuple[slice, ...]
    columns: Float[Tensor, "k e"]
    invariant: tuple[int, ...]


class ProductTable(NamedTuple):
    """For one grade of the right factor: its blades, and the left factor's with their sign for every target blade."""

    right: slice
    left: Int[Tensor, "k*k_j"]
    sign: Float[Tensor, "k k_j 1"]


def linear_table(basis: LinearBasis, invariant: tuple[int, ...]) -> LinearTable:
    """The table of a basis, each map divided by its Frobenius norm."""
    maps = basis.tensor / basis.tensor.flatten(1).norm(dim=1).clamp(min=1e-30)[:, None, None]
    reads = tuple(basis.symmetry.algebra.slices[grade] for grade, _ in basis.grades)
    blades = torch.eye(maps.shape[-1], dtype=maps.dtype)[:, list(invariant)]
    columns = [*(w[:, read] for w, read in zip(maps, reads, strict=True)), blades]
    return LinearTable(reads, torch.cat(columns, 1), invariant)


def linear(
    x: Float[Tensor, "k *tokens c_in"],
    s: Float[Tensor, "*tokens s_in"],
    mv: Float[Tensor, "c_out c_in m"],
    s_to_mv: Float[Tensor, "j c_out s_in"],
    mv_to_s: Float[Tensor, "j s_out c_in"],
    s_to_s: Float[Tensor, "s_out s_in"],
    bias_mv: Float[Tensor, "j c_out"] | None,
    bias_s: Float[Tensor, " s_out"] | None,
    table: LinearTable,
) -> tuple[Float[Tensor, "k *tokens c_out"], Float[Tensor, "*tokens s_out"]]:
    """y_o = sum_i sum_m w_oim W_m x_i; scalars feed the invariant blades and are fed by them."""
    biases = [None] * len(s_to_mv) if bias_mv is None else bias_mv
    mixed = [x[read] @ w for read, w in zip(table.reads, mv.permute(2, 1, 0).unbind(), strict=True)]
    extra = torch.stack([functional.linear(s, w, bias) for w, bias in zip(s_to_mv, biases, strict=True)])
    t = functional.linear(s, s_to_s, bias_s)
    for w, blade in zip(mv_to_s, table.invariant, strict=True):
        t = t + functional.linear(x[blade], w)
    return torch.tensordot(table.columns.to(x), torch.cat([*mixed, extra]), 1), t


@lru_cache(maxsize=64)
def product_table(algebra: Algebra, product: str) -> tuple[ProductTable, ...]:
    """The table of one product."""
    index, sign = algebra.table(product)
    return tuple(ProductTable(j, index[:, j].flatten(), sign[:, j].float().unsqueeze(-1)) for j in algebra.slices)


def products(
    h: Float[Tensor, "k *tokens 2*p*c"], tables: Sequence[tuple[ProductTable, ...]]
) -> list[Float[Tensor, "k *tokens c"]]:
    """h_0 * h_1, h_2 * h_3, ..., each as a sum over the grades of the right factor."""
    factors, out = h.chunk(2 * len(tables), -1), []
    for left, right, table in zip(factors[0::2], factors[1::2], tables, strict=True):
        a, b = left.flatten(1), right.flatten(1)
        terms = [(a.index_select(0, t.left).unflatten(0, t.sign.shape[:2]) * t.sign * b[t.right]).sum(1) for t in table]
        out.append(torch.stack(terms).sum(0).view(left.shape))
    return out


def normalise(
    x: Float[Tensor, "k *tokens c"],
    groups: Sequence[Sequence[tuple[int, float]]],
    absolute: bool,
    floor: tuple[str, float],
) -> Float[Tensor, "k *tokens c"]:
    """x divided by the root of its size, as a `NormPlan` has it."""
    size = torch.zeros_like(x[0])
    for group in groups:  # a few operations for each, however many blades: tracing takes milliseconds for every one
        blades = range(group[0][0], group[-1][0] + 1)
        signs = torch.tensor([dict(group).get(blade, 0.0) for blade in blades], dtype=x.dtype, device=x.device)
        square = torch.tensordot(signs, x[blades.start : blades.stop].square(), 1)
        size = size + (square.abs() if absolute else square)
    mean = size.mean(-1, keepdim=True)
    form, eps = floor
    return x * (mean.clamp(min=eps) if form == "clamp" else mean.clamp(min=0) + eps).rsqrt()
