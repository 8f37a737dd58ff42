"""What a user can get wrong in the mathematics: each error names the argument, its value and the remedy."""

import pytest
import torch

from anygatr import Algebra, Symmetry, euclidean, multilinear_maps, pin, symmetry_of

E, P, C = Algebra(3), Algebra(3, 0, 1), Algebra(4, 1, 0, ("e1", "e2", "e3", "e+", "e-"))
NAN, INF = float("nan"), float("inf")
full = torch.full

SIGNATURES = {
    "negative": (lambda: Algebra(-1), r"p=-1 must be a non-negative integer"),
    "negative q": (lambda: Algebra(1, -2), r"q=-2 must be"),
    "fraction": (lambda: Algebra(1, 0, 0.5), r"r=0\.5 must be"),
    "text": (lambda: Algebra("3"), r"p='3' must be"),
    "bool": (lambda: Algebra(True), r"p=True must be"),
    "large": (lambda: Algebra(13), r"n=13 generators and 2\^13 blades.* need 3 GiB\. Use n <= 12"),
    "enormous": (lambda: Algebra(20, 10, 5), r"n=35 .* need [\d,]+ GiB"),
    "astronomic": (lambda: Algebra(10**9), r"need 3 \* 2\^1999999974 GiB"),
    "too few names": (lambda: Algebra(2, names=("e1",)), r"names=\('e1',\) must be 2 different names"),
    "names twice": (lambda: Algebra(2, names=("e1", "e1")), r"names=\('e1', 'e1'\) must be 2 different"),
    "names not text": (lambda: Algebra(2, names=(1, 2)), r"names=\(1, 2\) must be"),
    "names without e": (lambda: Algebra(1, names=("x1",)), r"such as 'e1'"),
}

BLADES = {
    "unknown": (lambda: P["e7"], r"blade='e7' is not in Algebra\(3, 0, 1\); near matches: .*e\d"),
    "near": (lambda: C["e4"], r"near matches: "),
    "twice": (lambda: P["e11"], r"blade='e11' is not in .*near matches: .*e1"),
    "not text": (lambda: P[3], r"blade='3' is not in"),
    "index": (lambda: P.index("f12"), r"blade='f12'.*near matches: .*e12"),
    "odd permutation": (lambda: P.index("e21"), r"blade='e21' is -e12; ask for index\('e12'\)"),
    "grade": (lambda: P.grade(P["1"], 5), r"k=5 is not a grade .* use 0 to 4"),
    "negative grade": (lambda: P.grade(P["1"], -1), r"k=-1 is not a grade"),
    "product": (lambda: P.product("inner", P["1"], P["1"]), r"product='inner' is unknown; choose from 'geometric'"),
    "format a batch": (lambda: P.format(torch.zeros(2, 16)), r"shape \(2, 16\); format one multivector"),
    "components": (lambda: P.vector(torch.zeros(3)), r"components has shape \(3,\).*needs \(\.\.\., 4\)"),
    "one component": (lambda: P.vector(torch.ones(1)), r"components has shape \(1,\)"),
}

VALUES = {
    "exp nan": (lambda: E.exp(full((8,), NAN)), r"x contains NaN or infinity; check the data"),
    "inverse inf": (lambda: E.inverse(full((8,), INF)), r"x contains NaN or infinity"),
    "sandwich nan": (lambda: E.sandwich(full((8,), NAN), E["1"]), r"u contains NaN or infinity"),
    "no versor": (lambda: E.sandwich(E["1"] + E["e1"], E["e1"]), r"u=1 \+ e1 mixes even and odd .* product of vectors"),
    "null versor": (lambda: P.sandwich(P["e0"], P["e1"]), r"=e0 has no inverse"),
    "no inverse": (lambda: E.inverse(E["1"] + E["e1"]), r"x=1 \+ e1 has no inverse in Algebra\(3, 0, 0\)"),
    "not a tensor": (lambda: E.reverse([0.0] * 8), r"x has shape list; .*needs a tensor \(\.\.\., 8\)"),
    "integers": (lambda: E.reverse(torch.zeros(8, dtype=torch.int64)), r"x has dtype torch.int64;.*use x\.double\(\)"),
    "scalar tensor": (lambda: E.reverse(torch.tensor(1.0)), r"x has shape \(\)"),
}

