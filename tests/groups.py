"""The spaces, groups, point embeddings and motions the tests run over, written by hand from the definitions."""

from dataclasses import dataclass

import torch
from torch import Tensor

from anygatr import Algebra, Symmetry, euclidean

SPACES = ("E", "P", "C")
DIMENSIONS = (1, 2, 3)


def algebra(space: str, d: int) -> Algebra:
    names = (*(f"e{i}" for i in range(1, d + 1)), "e+", "e-")
    return {"E": Algebra(d), "P": Algebra(d, 0, 1), "C": Algebra(d + 1, 1, 0, names)}[space]


def infinity(space: str, d: int) -> Tensor:
    alg = algebra(space, d)
    if space == "P":
        return -alg["e0"]
    return alg["e-"] - alg["e+"] if space == "C" else torch.zeros(alg.dim, dtype=torch.float64)


def origin(d: int) -> Tensor:
    """The conformal point at the origin, o with <o, inf> = -1."""
    alg = algebra("C", d)
    return (alg["e-"] + alg["e+"]) / 2


def group(space: str, d: int, mirrors: bool = True) -> Symmetry:
    return euclidean(algebra(space, d), infinity(space, d), mirrors)


def vector(space: str, x: Tensor) -> Tensor:
    """The vector with components x on e1, ..., ed."""
    d = x.shape[-1]
    return sum(x[..., i, None] * algebra(space, d)[f"e{i + 1}"] for i in range(d))


def point(space: str, x: Tensor) -> Tensor:
    """The point at x: E x; P the meet of the planes e_i - x_i e0; C o + x + |x|^2/2 inf."""
    d = x.shape[-1]
    alg = algebra(space, d)
    if space == "E":
        return vector(space, x)
    if space == "C":
        return origin(d) + vector(space, x) + x.square().sum(-1, keepdim=True) / 2 * infinity("C", d)
    ideal, finite = {1: (("e0",), "e1"), 2: (("e20", "e01"), "e12"), 3: (("e032", "e013", "e021"), "e123")}[d]
    sign = -1 if d == 1 else 1
    return sum(sign * x[..., i, None] * alg[blade] for i, blade in enumerate(ideal)) + alg[finite]


@dataclass
class Motion:
    """x -> Q x + t, with Q a product of reflections in the unit normals."""

    normals: Tensor  # (number, d)
    translation: Tensor  # (d,)

    @property
    def matrix(self) -> Tensor:
        out = torch.eye(len(self.translation), dtype=torch.float64)
        for n in self.normals:
            out = out - 2 * (out @ n).outer(n)
        return out

    @property
    def odd(self) -> bool:
        return len(self.normals) % 2 == 1

    def versor(self, space: str) -> Tensor:
        """(1 + inf t/2) n1 n2 ...: reflections first, then the translation."""
        d = len(self.translation)
        alg = algebra(space, d)
        out = alg["1"] + alg.geometric(infinity(space, d), vector(space, self.translation)) / 2
        for n in self.normals:
            out = alg.geometric(out, vector(space, n))
        return out


def motion(d: int, reflections: int, rng: torch.Generator) -> Motion:
    normals = torch.randn(reflections, d, generator=rng, dtype=torch.float64)
    return Motion(torch.nn.functional.normalize(normals, dim=-1), torch.randn(d, generator=rng, dtype=torch.float64))
