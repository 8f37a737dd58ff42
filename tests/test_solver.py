"""The solver at orders 1 and 2: counts, formulas, other ways to the same spaces, and equivariance on embedded points."""

from itertools import product

import numpy as np
import pytest
import torch
from groups import DIMENSIONS, SPACES, algebra, group, infinity, motion, origin, point
from oracles import block_gram, kernel, motion_count, sampled_linear_maps, spin_count

from anygatr import Algebra, Symmetry, euclidean, invariants, linear_maps, multilinear_maps, pin, spin
from anygatr.equivariance.linalg import null_space

E, P, C = (algebra(space, 3) for space in SPACES)
FOUR, PLANE = Algebra(4), algebra("P", 2)
EUCLIDEAN = [(s, d, m) for s in SPACES for d in DIMENSIONS for m in (True, False)]
everywhere = pytest.mark.parametrize(("space", "d", "mirrors"), EUCLIDEAN)


OBLIQUE = C.vector(torch.tensor([1.0, 2.0, 2.0, 0.0, 3.0], dtype=torch.float64) / 3)
CUSTOM = {
    "trivial": Symmetry(E),
    "one rotation": Symmetry(E, [E["e12"]]),
    "screw": Symmetry(P, [P["e12"] + 0.7 * P["e03"]]),
    "double rotation": Symmetry(FOUR, [FOUR["e12"] + FOUR["e34"]]),
    "two planes": Symmetry(FOUR, [FOUR["e12"], 2 * FOUR["e34"]], [FOUR["e1"]]),
    "dilation": Symmetry(Algebra(2, 1), [Algebra(2, 1)["e23"]]),
    "null rotation": Symmetry(Algebra(1, 2), [Algebra(1, 2)["e12"] + Algebra(1, 2)["e23"]]),
    "oblique mirror alone": Symmetry(E, mirrors=[0.6 * E["e1"] + 0.8 * E["e2"]]),
    "oblique mirror": Symmetry(PLANE, group("P", 2, False).generators, [0.6 * PLANE["e1"] + 0.8 * PLANE["e2"]]),
    "two mirrors": Symmetry(PLANE, group("P", 2, False).generators, [PLANE["e1"], 0.6 * PLANE["e1"] + 0.8 * PLANE["e2"]]),
    "point reflection": Symmetry(E, [E["e12"]], [E["e123"]]),
    "half turn": Symmetry(E, mirrors=[E["e12"]]),
    "mirror of the plane": Symmetry(E, [E["e12"]], [E["e3"]]),
}
GENERIC = [(1, 1, 0), (0, 2, 0), (2, 1, 0), (1, 1, 1), (0, 0, 3), (0, 3, 0), (2, 0, 2), (1, 1, 2), (2, 2, 0), (0, 1, 2)]


def all_blocks(n: int, order: int = 2) -> list[tuple[int, ...]]:
    return list(product(range(n + 1), repeat=order + 1))


