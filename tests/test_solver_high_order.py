"""The solver at orders 3 and 4: counts by characters and plain null spaces, explicit blocks under random group elements."""

from itertools import pairwise, product

import numpy as np
import pytest
import torch
from groups import DIMENSIONS, group
from oracles import block_gram, kernel, motion_count, spin_count

from anygatr import Algebra, Symmetry, multilinear_maps, pin, spin

pytestmark = pytest.mark.slow


def defect(sym: Symmetry, grades: tuple[int, ...], block: torch.Tensor, versors: torch.Tensor) -> float:
    """The largest |g phi(x, ...) - phi(g x, ...)| relative to the size of g, over all components."""
    slices, worst = sym.algebra.slices, 0.0
    for rho in sym.algebra.action(versors):
        on = [rho[slices[k], slices[k]] for k in (grades[-1], *grades[:-1])]
        size = max(1.0, float(np.prod([float(a.abs().max()) for a in on])))
        for part in block.split(16):
            left, right = torch.einsum("po,mo...->mp...", on[0], part), part
            for slot, a in enumerate(on[1:], 2):
                right = torch.tensordot(right, a, dims=([slot], [0])).movedim(-1, slot)
            worst = max(worst, float((left - right).abs().max()) / size)
    return worst


def rank(block: torch.Tensor) -> int:
    """The rank of the maps, from their values at random components: enough of them to be safe."""
    flat = block.flatten(1)
    picked = torch.randn(flat.shape[1], 8 + len(flat), generator=torch.Generator().manual_seed(0), dtype=flat.dtype)
    return int(torch.linalg.matrix_rank(flat @ picked))


@pytest.mark.parametrize("order", [3, 4])
@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("space", ["E", "C"])
def test_counts_by_characters(space, d, order):
    """Block by block for SE(d), and for E(d) in odd dimension; the mirror halves every total."""
    proper, full = (multilinear_maps(group(space, d, mirrors), order).counts for mirrors in (False, True))
    n = group(space, d).algebra.n
    count = spin_count if space == "E" else motion_count
    assert proper == {g: count(n, g) for g in proper}
    assert 2 * sum(full.values()) == sum(proper.values())
    if n % 2:
        even = (lambda g: motion_count(n, g, True)) if space == "C" else (lambda g: count(n, g) * (sum(g) % 2 == 0))
        assert full == {g: even(g) for g in full}


@pytest.mark.parametrize(
    ("signature", "order"), [((4, 1, 0), 3), *(((p, q, 0), k) for p, q in [(1, 3), (2, 1)] for k in (3, 4))], ids=str
)
def test_spin_and_pin_counts_by_characters(signature, order):
    alg = Algebra(*signature)
    proper = multilinear_maps(spin(alg), order).counts
    assert proper == {g: spin_count(alg.n, g) for g in proper}
    assert 2 * len(multilinear_maps(pin(alg), order)) == sum(proper.values())


def sign_changes(sym: Symmetry, d: int) -> list[torch.Tensor]:
    """The elements of the group that only change signs: half turns, and mirrors where it has them."""
    axes = [sym.algebra[f"e{i + 1}"] for i in range(d)]
    return axes if len(sym.mirrors) else [sym.algebra.geometric(a, b) for a, b in pairwise(axes)]


@pytest.mark.parametrize("order", [3, 4])
@pytest.mark.parametrize("mirrors", [True, False])
@pytest.mark.parametrize("d", DIMENSIONS)
def test_projective_counts_by_a_plain_null_space(d, mirrors, order):
    sym = group("P", d, mirrors)
    counts, signs = multilinear_maps(sym, order).counts, sign_changes(group("P", d, mirrors), d)
    found: dict[tuple[int, ...], int] = {}
    for *inputs, out in counts:
        key = (*sorted(inputs), out)
        if key not in found:
            found[key] = kernel(block_gram(sym, key, signs)).shape[1]
        assert counts[*inputs, out] == found[key], (*inputs, out)


@pytest.mark.parametrize("grades", [(2, 2, 2, 2), (2, 3, 2, 3), (1, 2, 3, 2), (3, 3, 4, 2), (2, 2, 1, 1)], ids=str)
def test_large_conformal_blocks_by_a_plain_null_space(grades):
    sym = group("C", 3)
    basis = multilinear_maps(sym, 3)
    assert kernel(block_gram(sym, grades, sign_changes(sym, 3))).shape[1] == basis.counts[grades]


@pytest.mark.parametrize("mirrors", [True, False])
@pytest.mark.parametrize(("space", "d"), [("E", 3), ("P", 2), ("P", 3), ("C", 1), ("C", 2)])
def test_every_block_of_order_three_is_equivariant_and_independent(space, d, mirrors, rng):
    sym = group(space, d, mirrors)
    versors = sym.sample(3, rng, scale=0.7)
    for grades, block in multilinear_maps(sym, 3).blocks():
        assert defect(sym, grades, block, versors) < 1e-10
        assert rank(block) == len(block)


@pytest.mark.parametrize(
    ("space", "grades"),
    [
        ("C", (2, 2, 2, 2)),
        ("C", (3, 1, 2, 4)),
        ("C", (2, 2, 2, 2, 2)),
        ("C", (1, 2, 3, 4, 2)),
        ("P", (2, 2, 2, 2, 2)),
        ("P", (1, 3, 2, 4, 2)),
        ("P", (3, 3, 3, 3, 0)),
        ("E", (1, 2, 1, 2, 2)),
    ],
)
@pytest.mark.parametrize("mirrors", [True, False])
def test_explicit_blocks_are_equivariant_and_independent(space, grades, mirrors, rng):
    sym = group(space, 3, mirrors)
    if grades == (2, 2, 2, 2, 2) and space == "C" and not mirrors:
        pytest.skip("twice the tensors of E(3), past 1 GiB")
    basis = multilinear_maps(sym, len(grades) - 1)
    block = basis.block(grades)
    assert len(block) == basis.counts[grades]
    assert defect(sym, grades, block, sym.sample(2, rng, scale=0.7)) < 1e-10
    assert rank(block) == len(block)
    broken = block[:16].clone()
    broken[:, :, 0] *= 2
    assert defect(sym, grades, broken, sym.sample(2, rng, scale=0.7)) > 1e-3


def test_high_order_blocks_follow_permutations_of_the_inputs():
    basis = multilinear_maps(group("C", 3), 4)
    for grades in product(range(6), repeat=5):
        assert basis.counts[grades] == basis.counts[*sorted(grades[:-1]), grades[-1]]
