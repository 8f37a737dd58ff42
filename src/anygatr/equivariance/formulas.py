"""Formulas for equivariant linear maps: grade projections, products and joins with invariant constants."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from anygatr.algebra import Algebra
from anygatr.equivariance.symmetry import Symmetry

TOLERANCE = 1e-9
MAX_COMPOSED = 4  # beyond so many invariant constants, compositions of products are no longer readable formulas


def named_maps(
    symmetry: Symmetry, solved: Sequence[tuple[tuple[int, int], Tensor]], constants: Sequence[tuple[int, Tensor]]
) -> tuple[list[str], list[Tensor], list[tuple[int, int]]]:
    """A basis of the solved maps that reads as formulas: names, matrices and (in, out) grades.

    `solved` holds the blocks ((in, out), maps on that block), `constants` the invariant multivectors with their grades.
    Formulas are tried from the simplest on and kept while they add to the span; what no formula reaches is appended as
    solved and named by its grades.
    """
    alg = symmetry.algebra
    spans = {pair: _Span(tensor.flatten(1)) for pair, tensor in solved}
    names, matrices, grades = [], [], []
    missing = sum(len(tensor) for _, tensor in solved)
    for name, matrix, (i, o) in _formulas(alg, _named_constants(symmetry, constants)):
        if not missing:
            break
        span = spans.get((i, o))
        if span and span.accept(matrix[alg.slices[o], alg.slices[i]].flatten()):
            names.append(name)
            matrices.append(matrix)
            grades.append((i, o))
            missing -= 1
    for (i, o), span in spans.items():
        for number, row in enumerate(span.remainder(), 1):
            matrix = torch.zeros(alg.dim, alg.dim, dtype=torch.float64)
            matrix[alg.slices[o], alg.slices[i]] = row.reshape(matrix[alg.slices[o], alg.slices[i]].shape)
            names.append(f"map_{number}(<x>_{i})_{o}")
            matrices.append(matrix)
            grades.append((i, o))
    return names, matrices, grades


class _Span:
    """A solved space, and how much of it the maps accepted so far fill."""

    def __init__(self, rows: Tensor):
        self.rows = rows
        self.orthonormal = torch.linalg.qr(rows.T).Q.T
        self.filled = rows.new_zeros(0, rows.shape[1])

    def accept(self, row: Tensor) -> bool:
        """Take a vector that lies in the space and is independent of those taken before."""
        size = row.norm()
        if len(self.filled) == len(self.rows) or size <= TOLERANCE:
            return False
        outside = row - self.orthonormal.T @ (self.orthonormal @ row)
        new = row - self.filled.T @ (self.filled @ row)
        if outside.norm() > TOLERANCE * size or new.norm() <= TOLERANCE * size:
            return False
        self.filled = torch.cat([self.filled, (new / new.norm())[None]])
        return True

    def remainder(self) -> list[Tensor]:
        """Vectors of the solved basis that complete the accepted ones to a basis."""
        return [row for row in self.rows if self.accept(row)]


def _named_constants(symmetry: Symmetry, constants: Sequence[tuple[int, Tensor]]) -> list[tuple[str, int, Tensor]]:
    """The invariants other than 1, vectors first, pseudoscalar last, under the names of the frame (e0, inf) or I."""
    alg, frame = symmetry.algebra, symmetry.frame
    known = {name: frame.multivector(i) for i, name in enumerate(frame.names)}
    known = {name: alg[name] if name[0] == "e" else x for name, x in known.items() if name[0] != "("}
    known["I"] = alg.pseudoscalar
    out = []
    for grade, x in constants:
        if grade == 0:
            continue
        matches = [(n, v) for n, v in known.items() if _parallel(v, x)]
        name, value = matches[0] if matches else (f"({alg.format(x)})", x)
        out.append((name, grade, value))
    return out


def _parallel(a: Tensor, b: Tensor) -> bool:
    return bool((a * b.dot(b) - b * a.dot(b)).norm() <= TOLERANCE * a.norm() * b.norm() ** 2)


Formula = tuple[str, Tensor, tuple[int, int]]


def _formulas(alg: Algebra, constants: list[tuple[str, int, Tensor]]) -> Iterator[Formula]:
    """Formulas from the simplest on: <x>_k; c <x>_k; c <c <x>_k>_j; products of these with other constants; joins."""
    identity = torch.eye(alg.dim, dtype=torch.float64)
    projections = [(f"<x>_{k}", identity * (alg.grades == k).double()[:, None], (k, k)) for k in range(alg.n + 1)]
    yield from projections
    once = [f for c in constants for f in _multiplied(alg, c, projections, left=True)]
    yield from sorted(once, key=lambda f: _paper_order(f, constants))
    if len(constants) <= MAX_COMPOSED:
        twice = [f for c in constants for f in _multiplied(alg, c, once, left=True)]
        yield from twice
        yield from (f for c in constants for f in _multiplied(alg, c, twice, left=True))
    yield from (f for c in constants for f in _multiplied(alg, c, projections, left=False))
    one = ("1", 0, alg["1"])
    yield from (f for c in (one, *constants) for f in _joined(alg, c, projections))


def _paper_order(formula: Formula, constants: list[tuple[str, int, Tensor]]) -> tuple[int, bool]:
    """For each constant vector first what lowers the grade, then what raises it."""
    name, _, (i, o) = formula
    number = next(n for n, (c, _, _) in enumerate(constants) if c in name)
    return number, constants[number][1] == 1 and o > i


def _multiplied(alg: Algebra, constant: tuple[str, int, Tensor], formulas: list[Formula], left: bool) -> Iterator[Formula]:
    name, _, value = constant
    product = alg.left(value) if left else alg.right(value)
    for inner, matrix, (i, _) in formulas:
        text = f"{name} {inner}" if left else f"{inner} {name}"
        yield from _by_grade(alg, text, product @ matrix, i)


def _joined(alg: Algebra, constant: tuple[str, int, Tensor], formulas: list[Formula]) -> Iterator[Formula]:
    name, _, value = constant
    matrix_of_join = alg.join(value, torch.eye(alg.dim, dtype=torch.float64)).T
    for inner, matrix, (i, _) in formulas:
        yield from _by_grade(alg, f"{name} v {inner}", matrix_of_join @ matrix, i)


def _by_grade(alg: Algebra, text: str, matrix: Tensor, i: int) -> Iterator[Formula]:
    """The homogeneous parts of a map: without brackets where there is only one."""
    parts = [(o, matrix * (alg.grades == o).double()[:, None]) for o in range(alg.n + 1)]
    parts = [(o, part) for o, part in parts if part.abs().max() > TOLERANCE]
    for o, part in parts:
        yield (text if len(parts) == 1 else f"<{text}>_{o}"), part, (i, o)
