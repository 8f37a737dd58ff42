"""The pieces that objects are written down in: how many columns each has, how it moves, and how to draw one at random."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from anygatr.spaces.space import Space

Pieces = tuple[Tensor, ...]


def stay(space: Space, x: Tensor, matrix: Tensor, translation: Tensor) -> Tensor:
    """What no motion changes."""
    return x


def turn(space: Space, x: Tensor, matrix: Tensor, translation: Tensor) -> Tensor:
    """A direction: x -> M x."""
    return x @ matrix.T


def carry(space: Space, x: Tensor, matrix: Tensor, translation: Tensor) -> Tensor:
    """A position: x -> M x + t."""
    return x @ matrix.T + translation


def mirror(space: Space, x: Tensor, matrix: Tensor, translation: Tensor) -> Tensor:
    """What mirrors change the sign of: x -> det(M) x."""
    return torch.linalg.det(matrix) * x


def conjugate(space: Space, x: Tensor, matrix: Tensor, translation: Tensor) -> Tensor:
    """A rotation: R -> M R M^-1. Its axis is an axial vector."""
    m = matrix[-space.dim :, -space.dim :]
    sign = torch.linalg.det(m)
    return sign * x if space.dim == 2 else torch.cat([sign * x[..., :3] @ m.T, x[..., 3:]], -1)


def turn_in_spacetime(space: Space, x: Tensor, matrix: Tensor, translation: Tensor) -> Tensor:
    """A four-momentum (E, p): by the Lorentz matrix where there is time, p alone elsewhere."""
    return x @ matrix.T if space.time is not None else torch.cat([x[..., :1], x[..., 1:] @ matrix.T], -1)


def anything(space: Space, x: Tensor) -> Tensor:
    """Normal deviates as they are."""
    return x


def positive(space: Space, x: Tensor) -> Tensor:
    """Their absolute values."""
    return x.abs()


def one_of_two(space: Space, x: Tensor) -> Tensor:
    """Codes 0 and 1."""
    return (x > 0).to(x)


def unit(space: Space, x: Tensor) -> Tensor:
    """Quaternions of length one; angles as they are."""
    return x if space.dim == 2 else torch.nn.functional.normalize(x, dim=-1)


@dataclass(frozen=True)
class Piece:
    """One piece of an object. `size` says what it is: a number, a vector of space, one of spacetime, or a rotation."""

    size: Literal["number", "vector", "four-vector", "rotation"]
    move: Callable[[Space, Tensor, Tensor, Tensor], Tensor]
    draw: Callable[[Space, Tensor], Tensor] = anything
    placed: bool = False
    """Whether it depends on where coordinates are measured from."""

    def width(self, dim: int, axes: int) -> int:
        """How many columns it has in R^dim, described by that many axes (one more where there is time)."""
        return {"number": 1, "vector": axes, "four-vector": dim + 1, "rotation": 1 if dim == 2 else 4}[self.size]

    def is_number(self, dim: int) -> bool:
        """Whether it is a single number, which has no axis of its own."""
        return self.size == "number" or (self.size == "rotation" and dim == 2)


PIECES: dict[str, Piece] = {
    "scalar": Piece("number", stay),
    "code": Piece("number", stay, one_of_two),
    "radius": Piece("number", stay, positive),
    "pseudoscalar": Piece("number", mirror),
    "vector": Piece("vector", turn),
    "point": Piece("vector", carry, placed=True),
    "shift": Piece("vector", turn, placed=True),  # of x -> R x + shift; where R is not about the origin, more than turned
    "rotation": Piece("rotation", conjugate, unit),
    "momentum": Piece("four-vector", turn_in_spacetime),
}
