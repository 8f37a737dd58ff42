"""Elements of a geometry's group to test with: one for each generator and mirror, on multivectors and on coordinates."""

from dataclasses import dataclass

import torch
from torch import Tensor

from anygatr.spaces.geometry import Geometry


@dataclass(frozen=True)
class Motion:
    """One element of the group: its name, its versor and, where it moves coordinates, its matrix and translation."""

    name: str
    versor: Tensor
    matrix: Tensor | None = None
    translation: Tensor | None = None


def act(geo: Geometry, versor: Tensor, x: Tensor, layout: str) -> Tensor:
    """The group's action in float64 on multivectors of a layout.

    "tokens": blades last, the algebra's; "blades": blades first, those of the stream.
    """
    matrix = geo.algebra.action(versor)
    if layout == "blades":
        return torch.einsum("ij,j...->i...", geo.basis.of(matrix), x.double())
    return x.double() @ matrix.T


def versors(geo: Geometry, scale: float, seed: int) -> list[Motion]:
    """One element for each generator, of angle about 1 and length `scale`, one for each mirror, and one random product."""
    sym, alg = geo.symmetry, geo.algebra
    count = len(sym.generators)
    motions = []
    for name, b in zip(sym.names, sym.generators, strict=False):
        null = float(alg.geometric(b, b).abs().max()) < 1e-12
        motions.append(Motion(name, alg.exp(b * (scale if null else 0.6) / 2)))
    motions += [Motion(name, m) for name, m in zip(sym.names[count:], sym.mirrors, strict=True)]
    return [*motions, Motion("random", sym.sample(1, torch.Generator().manual_seed(seed))[0])]


def rigid_motions(geo: Geometry, scale: float, seed: int) -> tuple[list[Motion], list[str]]:
    """A rotation in each plane, a translation along each axis, a mirror where points have no orientation; then all."""
    d, generator = geo.dim, torch.Generator().manual_seed(seed)
    eye, zero = torch.eye(d, dtype=torch.float64), torch.zeros(d, dtype=torch.float64)
    found: list[tuple[str, Tensor, Tensor]] = []
    everything = eye
    for i in range(d):
        for j in range(i):
            turn = eye.clone()
            c, s = torch.tensor(0.6).double().cos(), torch.tensor(0.6).double().sin()
            turn[i, i], turn[j, j], turn[i, j], turn[j, i] = c, c, s, -s
            found.append((f"rotation {j + 1}{i + 1}", turn, zero))
            everything = everything @ turn
    if "point" in geo.kinds:
        found += [(f"translation {i + 1}", eye, scale * eye[i]) for i in range(d)]
    notes = []
    flip = eye.clone()
    flip[0, 0] = -1
    if len(geo.symmetry.mirrors) and _mirrors_coordinates(geo, flip):
        found.append(("mirror 1", flip, zero))
        everything = everything @ flip
    elif len(geo.symmetry.mirrors):
        notes.append(
            f"mirrors are not claimed for coordinates: points of {geo.name!r} change sign under them; multivectors do follow"
        )
    shift = scale * torch.randn(d, generator=generator, dtype=torch.float64)
    found.append(("all at once", everything, shift if "point" in geo.kinds else zero))
    return [Motion(name, geo.transform(matrix, t), matrix, t) for name, matrix, t in found], notes


def inside(geo: Geometry, motion: Motion) -> Tensor:
    """The versor that the layers behind an origin see: the motion without its translation."""
    if motion.matrix is None:
        return motion.versor
    return geo.transform(motion.matrix, torch.zeros(geo.dim, dtype=torch.float64))


def _mirrors_coordinates(geo: Geometry, flip: Tensor) -> bool:
    """Whether embedding a mirrored point gives the mirrored embedded point."""
    if "point" not in geo.kinds:
        return True
    x = torch.linspace(0.3, 0.9, len(geo.axes), dtype=torch.float64)
    mirrored = geo.symmetry.act(geo.transform(flip, torch.zeros(geo.dim, dtype=torch.float64)), geo.embed_point(x))
    flipped = torch.cat([x[: len(geo.axes) - geo.dim], flip @ x[-geo.dim :]])  # time, if there is one, comes first
    return bool(torch.allclose(geo.embed_point(flipped), mirrored))
