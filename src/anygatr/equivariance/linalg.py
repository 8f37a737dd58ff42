"""Rank decisions in float64: null spaces with an asserted spectral gap, and echelon forms with small rational entries."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

ZERO, NONZERO = 1e-10, 1e-5  # a Gram eigenvalue, relative to the largest, is below the one or above the other


def null_space(gram: Array, scale: float = 0.0) -> Array:
    """Orthonormal columns spanning the kernel of a positive semi-definite matrix A^T A.

    Eigenvalues are judged against the larger of the largest one and `scale`: where the equations have a known size, a
    matrix of mere rounding errors has rank zero. Raises ArithmeticError when an eigenvalue lies between `ZERO` and
    `NONZERO`: then the rank is not decided.
    """
    size = gram.shape[0]
    if size == 0 or not gram.any():
        return np.eye(size)
    values, vectors = np.linalg.eigh(gram)
    relative = values / max(values[-1], scale)
    undecided = relative[(relative > ZERO) & (relative < NONZERO)]
    if undecided.size:
        raise ArithmeticError(
            f"no spectral gap: {undecided.size} of {size} relative eigenvalues between {ZERO:g} and {NONZERO:g} "
            f"(the first is {undecided[0]:.1e}); rescale the generators to comparable size"
        )
    return vectors[:, relative <= ZERO]


def rank(rows: Array) -> int:
    """The rank of a matrix, with the same gap asserted."""
    if rows.size == 0:
        return 0
    gram = rows @ rows.T if rows.shape[0] <= rows.shape[1] else rows.T @ rows
    return gram.shape[0] - null_space(gram).shape[1]


def echelon(rows: Array, tolerance: float = 1e-9) -> Array:
    """The reduced row echelon form without its zero rows: the basis of a row space with ones at its pivots."""
    out = np.array(rows, dtype=np.float64)
    height, width = out.shape
    top = 0
    for column in range(width):
        if top == height:
            break
        pivot = top + int(np.argmax(np.abs(out[top:, column])))
        if abs(out[pivot, column]) <= tolerance:
            continue
        out[[top, pivot]] = out[[pivot, top]]
        out[top] /= out[top, column]
        others = np.flatnonzero(np.abs(out[:, column]) > 0)
        others = others[others != top]
        out[others] -= np.outer(out[others, column], out[top])
        top += 1
    out = out[:top]
    out[np.abs(out) < tolerance] = 0
    return out
