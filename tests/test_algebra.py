"""The algebra against kingdon and against its axioms, for every signature with n <= 5 and some up to n = 8."""

import pickle
from itertools import permutations, product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kingdon import Algebra as Kingdon

from anygatr import Algebra

SIGNATURES = [s for s in product(range(6), repeat=3) if sum(s) <= 5]
LARGE = [(6, 0, 0), (3, 2, 1), (5, 1, 1), (4, 4, 0), (6, 1, 1), (0, 0, 8)]

# generators in the order we use, and in orders that need both a permutation and reordering signs
KINGDON = [
    (1,),
    (0, 1),
    (1, 1, 1),
    (0, 1, 1, 1),
    (1, 1, 1, 0),
    (1, -1, -1, -1),
    (-1, 1, 0, 1),
    (0, 0, 0),
    (0, 1, 0, -1),
    (-1, -1, -1),
    (1, 1, 1, 1, -1),
    (-1, 1, 0, 1, 0),
    (1, 0, -1, 0, 1),
]


def of(squares: tuple[int, ...]) -> Algebra:
    return Algebra(squares.count(1), squares.count(-1), squares.count(0))


def close(x: torch.Tensor, y: torch.Tensor, tolerance: float = 1e-10) -> bool:
    return bool((x - y).abs().max() <= tolerance * max(1.0, float(x.abs().max())))


