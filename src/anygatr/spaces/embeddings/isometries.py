"""Any element of E(d), given by its matrix and translation, as a versor."""

import torch
from jaxtyping import Float
from torch import Tensor

from anygatr.spaces.embeddings.versors import translator
from anygatr.spaces.space import HasSpace, Space


def transform(
    geo: HasSpace, matrix: Float[Tensor, "d d"], translation: Float[Tensor, " d"] | None = None
) -> Float[Tensor, " k"]:
    """The float64 versor of x -> matrix x + translation, for any matrix that preserves the metric of space.

    `geo.symmetry.act(versor, mv)` applies it. Where there is no infinity translations act trivially, and this one
    is ignored. Where there is time a d x d matrix moves space alone, a (d+1) x (d+1) one is a Lorentz matrix.
    """
    space = geo.space
    shift = torch.zeros(len(space.axes)) if translation is None else translation
    m, t = on_axes(geo, *(torch.as_tensor(x).detach().double().cpu() for x in (matrix, shift)))
    _check_orthogonal(space, m)
    versor = space.algebra["1"]
    for u in reflections(m, space.base.squares):
        versor = space.algebra.geometric(versor, space.lift(space.base.vector(u)))
    return space.algebra.geometric(translator(space, space.vector(t, "translation")), versor)


def on_axes(geo: HasSpace, matrix: Tensor, translation: Tensor) -> tuple[Tensor, Tensor]:
    """A motion of space alone as one of space and time; any other as it is."""
    space = geo.space
    if space.time is None:
        return matrix, translation
    place, size = [i for i, axis in enumerate(space.axes) if axis != space.time], len(space.axes)
    whole, shift = torch.eye(size).to(matrix), torch.zeros(size).to(translation)
    if matrix.shape == (space.dim, space.dim):
        whole[torch.tensor(place)[:, None], torch.tensor(place)] = matrix
        matrix = whole
    if translation.shape == (space.dim,):
        shift[place] = translation
        translation = shift
    return matrix, translation


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


def _check_orthogonal(space: Space, m: Tensor) -> None:
    size = len(space.axes)
    if m.shape != (size, size):
        raise ValueError(f"matrix has shape {tuple(m.shape)}; geometry {space.name!r} needs ({size}, {size})")
    metric = torch.diag(torch.tensor(space.base.squares, dtype=torch.float64))
    defect = float((m.T @ metric @ m - metric).abs().max())
    if not defect <= 1e-5 * max(1.0, float(m.square().max())):
        raise ValueError(
            f"matrix is not orthogonal: M^T g M differs from the metric g by {defect:.1e}; "
            "orthogonalise it, e.g. torch.linalg.qr(matrix).Q"
        )