def same_span(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether the columns of a and b span the same space: their orthogonal projectors agree."""
    if a.shape[1] != b.shape[1]:
        return False
    a, b = (np.linalg.qr(x)[0] for x in (a, b))
    return bool(np.abs(a @ a.T - b @ b.T).max(initial=0.0) < 1e-8)


def columns(tensor: torch.Tensor) -> np.ndarray:
    return tensor.reshape(len(tensor), tensor[:1].numel() if len(tensor) else int(np.prod(tensor.shape[1:]))).numpy().T


@pytest.mark.parametrize(
    ("sym", "order", "count"),
    [
        *((group("E", 3, m), order, c) for order, m, c in [(1, 1, 4), (1, 0, 8), (2, 1, 20), (2, 0, 40)]),
        *((group("P", 3, m), order, c) for order, m, c in [(1, 1, 9), (1, 0, 16), (2, 1, 58), (2, 0, 117)]),
        *((group("C", 3, m), order, c) for order, m, c in [(1, 1, 20), (1, 0, 40), (2, 1, 280), (2, 0, 560)]),
        (pin(C), 1, 6),
        (spin(C), 1, 12),
        (pin(Algebra(1, 3)), 1, 5),
        (spin(Algebra(1, 3)), 1, 10),
    ],
)
def test_known_counts(sym, order, count):
    basis = multilinear_maps(sym, order)
    assert len(basis) == count
    assert basis.residual < 1e-10
    if order == 1:
        assert len(linear_maps(sym)) == count
        assert linear_maps(sym).residual < 1e-10


@pytest.mark.parametrize(
    ("sym", "table"),
    [
        (group("P", 3, False), "11001/01110/00210/11011/11001"),
        (group("C", 3), "110000/121000/012100/001210/000121/000011"),
    ],
    ids=["P", "C"],
)
def test_order_one_by_grade(sym, table):
    expected = {(i, o): int(c) for i, row in enumerate(table.split("/")) for o, c in enumerate(row)}
    assert linear_maps(sym).counts == multilinear_maps(sym, 1).counts == expected


@pytest.mark.parametrize("order", [1, 2])
@everywhere
def test_counts_by_an_independent_way(space, d, mirrors, order):
    """E and C by characters, P by a plain null space of each block."""
    sym = group(space, d, mirrors)
    counts, n = multilinear_maps(sym, order).counts, sym.algebra.n
    if space == "P":
        assert counts == {g: kernel(block_gram(sym, g)).shape[1] for g in all_blocks(n, order)}
        return
    by_character = {g: (spin_count if space == "E" else motion_count)(n, g) for g in all_blocks(n, order)}
    if not mirrors:
        assert counts == by_character
    # det(1 + g) vanishes on every g with det g = -1, so the mirror halves the total
    assert sum(counts.values()) * (2 if mirrors else 1) == sum(by_character.values())
    if mirrors and space == "C" and n % 2:
        assert counts == {g: motion_count(n, g, mirrors=True) for g in counts}


@pytest.mark.parametrize("signature", [(3, 1, 0), (0, 4, 0), (2, 3, 0), (4, 2, 0), (3, 3, 0)], ids=str)
@pytest.mark.parametrize("order", [1, 2])
def test_spin_and_pin_counts_by_characters(signature, order):
    alg = Algebra(*signature)
    by_character = {g: spin_count(alg.n, g) for g in all_blocks(alg.n, order)}
    assert multilinear_maps(spin(alg), order).counts == by_character
    assert 2 * len(multilinear_maps(pin(alg), order)) == sum(by_character.values())


@pytest.mark.parametrize("signature", [(8, 0, 0), (5, 3, 0), (0, 8, 0)], ids=str)
def test_order_one_with_eight_generators(signature):
    """The exterior powers are irreducible under O(n); under SO(n) also each is its dual's, and the middle one splits."""
    alg = Algebra(*signature)
    assert len(multilinear_maps(pin(alg), 1)) == 9
    assert multilinear_maps(spin(alg), 1).counts == {g: spin_count(8, g) for g in all_blocks(8, 1)}


@pytest.mark.parametrize("r", [1, 2, 3])
def test_without_a_metric_every_map_is_equivariant(r):
    """In G(0, 0, r) every bivector acts trivially."""
    sym = pin(Algebra(0, 0, r))
    assert len(multilinear_maps(sym, 1)) == len(linear_maps(sym)) == 4**r
    assert len(multilinear_maps(sym, 2)) == 8**r


def order_one_groups() -> dict[str, Symmetry]:
    groups = {f"{space}{d}{'' if m else ' SE'}": group(space, d, m) for space, d, m in EUCLIDEAN}
    groups |= {f"{make.__name__}{s}": make(Algebra(*s)) for s in GENERIC for make in (pin, spin)}
    return groups | CUSTOM | {"oblique infinity": euclidean(C, OBLIQUE)}


@pytest.mark.parametrize("sym", [pytest.param(s, id=name) for name, s in order_one_groups().items()])
def test_linear_maps_are_the_null_space_over_sampled_elements(sym, rng):
    basis = linear_maps(sym)
    solved = columns(basis.tensor)
    assert basis.residual < 1e-10
    assert same_span(solved, sampled_linear_maps(sym, rng))
    assert same_span(solved, columns(multilinear_maps(sym, 1).tensor))


@pytest.mark.parametrize(
    "sym",
    [pytest.param(s, id=name) for name, s in CUSTOM.items()]
    + [pytest.param(pin(Algebra(*s)), id=f"pin{s}") for s in GENERIC]
    + [pytest.param(spin(Algebra(*s)), id=f"spin{s}") for s in GENERIC if sum(s) < 4],
)
def test_bilinear_blocks_are_the_plain_null_space(sym):
    basis = multilinear_maps(sym, 2)
    for grades in all_blocks(sym.algebra.n):
        if grades[0] > grades[1]:
            assert basis.counts[grades] == basis.counts[grades[1], grades[0], grades[2]]
            continue
        assert same_span(columns(basis.block(grades)), kernel(block_gram(sym, grades))), grades


@pytest.mark.parametrize("grades", [(1, 1, 2), (2, 2, 2), (2, 3, 1), (3, 3, 2), (0, 2, 2), (5, 2, 3)], ids=str)
@pytest.mark.parametrize("mirrors", [True, False])
def test_conformal_bilinear_blocks_are_the_plain_null_space(grades, mirrors):
    sym = group("C", 3, mirrors)
    assert same_span(columns(multilinear_maps(sym, 2).block(grades)), kernel(block_gram(sym, grades)))


@pytest.mark.parametrize("signature", [(3, 1, 1), (2, 2, 2), (4, 0, 2)], ids=str)
def test_degenerate_blocks_with_many_generators(signature):
    sym = pin(Algebra(*signature))
    basis = multilinear_maps(sym, 2)
    for grades in [(1, 1, 2), (1, 2, 1), (2, 1, 1), (0, 2, 2), (1, sym.algebra.n, sym.algebra.n - 1)]:
        assert same_span(columns(basis.block(grades)), kernel(block_gram(sym, grades))), grades


def on_points(maps: torch.Tensor, space: str, x: torch.Tensor, sign: int = 1) -> torch.Tensor:
    """The maps (m, k, k, ...) at multivectors 1 + p1 + p1 p2 + ... of embedded points, coordinates (input, point, d).

    Products of points reach every grade. `sign` is what a mirror does to a point.
    """
    alg = algebra(space, x.shape[-1])
    for coordinates in x.flip(0):
        total = factor = alg["1"]
        for p in point(space, coordinates):
            factor = alg.geometric(factor, sign * p)
            total = total + factor
        maps = maps @ total
    return maps


@everywhere
@pytest.mark.parametrize("order", [1, 2])
def test_maps_commute_with_motions_of_embedded_points(space, d, mirrors, order, rng):
    """phi(embed(Q x + t), ...) = g phi(embed(x), ...): coordinates are moved by the matrix, results by the versor."""
    sym = group(space, d, mirrors)
    tensor = multilinear_maps(sym, order).tensor
    for reflections in (2, 3) if mirrors else (2, 4):
        g, x = motion(d, reflections, rng), torch.randn(order, 4, d, generator=rng, dtype=torch.float64) / 2
        moved = x @ g.matrix.T + (0 if space == "E" else g.translation)
        expected = sym.act(g.versor(space), on_points(tensor, space, x))
        actual = on_points(tensor, space, moved, -1 if space == "P" and g.odd else 1)
        assert (actual - expected).abs().max() < 1e-10 * max(1.0, float(expected.abs().max()))


@pytest.mark.parametrize("space", SPACES)
def test_a_mirror_rejects_the_maps_of_the_proper_group(space, rng):
    tensor = linear_maps(group(space, 3, mirrors=False)).tensor
    g, x = motion(3, 3, rng), torch.randn(1, 4, 3, generator=rng, dtype=torch.float64)
    moved = x @ g.matrix.T + (0 if space == "E" else g.translation)
    defect = on_points(tensor, space, moved, -1 if space == "P" else 1) - algebra(space, 3).sandwich(
        g.versor(space), on_points(tensor, space, x)
    )
    odd = int((defect.abs().amax(-1) > 1e-6).sum())
    assert 0 < odd <= len(tensor) - len(linear_maps(group(space, 3)))


def test_origin_for_infinity_is_told_apart(rng):
    """Same count, same kind of residual, but other maps: only the action on embedded points shows it."""
    right, wrong = linear_maps(group("C", 3)), linear_maps(euclidean(C, origin(3)))
    assert len(wrong) == len(right) == 20
    assert wrong.residual < 1e-10
    both = np.concatenate([columns(right.tensor), columns(wrong.tensor)], axis=1)
    assert 40 - np.linalg.matrix_rank(both) == 6
    g, x = motion(3, 2, rng), torch.randn(1, 4, 3, generator=rng, dtype=torch.float64)
    for basis, passes in ((right, True), (wrong, False)):
        at, moved = (on_points(basis.tensor, "C", y) for y in (x, x @ g.matrix.T + g.translation))
        assert ((moved - C.sandwich(g.versor("C"), at)).abs().max() < 1e-10 * at.abs().max()) == passes


def formulas(space: str) -> dict[str, torch.Tensor]:
    """The paper's parameterisations, as matrices applied to the identity."""
    alg = algebra(space, 3)
    eye, n = torch.eye(alg.dim, dtype=torch.float64), alg.n
    out = {f"<x>_{k}": alg.grade(eye, k) for k in range(n + 1)}
    if space == "P":
        out |= {f"e0 <x>_{k}": alg.geometric(alg["e0"], alg.grade(eye, k)) for k in range(n)}
    if space == "C":
        inf = infinity("C", 3)
        times = {(k, j): alg.grade(alg.geometric(inf, alg.grade(eye, k)), j) for k, j in product(range(n + 1), repeat=2)}
        out |= {f"<inf <x>_{k}>_{k - 1}": times[k, k - 1] for k in range(1, n)} | {f"inf <x>_{n}": times[n, n - 1]}
        out |= {"inf <x>_0": times[0, 1]} | {f"<inf <x>_{k}>_{k + 1}": times[k, k + 1] for k in range(1, n)}
        out |= {f"inf <inf <x>_{k}>_{k - 1}": alg.geometric(inf, times[k, k - 1]) for k in range(1, n)}
    return {name: images.T for name, images in out.items()}


@pytest.mark.parametrize(("space", "count"), [("E", 4), ("P", 9), ("C", 20)])
def test_maps_print_as_the_papers_formulas_and_span_the_solved_space(space, count):
    basis, expected = linear_maps(group(space, 3)), formulas(space)
    assert basis.names == tuple(expected)
    assert len(expected) == count
    assert torch.allclose(basis.tensor, torch.stack(list(expected.values())), atol=1e-12)
    assert same_span(columns(torch.stack(list(expected.values()))), columns(multilinear_maps(group(space, 3), 1).tensor))
    assert all(name in str(basis) for name in expected)


def test_pseudoscalar_multiples_are_13_of_the_16_projective_maps():
    basis = linear_maps(group("P", 3, mirrors=False))
    nine = torch.stack(list(formulas("P").values()))
    paper = torch.cat([nine, P.left(P.pseudoscalar) @ nine])
    rank = torch.linalg.matrix_rank
    assert (len(basis), int(rank(paper.flatten(1)))) == (16, 13)
    assert int(rank(torch.cat([paper, basis.tensor]).flatten(1))) == 16
    assert {g for g, name in zip(basis.grades, basis.names, strict=True) if " v " in name} == {(3, 0), (4, 0), (4, 1)}


@pytest.mark.parametrize("sym", [pin(Algebra(1, 3)), spin(Algebra(1, 3)), spin(C), group("C", 2, False)], ids=repr)
def test_every_map_of_the_usual_groups_has_a_formula(sym):
    assert not any(name.startswith("map_") for name in linear_maps(sym).names)


def test_maps_without_formula_are_named_by_their_grades():
    basis = linear_maps(Symmetry(E))
    assert len(basis) == 64
    assert len(set(basis.names)) == 64
    assert int(torch.linalg.matrix_rank(basis.tensor.flatten(1))) == 64


def test_block_and_tensor_conventions(rng):
    basis = multilinear_maps(group("P", 3), 2)
    assert set(basis.counts) == set(all_blocks(4))
    block = basis.block((2, 1, 3))
    assert block.shape == (basis.counts[2, 1, 3], 4, 6, 4)
    assert basis.block([2, 1, 3]).shape == block.shape
    assert basis.tensor.shape == (58, 16, 16, 16)
    assert torch.equal(basis.tensor, multilinear_maps(group("P", 3), 2).tensor)
    s = P.slices
    start = sum(c for g, c in basis.counts.items() if g < (2, 1, 3))
    assert torch.equal(basis.tensor[start : start + len(block), s[3], s[2], s[1]], block)
    assert int(basis.tensor[start].count_nonzero()) == int(block[0].count_nonzero())
    assert dict(basis.blocks()).keys() == {g for g, c in basis.counts.items() if c}
    # the geometric product itself lies in the space, with its own order of inputs
    product_tensor = torch.einsum("ijk->kij", P.geometric(torch.eye(16).double()[:, None], torch.eye(16).double()))
    spanned = columns(basis.tensor)
    assert np.linalg.matrix_rank(np.concatenate([spanned, columns(product_tensor[None])], axis=1)) == 58
    dropped = columns((product_tensor * (torch.arange(16) != 3))[None])
    assert np.linalg.matrix_rank(np.concatenate([spanned, dropped], axis=1)) == 59


@pytest.mark.parametrize(
    ("sym", "expected"),
    [
        (group("E", 3), [E["1"]]),
        (group("E", 3, False), [E["1"], E["e123"]]),
        (group("P", 3), [P["1"], P["e0"]]),
        (group("P", 3, False), [P["1"], P["e0"], P["e0123"]]),
        (group("C", 3), [C["1"], infinity("C", 3)]),
        (euclidean(C, OBLIQUE), [C["1"], OBLIQUE]),
        (pin(C), [C["1"]]),
    ],
    ids=repr,
)
def test_invariants(sym, expected):
    assert same_span(columns(invariants(sym)), columns(torch.stack(expected)))


def test_equal_groups_built_in_different_frames_have_the_same_maps():
    """The engine is shared by equal symmetries, whichever frame the first one was built in."""
    sym = group("C", 2)
    plain = Symmetry(sym.algebra, sym.generators, sym.mirrors)
    assert plain == sym
    for grades in all_blocks(4, 1):
        a, b = multilinear_maps(sym, 1).block(grades), multilinear_maps(plain, 1).block(grades)
        assert same_span(columns(a), columns(b))


def test_the_scale_of_a_generator_does_not_matter():
    apart, unit = (Symmetry(P, [a * P["e01"], b * P["e12"], P["e23"]]) for a, b in ((1e-6, 1e3), (1, 1)))
    assert same_span(columns(linear_maps(apart).tensor), columns(linear_maps(unit).tensor))


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_the_scale_of_infinity_does_not_matter(size):
    assert len(multilinear_maps(euclidean(C, size * infinity("C", 3)), 2)) == 280


@pytest.mark.parametrize("infinity_vector", [OBLIQUE, C["e1"] + C["e-"]], ids=C.format)
def test_the_direction_of_infinity_does_not_matter(infinity_vector):
    sym = euclidean(C, infinity_vector)
    assert multilinear_maps(sym, 2).counts == multilinear_maps(group("C", 3), 2).counts


def test_an_undecided_rank_raises():
    with pytest.raises(ArithmeticError, match=r"no spectral gap: 1 of 3 .* rescale the generators"):
        null_space(np.diag([0.0, 1e-7, 1.0]))
    assert null_space(np.diag([0.0, 1e-12, 1.0])).shape == (3, 2)
    assert null_space(np.diag([1e-30, 1e-32]), scale=1.0).shape == (2, 2)
    assert null_space(np.zeros((0, 0))).shape == (0, 0)


def test_progress_is_reported_to_the_end():
    seen = []
    multilinear_maps(group("P", 2), 2, progress=lambda done, total: seen.append((done, total)))
    assert [done for done, _ in seen] == list(range(1, len(seen) + 1))
    assert seen[-1][0] == seen[-1][1]


def test_solved_bases_are_cached_and_print_their_counts():
    assert linear_maps(group("P", 3)) is linear_maps(group("P", 3))
    assert "58 equivariant maps of 2 multivectors" in str(multilinear_maps(group("P", 3), 2))
    assert "by grade" in str(linear_maps(group("P", 3)))
