"""Proposition 1: any multilinear map from products, projections and constants, and exactly what a null vector forbids."""

import pytest
import torch

from anygatr import Algebra, construct
from anygatr.equivariance.expressivity import linear_span

EINSUM = {1: "ki,bi->bk", 2: "kij,bi,bj->bk", 3: "kijl,bi,bj,bl->bk"}


def random_map(alg: Algebra, order: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
    generator = torch.Generator().manual_seed(order)
    tensor = torch.randn(*(alg.dim,) * (order + 1), generator=generator, dtype=torch.float64)
    return tensor, [torch.randn(5, alg.dim, generator=generator, dtype=torch.float64) for _ in range(order)]


@pytest.mark.parametrize(
    ("signature", "join", "order"),
    [
        ((3, 0, 0), False, 1),
        ((4, 1, 0), False, 1),
        ((1, 1, 0), False, 2),
        ((2, 0, 0), False, 3),
        ((1, 3, 0), False, 1),
        ((3, 0, 1), True, 1),
        ((2, 0, 1), True, 2),
        ((1, 0, 1), True, 3),
        ((1, 1, 2), True, 1),
    ],
)
def test_construction_equals_the_tensor(signature, join, order):
    alg = Algebra(*signature)
    tensor, inputs = random_map(alg, order)
    expected = torch.einsum(EINSUM[order], tensor, *inputs)
    assert torch.allclose(construct(tensor, alg, join)(*inputs), expected, atol=1e-11)


@pytest.mark.parametrize("order", [1, 2])
def test_without_the_join_only_null_vectors_that_survive_are_reachable(order):
    alg = Algebra(2, 0, 1)
    tensor, inputs = random_map(alg, order)
    null = torch.tensor([0 in subset for subset in alg.subsets]).long()
    consumed = sum(null.reshape(*(1,) * s, -1, *(1,) * (order - s)) for s in range(1, order + 1))
    reachable = tensor * (consumed <= null.reshape(-1, *(1,) * order))
    expected = torch.einsum(EINSUM[order], reachable, *inputs)
    assert torch.allclose(construct(reachable, alg)(*inputs), expected, atol=1e-12)
    with pytest.raises(ValueError, match=r"\(.*e0.*\) -> .*use join=True"):
        construct(tensor, alg)


def test_the_paper_s_unreachable_map_is_named():
    alg = Algebra(3, 0, 1)
    tensor = torch.zeros(16, 16, dtype=torch.float64)
    tensor[0, alg.index("e0")] = 1
    with pytest.raises(ValueError, match=r"1 components .* \(e0\) -> 1; use join=True"):
        construct(tensor, alg)
    assert construct(tensor, alg, join=True)(3 * alg["e0"] + alg["e1"]).equal(3 * alg["1"])


@pytest.mark.parametrize(
    ("signature", "join", "dimension"),
    [((3, 0, 0), False, 64), ((4, 1, 0), False, 1024), ((3, 0, 1), False, 192), ((3, 0, 1), True, 256)],
)
def test_linear_maps_generated_by_products_and_projections(signature, join, dimension):
    assert linear_span(Algebra(*signature), join) == dimension


def test_construct_rejects_what_is_no_map():
    alg = Algebra(3)
    with pytest.raises(ValueError, match=r"shape \(8, 4\)"):
        construct(torch.zeros(8, 4), alg)
    with pytest.raises(ValueError, match="finite"):
        construct(torch.full((8, 8), torch.nan), alg)
    with pytest.raises(ValueError, match="this map takes 1"):
        construct(torch.eye(8), alg)(torch.zeros(8), torch.zeros(8))
    with pytest.raises(ValueError, match="r=2 > 1; use join=True"):
        construct(torch.eye(8), Algebra(1, 0, 2))
