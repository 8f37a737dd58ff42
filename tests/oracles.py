"""Other ways to find equivariant maps, clear and slow: sampled group elements, plain null spaces, characters.

Characters: a map of grades (i1, ..., il; o) is an invariant of the product of exterior powers of C^n, one per grade. For the
orthogonal groups those are counted by weights of a maximal torus, in integers. The Euclidean group of conformal space is the
stabiliser of a null vector, and functions on the null cone are the harmonic polynomials, each degree once; so its invariants
are counted by how often the harmonics of every degree occur.
"""

from collections import Counter
from collections.abc import Sequence
from functools import cache, reduce
from itertools import combinations

import numpy as np
import scipy.sparse as sparse
import torch

from anygatr import Symmetry

Weights = Counter[tuple[int, ...]]


def kernel(gram: np.ndarray) -> np.ndarray:
    """Orthonormal columns spanning the kernel, which must be well separated from the rest."""
    values, vectors = np.linalg.eigh(gram)
    zero = values < 1e-9 * values.max(initial=1.0)
    assert not zero.any() or zero.all() or values[~zero][0] > 1e-4, "the oracle itself cannot decide the rank"
    return vectors[:, zero]


def sampled_linear_maps(sym: Symmetry, rng: torch.Generator, samples: int = 8) -> np.ndarray:
    """Columns spanning all W, flattened, with rho(g) W = W rho(g) for sampled g: the paper's way, on the whole algebra."""
    k = sym.algebra.dim
    eye, gram = np.eye(k), np.zeros((k**2, k**2))
    for rho in sym.algebra.action(sym.sample(samples, rng, scale=0.7)).numpy():
        constraint = np.kron(rho, eye) - np.kron(eye, rho.T)
        gram += constraint.T @ constraint
    return kernel(gram)


def block_gram(sym: Symmetry, grades: tuple[int, ...], diagonal: Sequence[torch.Tensor] = ()) -> np.ndarray:
    """A^T A of all equations on the maps of one block (output axis first, as in `Basis.block`).

    `diagonal`: elements of the group that only change signs of blades; components they forbid are left out.
    """
    alg = sym.algebra
    slots = [alg.slices[k] for k in (grades[-1], *grades[:-1])]
    sizes = [s.stop - s.start for s in slots]
    total = int(np.prod(sizes))

    def on_slots(matrix: torch.Tensor) -> list[np.ndarray]:
        return [matrix[s, s].numpy() for s in slots]

    def lifted(slot: int, matrix: np.ndarray) -> sparse.csc_matrix:
        """1 x ... x matrix x ... x 1 on all slots."""
        left, right = int(np.prod(sizes[:slot])), int(np.prod(sizes[slot + 1 :]))
        r, c = np.nonzero(matrix)
        a, b = np.arange(left)[:, None, None] * sizes[slot], np.arange(right)
        rows, columns = (((a + index[:, None]) * right + b).ravel() for index in (r, c))
        values = np.broadcast_to(matrix[r, c][:, None], (left, len(r), right)).ravel()
        return sparse.csc_matrix((values, (rows, columns)), shape=(total, total))

    keep = np.ones(total, dtype=bool)
    for u in diagonal:
        keep &= reduce(np.kron, [np.diag(m) for m in on_slots(alg.action(u))]) > 0
    equations = []
    for b in sym.generators:
        out, *inputs = on_slots(alg.commutator(b))
        equations.append(sum((lifted(s, -d.T) for s, d in enumerate(inputs, 1)), lifted(0, out)))
    for m in sym.mirrors:
        out, *inputs = on_slots(alg.action(m))
        moved = (lifted(s, np.linalg.inv(a).T) for s, a in enumerate(inputs, 1))
        equations.append(reduce(lambda x, y: y @ x, moved, lifted(0, out)) - sparse.identity(total, format="csc"))
    gram = np.zeros((keep.sum(),) * 2)
    for equation in equations:
        kept = equation[:, keep]
        gram += (kept.T @ kept).toarray()
    return gram


def spin_count(n: int, grades: tuple[int, ...]) -> int:
    """How many invariants so(n) has in the product of the exterior powers with these grades."""
    return _multiplicity(_product(n, grades), n, 0)


def motion_count(n: int, grades: tuple[int, ...], mirrors: bool = False) -> int:
    """The same for the stabiliser of a null vector in SO(n), or in O(n) for odd n.

    In odd dimension O(n) is SO(n) and -1, which acts by the parity of the grades and of the degree.
    """
    weights = _product(n, grades)
    degrees = range(sum(grades) + 1)
    return sum(_multiplicity(weights, n, k) for k in degrees if not mirrors or (k + sum(grades)) % 2 == 0)


def _multiplicity(weights: Weights, n: int, degree: int) -> int:
    """How often the harmonics of a degree occur: the coefficient of their highest weight in character * denominator."""
    rank = n // 2
    if not rank:
        return weights[()] if degree == 0 else 0
    total: Weights = Counter({(degree, *(0,) * (rank - 1)): 1})
    for root in _positive_roots(n):
        for w, c in list(total.items()):
            total[tuple(a + b for a, b in zip(w, root, strict=True))] -= c
    return sum(c * weights[w] for w, c in total.items())


def _positive_roots(n: int) -> list[tuple[int, ...]]:
    rank = n // 2
    unit = np.eye(rank, dtype=int)
    roots = [unit[i] + s * unit[j] for i, j in combinations(range(rank), 2) for s in (1, -1)]
    return [tuple(map(int, r)) for r in (*roots, *(unit if n % 2 else ()))]


@cache
def _exterior_power(n: int, k: int) -> Weights:
    """Weights of the k-vectors of C^n."""
    rank = n // 2
    unit = np.eye(rank, dtype=int).reshape(rank, rank)
    vectors = [*unit, *(-unit), *([np.zeros(rank, dtype=int)] if n % 2 else [])]
    zero = np.zeros(rank, dtype=int)
    return Counter(tuple(map(int, sum(chosen, zero))) for chosen in combinations(vectors, k))


@cache
def _product(n: int, grades: tuple[int, ...]) -> Weights:
    if tuple(sorted(grades)) != grades:
        return _product(n, tuple(sorted(grades)))
    if not grades:
        return Counter({(0,) * (n // 2): 1})
    out: Weights = Counter()
    for a, x in _product(n, grades[:-1]).items():
        for b, y in _exterior_power(n, grades[-1]).items():
            out[tuple(i + j for i, j in zip(a, b, strict=True))] += x * y
    return out