def random(alg: Algebra, seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, alg.dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


signatures = st.one_of(st.sampled_from(SIGNATURES), st.sampled_from(LARGE))
seeds = st.integers(0, 2**31)
every_signature = settings(max_examples=60, deadline=None, derandomize=True)


class Peer:
    """kingdon's algebra with generators in any order, and the signed permutation of blades onto ours."""

    def __init__(self, squares: tuple[int, ...]):
        self.ours, self.theirs = of(squares), Kingdon(signature=list(squares))
        order = sorted(range(len(squares)), key=lambda i: (0, 1, -1).index(squares[i]))  # ours: null, positive, negative
        names = [""] * len(squares)
        for mine, his in enumerate(order):
            names[his] = self.ours.names[mine][1:]
        self.blades = {
            bits: self.ours["e" + "".join(names[i] for i in range(len(squares)) if bits >> i & 1) if bits else "1"]
            for bits in self.theirs.canon2bin.values()
        }

    def send(self, x: torch.Tensor):
        return self.theirs.multivector({bits: float(x @ blade) for bits, blade in self.blades.items()})

    def receive(self, x) -> torch.Tensor:
        zero = torch.zeros(self.ours.dim, dtype=torch.float64)
        return sum((float(value) * self.blades[bits] for bits, value in x.items()), zero)


@pytest.mark.parametrize("squares", KINGDON, ids=str)
def test_products_agree_with_kingdon(squares):
    peer = Peer(squares)
    alg, (x, y) = peer.ours, random(peer.ours, 1, 2)
    a, b = peer.send(x), peer.send(y)
    assert close(alg.geometric(x, y), peer.receive(a * b))
    assert close(alg.outer(x, y), peer.receive(a ^ b))
    assert close(alg.inner(x, y), peer.receive(a * b.reverse())[0])
    assert close(alg.reverse(x), peer.receive(a.reverse()))
    assert close(alg.involute(x), peer.receive(a.involute()))
    # swapping generators may turn the pseudoscalar round, and every join with it
    orientation = peer.receive(peer.theirs.pss)[-1]
    assert close(alg.join(x, y), orientation * peer.receive(a & b))


@pytest.mark.parametrize("signature", SIGNATURES, ids=str)
def test_generators_square_to_the_signature_and_anticommute(signature):
    alg = Algebra(*signature)
    vectors = torch.eye(alg.dim, dtype=torch.float64)[1 : 1 + alg.n]
    squares = torch.tensor([0.0] * signature[2] + [1.0] * signature[0] + [-1.0] * signature[1], dtype=torch.float64)
    gram = (alg.geometric(vectors[:, None], vectors) + alg.geometric(vectors, vectors[:, None])) / 2
    assert torch.equal(gram[..., 0], torch.diag(squares))
    assert not gram[..., 1:].any()


@every_signature
@given(signatures, seeds)
def test_geometric_product_is_associative_with_unit(signature, seed):
    alg = Algebra(*signature)
    x, y, z = random(alg, seed, 3)
    assert close(alg.geometric(alg.geometric(x, y), z), alg.geometric(x, alg.geometric(y, z)))
    assert close(alg.outer(alg.outer(x, y), z), alg.outer(x, alg.outer(y, z)))
    assert close(alg.join(alg.join(x, y), z), alg.join(x, alg.join(y, z)))
    assert torch.equal(alg.geometric(alg["1"], x), x)
    assert torch.equal(alg.geometric(x, alg["1"]), x)


@every_signature
@given(signatures, seeds)
def test_a_vector_squares_to_its_quadratic_form(signature, seed):
    alg = Algebra(*signature)
    v = torch.randn(alg.n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    q = sum(s * c**2 for s, c in zip(alg.squares, v.tolist(), strict=True))
    assert close(alg.geometric(alg.vector(v), alg.vector(v)), q * alg["1"])


@every_signature
@given(signatures, seeds)
def test_reverse_is_an_anti_automorphism_and_involute_an_automorphism(signature, seed):
    alg = Algebra(*signature)
    x, y = random(alg, seed, 2)
    xy = alg.geometric(x, y)
    assert close(alg.reverse(xy), alg.geometric(alg.reverse(y), alg.reverse(x)))
    assert close(alg.involute(xy), alg.geometric(alg.involute(x), alg.involute(y)))
    assert torch.equal(alg.reverse(alg.reverse(x)), x)
    assert torch.equal(alg.involute(alg.involute(x)), x)


@every_signature
@given(signatures, seeds)
def test_inner_is_the_scalar_part_of_x_times_reversed_y(signature, seed):
    alg = Algebra(*signature)
    x, y = random(alg, seed, 2)
    assert close(alg.inner(x, y), alg.geometric(x, alg.reverse(y))[0])
    assert close(alg.inner(x, y), (alg.metric * x * y).sum())


@every_signature
@given(signatures, seeds)
def test_outer_and_grades_split_the_geometric_product(signature, seed):
    alg = Algebra(*signature)
    x, y = random(alg, seed, 2)
    assert close(sum(alg.grade(x, k) for k in range(alg.n + 1)), x)
    top = torch.zeros_like(x)
    for i, j in product(range(alg.n + 1), repeat=2):
        if i + j <= alg.n:
            top += alg.grade(alg.geometric(alg.grade(x, i), alg.grade(y, j)), i + j)
    assert close(alg.outer(x, y), top)


@pytest.mark.parametrize("signature", SIGNATURES, ids=str)
def test_blade_times_its_dual_is_the_pseudoscalar(signature):
    alg = Algebra(*signature)
    blades = torch.eye(alg.dim, dtype=torch.float64)
    assert torch.equal(alg.outer(blades, alg.dual(blades)), alg.pseudoscalar.expand(alg.dim, -1))
    assert torch.equal(alg.undual(alg.dual(blades)), blades)
    assert torch.equal(alg.dual(alg.undual(blades)), blades)


@every_signature
@given(signatures, seeds)
def test_join_is_the_outer_product_of_duals(signature, seed):
    alg = Algebra(*signature)
    x, y = random(alg, seed, 2)
    assert close(alg.join(x, y), alg.undual(alg.outer(alg.dual(x), alg.dual(y))))
    assert torch.equal(alg.join(alg.pseudoscalar, x), x)


def test_join_conventions_of_projective_space():
    alg = Algebra(3, 0, 1)
    assert torch.equal(alg.join(alg.pseudoscalar, alg["1"]), alg["1"])
    assert torch.equal(alg.join(alg["e0"], alg["e123"]), alg["1"])
    assert torch.equal(alg.join(alg["e123"], alg["e0"]), -alg["1"])


@pytest.mark.parametrize(
    ("signature", "expected"), [((3, 0, 0), (8, 0, 0)), ((3, 0, 1), (8, 0, 8)), ((4, 1, 0), (16, 16, 0))], ids=str
)
def test_signature_of_the_inner_product(signature, expected):
    metric = Algebra(*signature).metric
    assert tuple(int((metric == s).sum()) for s in (1, -1, 0)) == expected


@every_signature
@given(signatures, seeds)
def test_left_right_and_commutator_are_the_matrices_of_the_products(signature, seed):
    alg = Algebra(*signature)
    x, y = random(alg, seed, 2)
    assert close(alg.left(x) @ y, alg.geometric(x, y))
    assert close(alg.right(x) @ y, alg.geometric(y, x))
    assert close(alg.commutator(x) @ y, alg.geometric(x, y) - alg.geometric(y, x))


@every_signature
@given(st.sampled_from(SIGNATURES), seeds)
def test_exp_is_the_series_and_inverts_at_minus(signature, seed):
    alg = Algebra(*signature)
    x, general = random(alg, seed, 2) / 4
    b = alg.grade(x, 2) if alg.n > 1 else 0 * x
    assert close(alg.geometric(alg.exp(b), alg.exp(-b)), alg["1"])
    for y in (b, general):
        term = total = alg["1"]
        for k in range(1, 60):
            term = alg.geometric(term, y) / k
            total = total + term
        assert close(alg.exp(y), total)


@every_signature
@given(st.sampled_from(SIGNATURES), seeds)
def test_inverse_of_a_general_multivector_is_two_sided(signature, seed):
    alg = Algebra(*signature)
    x = alg["1"] + 0.5 * random(alg, seed) / alg.dim
    y = alg.inverse(x)
    assert close(alg.geometric(x, y), alg["1"], 1e-9)
    assert close(alg.geometric(y, x), alg["1"], 1e-9)


def test_inverse_beyond_versors():
    alg = Algebra(3)
    x = alg["1"] + alg["e1"] / 2
    naive = alg.reverse(x) / alg.inner(x, x)  # right for versors only
    assert not close(alg.geometric(x, naive), alg["1"], 1e-2)
    assert close(alg.geometric(x, alg.inverse(x)), alg["1"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("distance", [1.0, 100.0, 10_000.0])
def test_inverse_of_a_far_translation_in_projective_space(dtype, distance):
    alg = Algebra(3, 0, 1)
    u = (alg["1"] - distance / 2 * alg["e01"]).to(dtype)
    assert torch.equal(alg.geometric(u, alg.inverse(u)), alg["1"].to(dtype))


@pytest.mark.parametrize(
    ("signature", "blades"),
    [((1, 1, 0), ("e1", "e2")), ((3, 0, 1), ("e0",)), ((3, 0, 0), ("1", "e1")), ((2, 0, 0), ()), ((4, 1, 0), ("e1", "e5"))],
    ids=str,
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_null_multivectors_have_no_inverse(signature, blades, dtype):
    alg = Algebra(*signature)
    x = sum((alg[b] for b in blades), 0 * alg["1"]).to(dtype)
    with pytest.raises(ValueError, match="has no inverse in Algebra"):
        alg.inverse(x)
    with pytest.raises(ValueError, match="has no inverse in Algebra"):
        alg.inverse(torch.stack([alg["1"].to(dtype), x]))


def versor(alg: Algebra, seed: int, factors: int) -> torch.Tensor:
    """A product of random vectors, none of them near the null cone."""
    rng, u, found = torch.Generator().manual_seed(seed), alg["1"], 0
    while found < factors:
        v = alg.vector(torch.randn(alg.n, generator=rng, dtype=torch.float64))
        if abs(alg.inner(v, v)) > 0.3:
            u, found = alg.geometric(u, v), found + 1
    return u


NON_NULL = [s for s in SIGNATURES if s[0] + s[1] > 0]


@every_signature
@given(st.sampled_from(NON_NULL), seeds, st.integers(0, 3))
def test_sandwich_is_an_automorphism_that_keeps_grades(signature, seed, factors):
    alg = Algebra(*signature)
    u, (x, y) = versor(alg, seed, factors), random(alg, seed, 2)
    ux, uy = alg.sandwich(u, x), alg.sandwich(u, y)
    assert close(alg.sandwich(u, alg.geometric(x, y)), alg.geometric(ux, uy), 1e-7)
    for k in range(alg.n + 1):
        assert close(alg.sandwich(u, alg.grade(x, k)), alg.grade(ux, k), 1e-7)
    assert close(alg.inner(ux, uy), alg.inner(x, y), 1e-7)
    assert close(alg.action(u) @ x, ux, 1e-7)


def test_a_reflection_turns_its_normal_round_and_keeps_the_plane():
    alg = Algebra(3)
    assert torch.equal(alg.sandwich(alg["e1"], alg["e1"]), -alg["e1"])
    assert torch.equal(alg.sandwich(alg["e1"], alg["e2"]), alg["e2"])


def test_the_involution_belongs_to_odd_versors_only():
    """u involute(x) u^-1 for an even u would turn vectors round under the identity."""
    alg = Algebra(3)
    wrong = alg.geometric(alg.geometric(alg["1"], alg.involute(alg["e1"])), alg.inverse(alg["1"]))
    assert torch.equal(wrong, -alg["e1"])
    assert torch.equal(alg.sandwich(alg["1"], alg["e1"]), alg["e1"])
    # nor may it be left out for odd ones: the mirror e1 would turn e2 round instead of e1
    untwisted = alg.geometric(alg.geometric(alg["e1"], alg["e2"]), alg.inverse(alg["e1"]))
    assert torch.equal(untwisted, -alg["e2"])


@pytest.mark.parametrize("name", ["geometric", "outer", "join", "inner"])
def test_products_broadcast_over_leading_dimensions(name):
    alg = Algebra(2, 0, 1)
    operation = getattr(alg, name)
    x, y = random(alg, 1, 5, 1), random(alg, 2, 3)
    out = operation(x, y)
    assert out.shape[:2] == (5, 3)
    assert torch.allclose(out[4, 2], operation(x[4, 0], y[2]), atol=1e-12)
    assert operation(x[:0], y).shape[:2] == (0, 3)


@pytest.mark.parametrize("name", ["reverse", "involute", "dual", "undual", "exp", "inverse"])
def test_unary_operations_are_batched(name):
    alg = Algebra(2, 1, 1)
    operation, x = getattr(alg, name), alg["1"] + random(alg, 3, 4, 2) / 40
    assert torch.allclose(operation(x)[3, 1], operation(x[3, 1]), atol=1e-12)


UNARY = ["reverse", "involute", "dual", "undual", "exp", "inverse"]
BINARY = ["geometric", "outer", "join", "inner", "sandwich"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", UNARY + BINARY)
def test_dtype_follows_the_arguments(name, dtype):
    alg = Algebra(3, 0, 1)
    u = (alg["1"] + alg["e12"]).to(dtype)
    assert getattr(alg, name)(*(u, u)[: 1 if name in UNARY else 2]).dtype == dtype


@pytest.mark.parametrize("name", ["geometric", "outer", "join", "inner"])
def test_mixed_precision_promotes(name):
    alg = Algebra(3, 0, 1)
    x, y = random(alg, 1), random(alg, 2).float()
    assert getattr(alg, name)(x, y).dtype == getattr(alg, name)(y, x).dtype == torch.float64


@pytest.mark.parametrize("name", UNARY + BINARY)
@pytest.mark.parametrize("signature", [(2, 0, 1), (1, 1, 0)], ids=str)
def test_gradients(name, signature):
    alg = Algebra(*signature)
    x = (alg["1"] + random(alg, 5, 2) / 9).requires_grad_()
    y = random(alg, 6, 2).requires_grad_()
    if name == "sandwich":
        even = (alg.grades % 2 == 0).double()
        assert torch.autograd.gradcheck(lambda u, v: alg.sandwich(u * even, v), (x, y))
    else:
        assert torch.autograd.gradcheck(getattr(alg, name), (x, y)[: 1 if name in UNARY else 2])


def test_values_are_equal_hashable_and_travel():
    alg = Algebra(4, 1, names=("e1", "e2", "e3", "e+", "e-"))
    again = pickle.loads(pickle.dumps(alg))
    assert again == alg
    assert hash(again) == hash(alg)
    assert again.blades == alg.blades
    assert alg != Algebra(4, 1)
    assert Algebra(3, 0, 1) == Algebra(3, 0, 1, ("e0", "e1", "e2", "e3"))
    with pytest.raises(AttributeError):
        alg.p = 3
    assert alg.table("geometric") is again.table("geometric")


def test_component_order_is_graded_then_lexicographic_null_vectors_first():
    projective = "1 e0 e1 e2 e3 e01 e02 e03 e12 e13 e23 e012 e013 e023 e123 e0123"
    assert " ".join(Algebra(3, 0, 1).blades) == projective
    assert Algebra(1, 3).blades[:6] == ("1", "e1", "e2", "e3", "e4", "e12")
    assert Algebra(1, 1, 1).squares == (0, 1, -1)
    assert Algebra(2, 0, 2).names == ("e1", "e2", "e3", "e4")
    assert Algebra(3, 0, 1).grades.tolist() == [0] + [1] * 4 + [2] * 6 + [3] * 4 + [4]


def test_permuted_blade_names_carry_the_sign_of_the_permutation():
    alg = Algebra(3, 0, 1)
    for order in permutations("0123"):
        swaps = sum(a > b for i, a in enumerate(order) for b in order[i + 1 :])
        assert torch.equal(alg["e" + "".join(order)], (-1) ** swaps * alg["e0123"])
    assert alg.index("e123") == 14
    with pytest.raises(ValueError, match=r"blade='e32' is -e23; ask for index\('e23'\)"):
        alg.index("e32")


def test_long_generator_names_are_separated():
    alg = Algebra(3, names=("e1", "e2", "e12"))
    assert alg.blades[-2:] == ("e2_12", "e1_2_12")
    assert torch.equal(alg["e12_1"], -alg["e1_12"])
    assert torch.equal(alg["e12"], alg.vector(torch.eye(3, dtype=torch.float64)[2]))


@pytest.mark.parametrize(
    ("terms", "text"),
    [
        ({}, "0"),
        ({"1": 1, "e12": 2, "e0123": -1}, "1 + 2 e12 - e0123"),
        ({"e1": -1}, "-e1"),
        ({"1": -1.5, "e21": 1}, "-1.5 - e12"),
        ({"e1": 1, "e2": 1e-17}, "e1"),
        ({"e0": 1e-3}, "0.001 e0"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_format(terms, text):
    alg = Algebra(3, 0, 1)
    assert alg.format(sum((c * alg[b] for b, c in terms.items()), 0 * alg["1"])) == text


def test_large_algebras_are_quick_enough_to_use():
    alg = Algebra(4, 3, 1)
    x, y = random(alg, 1, 2)
    assert alg.dim == 256
    assert close(alg.reverse(alg.geometric(x, y)), alg.geometric(alg.reverse(y), alg.reverse(x)))