SYMMETRIES = {
    "generator is a vector": (lambda: Symmetry(E, [E["e1"]]), r"generators contains e1, .*not a bivector; use grade-2"),
    "mixed generator": (lambda: Symmetry(E, [E["e12"] + E["1"]]), r"generators contains 1 \+ e12"),
    "generator shape": (lambda: Symmetry(E, [P["e12"]]), r"generators contains shape \(16,\);.*\(8,\)"),
    "one generator bare": (lambda: Symmetry(E, E["e12"]), r"generators contains shape \(\);.*\(8,\)"),
    "generator nan": (lambda: Symmetry(E, [NAN * E["e12"]]), r"generators contains NaN or infinity"),
    "mirror mixed": (lambda: Symmetry(E, mirrors=[E["1"] + E["e1"]]), r"mixes even and odd"),
    "mirror null": (lambda: Symmetry(P, mirrors=[P["e0"]]), r"e0 has no inverse"),
    "mirror nan": (lambda: Symmetry(E, mirrors=[INF * E["e1"]]), r"mirrors contains NaN or infinity"),
    "names": (lambda: Symmetry(E, [E["e12"]], names=["a", "b"]), r"names has 2 entries; give one per .*: 1"),
    "infinity not null": (lambda: euclidean(C, "e1"), r"infinity=e1 squares to 1; it must be null"),
    "infinity negative": (lambda: euclidean(C, C["e-"]), r"infinity=e- squares to -1"),
    "infinity bivector": (lambda: euclidean(C, C["e12"]), r"infinity=e12 is not a vector"),
    "infinity mixed": (lambda: euclidean(P, P["e0"] + P["1"]), r"infinity=1 \+ e0 is not a vector"),
    "infinity shape": (lambda: euclidean(C, P["e0"]), r"infinity has shape \(16,\).*\(32,\)"),
    "infinity nan": (lambda: euclidean(P, NAN * P["e0"]), r"infinity"),
    "infinity name": (lambda: euclidean(P, "e9"), r"blade='e9' is not in"),
    "no mirrors": (lambda: euclidean(Algebra(0, 0, 2)), r"mirrors=True, but no vector .* use mirrors=False"),
    "product": (lambda: pin(E).is_equivariant("cross"), r"product='cross' is unknown"),
    "maps shape": (lambda: symmetry_of(torch.zeros(3, 16, 16), E), r"maps has shape \(3, 16, 16\);.*\(m, 8, 8"),
    "one map bare": (lambda: symmetry_of(torch.eye(8), E), r"maps has shape \(8, 8\);.*output first"),
    "maps nan": (lambda: symmetry_of(full((1, 8, 8), NAN), E), r"maps contains NaN or infinity"),
}

SOLVER = {
    "order zero": (lambda: multilinear_maps(pin(E), 0), r"order=0 must be an integer >= 1"),
    "order negative": (lambda: multilinear_maps(pin(E), -3), r"order=-3 must be an integer >= 1"),
    "order fraction": (lambda: multilinear_maps(pin(E), 1.5), r"order=1\.5 must be an integer"),
    "order enormous": (lambda: multilinear_maps(pin(E), 40), r"order=40 has [\d,]+ grade blocks .* use a lower order"),
    "block length": (lambda: multilinear_maps(pin(E), 2).block((1, 1)), r"grades=\(1, 1\) must be 2 input grades and one"),
    "block grade": (lambda: multilinear_maps(pin(E), 1).block((1, 4)), r"grades=\(1, 4\).*each 0 to 3"),
    "dense tensor": (lambda: multilinear_maps(pin(E), 5).tensor, r"order=5: .* GiB; use \.block\(grades\)"),
}


def cases(*tables):
    return [pytest.param(*case, id=name) for table in tables for name, case in table.items()]


@pytest.mark.parametrize(("wrong", "message"), cases(SIGNATURES, BLADES, VALUES, SYMMETRIES, SOLVER))
def test_bad_input_is_explained(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()


@pytest.mark.parametrize("name", ["geometric", "outer", "join", "inner", "sandwich"])
def test_wrong_last_dimension_names_the_argument(name):
    operation = getattr(P, name)
    with pytest.raises(ValueError, match=r"(x|u) has shape \(2, 8\); Algebra\(3, 0, 1\) needs a tensor \(\.\.\., 16\)"):
        operation(torch.zeros(2, 8), P["1"])
    with pytest.raises(ValueError, match=r"(x|y) has shape \(32,\); Algebra\(3, 0, 1\) needs a tensor \(\.\.\., 16\)"):
        operation(P["1"], torch.zeros(32))


@pytest.mark.parametrize("name", ["reverse", "involute", "dual", "undual", "exp", "inverse", "left", "right", "commutator"])
def test_wrong_last_dimension_of_unary_operations(name):
    with pytest.raises(ValueError, match=r"x has shape \(3, 5\); Algebra\(3, 0, 1\) needs a tensor \(\.\.\., 16\)"):
        getattr(P, name)(torch.zeros(3, 5))
