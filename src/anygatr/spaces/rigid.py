"""Rigid motions as versors and back: rotations, translations, reflections, motors, and any element of E(d).

A rotation is a rotor R of space, a translation by t is 1 + infinity t / 2, a motor is their product: x -> R x + t.
"""

from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from anygatr.spaces.objects import Objects
from anygatr.spaces.space import Coordinates, Multivector, coordinates, finite, nonzero


class Rigid(Objects):
    """The embeddings of rigid motions and their inverses."""

    def embed_rotation(self, rotation: Float[Tensor, "..."]) -> Multivector:
        """The rotor cos(a/2) - sin(a/2) B: from a quaternion (x, y, z, w) in 3D, an angle of shape (...,) in 2D."""
        return self.lift(self._rotor(rotation))

    def extract_rotation(self, mv: Multivector) -> Tensor:
        """The unit quaternion (x, y, z, w) in 3D, the angle in (-pi, pi] in 2D."""
        self.require("rotation")
        rotor = self.read(mv)
        w, xyz = rotor[..., :1], -self._square_of_axes * (rotor @ self._turns.to(mv).T)
        if self.dim == 2:
            return torch.atan2(2 * w * xyz, w.square() - xyz.square()).squeeze(-1)
        q = torch.cat([xyz, w], dim=-1)
        return q / q.norm(dim=-1, keepdim=True).clamp(min=1e-12)

    def embed_translation(self, t: Coordinates) -> Multivector:
        """The translator 1 + infinity t / 2."""
        self.require("translation")
        return self._translator(self._vector(t, "t"))

    def extract_translation(self, mv: Multivector) -> Tensor:
        """The displacement of a translator of any weight."""
        self.require("translation")
        return 2 * self._components(self.read_ideal(mv)) / nonzero(self.read(mv)[..., :1])

    def embed_reflection(self, normal: Coordinates, point: Coordinates | None = None) -> Multivector:
        """The reflection in the plane through `point` (default: the coordinate origin), as its unit plane."""
        self.require("reflection")
        n = self._vector(normal, "normal")
        size = self._square(n).abs().sqrt()
        if not torch.compiler.is_compiling() and bool((size == 0).any()):
            raise ValueError("normal has zero length, so it reflects nothing; pass the direction orthogonal to the mirror")
        return self.lift(n / size) if point is None else self.embed_plane(normal / size, point)

    def extract_reflection(self, mv: Multivector) -> tuple[Tensor, Tensor]:
        """The unit normal, and the point of the mirror nearest to the coordinate origin."""
        plane = self.algebra.grade(mv, 1)
        n = self.read(plane)
        size = nonzero(self._square(n).abs().sqrt())
        return self._components(n / size), self._foot(plane, None)

    def embed_motor(self, rotation: Float[Tensor, "..."], t: Coordinates) -> Multivector:
        """The rigid motion x -> R x + t as the versor (1 + infinity t / 2) R."""
        self.require("motor")
        rotor, shift = self._rotor(rotation), self._vector(t, "t")
        return self.lift(rotor) + self.lift_ideal(self.split.space.geometric(shift, rotor)) / 2

    def extract_motor(self, mv: Multivector) -> tuple[Tensor, Tensor]:
        """The rotation and the translation of a motor of any weight."""
        self.require("motor")
        rotor = self.read(mv) * (self.split.space.grades % 2 == 0).to(mv)
        return self.extract_rotation(mv), 2 * self._components(self._divide(self.read_ideal(mv), rotor))

    def transform(self, matrix: Float[Tensor, "d d"], translation: Float[Tensor, " d"] | None = None) -> Float[Tensor, " k"]:
        """The float64 versor of x -> matrix x + translation, for any matrix that preserves the metric of space.

        `geo.symmetry.act(versor, mv)` applies it. Where there is no infinity translations act trivially, and this one
        is ignored. Where there is time a d x d matrix moves space alone, a (d+1) x (d+1) one is a Lorentz matrix.
        """
        shift = torch.zeros(len(self.axes)) if translation is None else translation
        m, t = self.on_axes(*(torch.as_tensor(x).detach().double().cpu() for x in (matrix, shift)))
        self._check_orthogonal(m)
        versor = self.algebra["1"]
        for u in reflections(m, self.split.space.squares):
            versor = self.algebra.geometric(versor, self.lift(self.split.space.vector(u)))
        return self.algebra.geometric(self._translator(self._vector(t, "translation")), versor)

    def on_axes(self, matrix: Tensor, translation: Tensor) -> tuple[Tensor, Tensor]:
        """A motion of space alone as one of space and time; any other as it is."""
        if self.time is None:
            return matrix, translation
        place, size = [i for i, axis in enumerate(self.axes) if axis != self.time], len(self.axes)
        whole, shift = torch.eye(size).to(matrix), torch.zeros(size).to(translation)
        if matrix.shape == (self.dim, self.dim):
            whole[torch.tensor(place)[:, None], torch.tensor(place)] = matrix
            matrix = whole
        if translation.shape == (self.dim,):
            shift[place] = translation
            translation = shift
        return matrix, translation

    def rotate(self, rotation: Float[Tensor, "..."], x: Coordinates) -> Tensor:
        """The vector x turned by a rotation: R x R^-1."""
        space, rotor = self.split.space, self._rotor(rotation)
        return self._components(space.geometric(space.geometric(rotor, self._vector(x, "x")), space.reverse(rotor)))

    def _rotor(self, rotation: Tensor) -> Tensor:
        self.require("rotation")
        if self.dim == 2:
            half = finite(rotation, "rotation").unsqueeze(-1) / 2
            q = torch.cat([half.sin(), half.cos()], dim=-1)
        else:
            q = coordinates(rotation, "rotation", 4)
            size = q.norm(dim=-1, keepdim=True)
            if not torch.compiler.is_compiling() and bool((size == 0).any()):
                raise ValueError("rotation contains a zero quaternion; the identity is (x, y, z, w) = (0, 0, 0, 1)")
            q = q / size
        out = -self._square_of_axes * (q[..., :-1] @ self._turns.to(q))
        return out + q[..., -1:] * self.split.space["1"].to(q)

    def _translator(self, t: Tensor) -> Tensor:
        return self.algebra["1"].to(t) + self.lift_ideal(t) / 2

    @cached_property
    def _turns(self) -> Float[Tensor, "q s"]:
        """The planes of rotation: e12 in 2D; e23, e31, e12 in 3D, the duals of the axes."""
        space = self.split.space
        x = [space[axis] for axis in self.axes if axis != self.time]
        pairs = [(0, 1)] if self.dim == 2 else [(1, 2), (2, 0), (0, 1)]
        return torch.stack([space.outer(x[i], x[j]) for i, j in pairs])

    @property
    def _square_of_axes(self) -> int:
        """+1 or -1: the rotor that turns e1 towards e2 changes sign with the metric of space."""
        return self.split.space.squares[-1]

    def _check_orthogonal(self, m: Tensor) -> None:
        size = len(self.axes)
        if m.shape != (size, size):
            raise ValueError(f"matrix has shape {tuple(m.shape)}; geometry {self.name!r} needs ({size}, {size})")
        metric = torch.diag(torch.tensor(self.split.space.squares, dtype=torch.float64))
        defect = float((m.T @ metric @ m - metric).abs().max())
        if not defect <= 1e-5 * max(1.0, float(m.square().max())):
            raise ValueError(
                f"matrix is not orthogonal: M^T g M differs from the metric g by {defect:.1e}; "
                "orthogonalise it, e.g. torch.linalg.qr(matrix).Q"
            )


def reflections(matrix: Float[Tensor, "n n"], squares: tuple[int, ...]) -> list[Float[Tensor, " n"]]:
    """Unit vectors u1, u2, ... whose reflections, the last applied first, compose to an orthogonal matrix.

    Cartan and Dieudonne: column by column, one reflection takes the image a of the axis e back to e, along a - e; or
    two do, along a + e and then e. As <a - e, a - e> + <a + e, a + e> = 4 <e, e>, the larger of the two is never near
    zero: the identity and its neighbourhood, where a - e vanishes, take the second way.
    """
    metric = torch.tensor(squares, dtype=matrix.dtype)
    rest, out = matrix.clone(), []
    for i, e in enumerate(torch.eye(len(squares), dtype=matrix.dtype)):
        minus, plus = rest[:, i] - e, rest[:, i] + e
        one = (metric * minus * minus).sum().abs() > (metric * plus * plus).sum().abs()
        for u in [minus] if bool(one) else [plus, e]:
            square = (metric * u * u).sum()
            rest = rest - 2 * torch.outer(u, (metric * u) @ rest) / square
            out.append(u / square.abs().sqrt())
    return out
