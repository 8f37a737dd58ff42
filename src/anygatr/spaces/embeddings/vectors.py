"""Scalars, pseudoscalars, free vectors and momenta as multivectors and back: what has no place."""

from jaxtyping import Float
from torch import Tensor

from anygatr.spaces.coordinates import Coordinates, Multivector, coordinates, finite
from anygatr.spaces.space import HasSpace


def embed_scalar(geo: HasSpace, s: Float[Tensor, "*batch"]) -> Multivector:
    """The scalar s."""
    return finite(s, "s").unsqueeze(-1) * geo.space.tables.one.to(s)


def extract_scalar(geo: HasSpace, mv: Multivector) -> Float[Tensor, "*batch"]:
    """The scalar part."""
    return geo.space.blades(mv)[..., 0]


def embed_pseudoscalar(geo: HasSpace, s: Float[Tensor, "*batch"]) -> Multivector:
    """The pseudoscalar s I, which changes sign under mirrors."""
    return finite(s, "s").unsqueeze(-1) * geo.space.tables.pseudoscalar.to(s)


def extract_pseudoscalar(geo: HasSpace, mv: Multivector) -> Float[Tensor, "*batch"]:
    """The coefficient of the pseudoscalar."""
    return geo.space.blades(mv)[..., -1]


def embed_vector(geo: HasSpace, v: Coordinates) -> Multivector:
    """The free vector: v where infinity is zero, ideal ^ v elsewhere, which translations leave alone."""
    return coordinates(v, "v", len(geo.space.axes)) @ geo.space.tables.vector.to(v)


def extract_vector(geo: HasSpace, mv: Multivector) -> Tensor:
    """The translation-invariant vector of any multivector: the e_i coefficients, those of o ^ e_i where o exists.

    Where infinity is not zero this is not the inverse of `embed_vector`: no translation-invariant inverse exists.
    """
    space = geo.space
    return space.components(space.read(space.carrier(mv)))


def embed_momentum(geo: HasSpace, p: Coordinates) -> Multivector:
    """The four-momentum (E, p), or any other vector of spacetime."""
    geo.require("momentum")
    return embed_vector(geo, p)


def extract_momentum(geo: HasSpace, mv: Multivector) -> Tensor:
    """The four-momentum (E, p)."""
    geo.require("momentum")
    return extract_vector(geo, mv)
