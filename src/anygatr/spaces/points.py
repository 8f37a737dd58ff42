"""Points, free vectors, momenta, scalars and pseudoscalars as multivectors and back, and the origin of a point cloud."""

from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anygatr.spaces.space import Coordinates, Multivector, Space, absolute, coordinates, finite, nonzero, relative


class Quadratic(NamedTuple):
    """The polynomial constant + sum_i x_i linear_i + sum_ij x_i x_j quadratic_ij."""

    constant: Float[Tensor, " k"]
    linear: Float[Tensor, "d k"]
    quadratic: Float[Tensor, "d d k"]


class Points(Space):
    """The embeddings of points, vectors and scalars and their inverses."""

    def embed_point(self, x: Coordinates, origin: Tensor | None = None, oriented: bool = False) -> Multivector:
        """The point at x; `oriented` gives the one that changes sign under mirrors, where the plain one does not.

        Points of projective geometry are always oriented: embed_point(M x) = -act(M, embed_point(x)) for a mirror M.
        """
        self.require("oriented_point" if oriented else "point")
        x, p = relative(coordinates(x, "x", len(self.axes)), origin), self.point_polynomial
        squares = (x.unsqueeze(-1) * x.unsqueeze(-2)).flatten(-2)
        out = p.constant.to(x) + x @ p.linear.to(x) + squares @ p.quadratic.flatten(0, 1).to(x)
        return out @ self._orient.to(out) if oriented else out

    def extract_point(self, mv: Multivector, origin: Tensor | None = None, oriented: bool = False) -> Tensor:
        """The position w / a of a point of weight a, for any multivector; |a| <= 0.001 counts as 0.001."""
        self.require("oriented_point" if oriented else "point")
        mv = self.blades(mv) @ self._unorient.to(mv) if oriented else self.blades(mv)
        linear = self.point_polynomial.linear.to(mv)
        position = mv @ (linear / linear.square().sum(-1, keepdim=True)).T
        return absolute(position / nonzero(self.point_weight(mv)).unsqueeze(-1), origin)

    def point_weight(self, mv: Multivector) -> Float[Tensor, "*batch"]:
        """The homogeneous weight a of a point, which is 1 for an embedded one; always 1 where points are relative."""
        constant = self.point_polynomial.constant.to(mv)
        if self.point == "relative":
            return torch.ones_like(mv[..., 0])
        return mv @ (constant / constant.square().sum())

    def embed_vector(self, v: Coordinates) -> Multivector:
        """The free vector: v where infinity is zero, ideal ^ v elsewhere, which translations leave alone."""
        return coordinates(v, "v", len(self.axes)) @ self._free.to(v)

    def extract_vector(self, mv: Multivector) -> Tensor:
        """The translation-invariant vector of any multivector: the e_i coefficients, those of o ^ e_i where o exists.

        Where infinity is not zero this is not the inverse of `embed_vector`: no translation-invariant inverse exists.
        """
        return self._components(self.read(self.carrier(mv)))

    def embed_momentum(self, p: Coordinates) -> Multivector:
        """The four-momentum (E, p), or any other vector of spacetime."""
        self.require("momentum")
        return self.embed_vector(p)

    def extract_momentum(self, mv: Multivector) -> Tensor:
        """The four-momentum (E, p)."""
        self.require("momentum")
        return self.extract_vector(mv)

    def embed_scalar(self, s: Float[Tensor, "*batch"]) -> Multivector:
        """The scalar s."""
        return finite(s, "s").unsqueeze(-1) * self.algebra["1"].to(s)

    def extract_scalar(self, mv: Multivector) -> Float[Tensor, "*batch"]:
        """The scalar part."""
        return self.blades(mv)[..., 0]

    def embed_pseudoscalar(self, s: Float[Tensor, "*batch"]) -> Multivector:
        """The pseudoscalar s I, which changes sign under mirrors."""
        return finite(s, "s").unsqueeze(-1) * self.algebra.pseudoscalar.to(s)

    def extract_pseudoscalar(self, mv: Multivector) -> Float[Tensor, "*batch"]:
        """The coefficient of the pseudoscalar."""
        return self.blades(mv)[..., -1]

    def origin(
        self,
        points: Float[Tensor, "*batch n d"],
        weights: Float[Tensor, "*batch n"] | None = None,
        offsets: Int[Tensor, " b"] | None = None,
    ) -> Float[Tensor, "*batch m d"]:
        """The (weighted) mean of each sample, accumulated in float64: one row per sample, (..., 1, d).

        Packed samples, with `offsets`, get one row per token: (N, d).
        """
        x = coordinates(points, "points", len(self.axes)).double()
        if weights is not None and weights.shape != x.shape[:-1]:
            raise ValueError(f"weights has shape {tuple(weights.shape)}; points need one each: {tuple(x.shape[:-1])}")
        w = torch.ones_like(x[..., :1]) if weights is None else finite(weights, "weights").to(x).unsqueeze(-1)
        if offsets is None:
            total, mean = w.sum(-2, keepdim=True), (w * x).sum(-2, keepdim=True)
        else:
            sample = samples(offsets, len(x)).to(x.device)
            zero = x.new_zeros(len(offsets) - 1, 1)
            total = zero.index_add(0, sample, w)[sample]
            mean = zero.expand(-1, x.shape[-1]).index_add(0, sample, w * x)[sample]
        if not torch.compiler.is_compiling() and bool((total == 0).any()):
            raise ValueError("weights of a sample add up to zero, so it has no origin; mask fewer tokens or pass None")
        return (mean / total).to(points.dtype)

    @cached_property
    def point_polynomial(self) -> "Quadratic":
        """The point at x as a polynomial in x: (1 + infinity x / 2) seed (1 - infinity x / 2)."""
        alg, split = self.algebra, self.split
        vectors = split.flat[split.space.slices[1]]
        if self.point == "relative":
            return Quadratic(alg["1"] * 0, vectors, vectors.new_zeros(len(vectors), len(vectors), alg.dim))
        seed = self.o if self.point == "null" else split.flat[-1]
        shift = alg.geometric(self.infinity, vectors) / 2
        linear = alg.geometric(shift, seed) - alg.geometric(seed, shift)
        quadratic = -alg.geometric(alg.geometric(shift[:, None], seed), shift[None])
        return Quadratic(seed, linear, quadratic)

    @cached_property
    def _free(self) -> Float[Tensor, "d k"]:
        vectors = self.split.flat[self.split.space.slices[1]]
        return self.algebra.outer(self.ideal, vectors) if bool(self.infinity.any()) else vectors

    @cached_property
    def _orient(self) -> Float[Tensor, "k k"]:
        """The matrix, on rows, that makes a point odd under mirrors: times the pseudoscalar, unless it is already."""
        seed, mirror = self.point_polynomial.constant, self.algebra[self.axes[-1]]
        odd = bool(self.algebra.sandwich(mirror, seed).allclose(-seed))
        return torch.eye(self.algebra.dim).double() if odd else self.algebra.right(self.algebra.pseudoscalar).T

    @cached_property
    def _unorient(self) -> Float[Tensor, "k k"]:
        return torch.linalg.inv(self._orient)


def samples(offsets: Int[Tensor, " b"], tokens: int) -> Int[Tensor, " n"]:
    """The sample each packed token belongs to, once the offsets have been checked."""
    if not isinstance(offsets, Tensor) or offsets.dim() != 1 or offsets.is_floating_point() or offsets.dtype == torch.bool:
        raise ValueError("offsets must be a 1-dimensional integer tensor (0, n1, n1 + n2, ..., N)")
    if len(offsets) < 2 or int(offsets[0]) != 0 or int(offsets[-1]) != tokens:
        raise ValueError(f"offsets={offsets.tolist()} must start at 0 and end at the number of tokens, {tokens}")
    lengths = offsets.diff()
    if bool((lengths < 1).any()):
        first = int((lengths < 1).nonzero()[0])
        problem = "is empty" if int(lengths[first]) == 0 else "ends before it starts: offsets must increase"
        raise ValueError(f"offsets={offsets.tolist()}: sample {first} {problem}; leave it out")
    return torch.repeat_interleave(torch.arange(len(lengths), device=offsets.device), lengths)
