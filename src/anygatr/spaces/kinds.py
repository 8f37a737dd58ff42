"""Kinds of data: the columns of each, its multivector in a geometry, and what stands for it where there is none.

Where a geometry has no such object, simpler ones say the same relative to the origin: a plane is its normal and its offset,
a line its direction and its nearest point, a sphere its centre and its radius. Positions are taken from the origin on the
way in and given back to it on the way out; everything read is equivariant, whatever multivector it is read from.
"""

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches

import torch
from torch import Tensor

from anygatr.spaces.geometry import Geometry
from anygatr.spaces.space import absolute, nonzero, relative

Pieces = tuple[Tensor, ...]
DRAWS = 16  # random objects that show what a kind fills and what reading it asks for


@dataclass(frozen=True)
class Kind:
    """One kind: its pieces, in the order of its columns, each "vector", "point", "scalar", "rotation" or "space".

    `embed(geo, origin, *pieces)` and `read(geo, origin, mv)` serve geometries that have the object. `divide` turns the
    pieces into those of the kinds in `substitute`, and `unite` turns them back.
    """

    pieces: tuple[str, ...]
    embed: Callable[..., Tensor]
    read: Callable[..., Pieces]
    substitute: tuple[str, ...] = ()
    divide: Callable[..., Pieces] = lambda geo, origin, *pieces: pieces
    unite: Callable[..., Pieces] = lambda geo, origin, *pieces: pieces


def lookup(kind: str) -> Kind:
    """The kind of that name."""
    if kind not in KINDS:
        near = get_close_matches(str(kind), KINDS, n=2, cutoff=0.5)
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
        raise ValueError(f"kind {kind!r} is unknown{hint} Kinds are {', '.join(KINDS)}")
    return KINDS[kind]


def columns(geo: Geometry, kind: str) -> int:
    """How many numbers one object of this kind has."""
    return sum(_sizes(geo, kind))


def parts(geo: Geometry, kind: str) -> tuple[str, ...]:
    """The kinds this one becomes: itself where the geometry has it, its substitute elsewhere."""
    entry = lookup(kind)
    if kind in geo.kinds:
        return (kind,)
    placed = {"point"} & set(entry.pieces)  # a plane without points to measure from has no offset either
    if not entry.substitute or not {*entry.substitute, *placed} <= set(geo.kinds):
        geo.require(kind)
    return entry.substitute


def embed(geo: Geometry, kind: str, values: Tensor, origin: Tensor | None = None) -> list[Tensor]:
    """One multivector for each of `parts`, from values (..., columns)."""
    pieces, entry = split(geo, kind, values), lookup(kind)
    if kind in geo.kinds:
        return [entry.embed(geo, origin, *pieces)]
    divided = entry.divide(geo, origin, *pieces)
    return [KINDS[part].embed(geo, origin, x) for part, x in zip(parts(geo, kind), divided, strict=True)]


def read(geo: Geometry, kind: str, multivectors: list[Tensor], origin: Tensor | None = None) -> Tensor:
    """The values (..., columns) of one object, from one multivector for each of `parts`."""
    entry = lookup(kind)
    if kind in geo.kinds:
        return _join(geo, kind, entry.read(geo, origin, *multivectors))
    pieces = [KINDS[part].read(geo, origin, mv)[0] for part, mv in zip(parts(geo, kind), multivectors, strict=True)]
    return _join(geo, kind, entry.unite(geo, origin, *pieces))


def grades(geo: Geometry, kind: str) -> list[set[int]]:
    """The grades that each of `parts` occupies."""
    values = torch.linspace(0.3, 0.9, columns(geo, kind), dtype=torch.float64)
    return [set(geo.algebra.grades[mv != 0].tolist()) for mv in embed(geo, kind, values)]


def filled(geo: Geometry, kind: str) -> set[int]:
    """The grades that objects of a kind that the geometry has can have, seen in random ones."""
    mv = embed(geo, kind, draw(geo, kind, DRAWS, generator=torch.Generator().manual_seed(0)))[0]
    return set(geo.algebra.grades[(mv != 0).any(0)].tolist())


def asked(geo: Geometry, kind: str) -> set[int]:
    """The grades on which what is read as this kind depends, seen in random multivectors."""
    rng, alg = torch.Generator().manual_seed(0), geo.algebra
    channels = torch.randn(2, len(parts(geo, kind)), DRAWS, alg.dim, generator=rng, dtype=torch.float64)
    found = set()
    for grade, blades in enumerate(alg.slices):
        changed = channels[0].clone()
        changed[..., blades] = channels[1][..., blades]
        if not torch.equal(read(geo, kind, list(changed)), read(geo, kind, list(channels[0]))):
            found.add(grade)
    return found


def positions(geo: Geometry, kind: str, values: Tensor) -> Tensor | None:
    """The position (..., d) of an object, None for a kind that has none."""
    found = [x for piece, x in zip(lookup(kind).pieces, split(geo, kind, values), strict=True) if piece == "point"]
    return found[0] if found else None


def move(geo: Geometry, kind: str, values: Tensor, matrix: Tensor, translation: Tensor) -> Tensor:
    """The values after x -> matrix x + translation: how coordinates of this kind transform."""
    matrix, translation = geo.on_axes(matrix, translation)
    if kind == "pseudoscalar":
        return torch.linalg.det(matrix) * values
    if kind == "momentum" and geo.time is not None:
        return values @ matrix.T
    named = zip(lookup(kind).pieces, split(geo, kind, values), strict=True)
    turned = tuple(_turn(geo, piece, x, matrix, translation) for piece, x in named)
    if kind == "motor":
        turned = (turned[0], turned[1] + translation - geo.rotate(turned[0], translation.expand_as(turned[1])))
    return _join(geo, kind, turned)


def draw(geo: Geometry, kind: str, *shape: int, generator: torch.Generator | None = None) -> Tensor:
    """Random float64 values of this kind, (*shape, columns); radii are positive and quaternions have length one."""
    values = torch.randn(*shape, columns(geo, kind), generator=generator, dtype=torch.float64)
    pieces = list(split(geo, kind, values))
    for i, piece in enumerate(lookup(kind).pieces):
        if piece == "rotation" and geo.dim == 3:
            pieces[i] = torch.nn.functional.normalize(pieces[i], dim=-1)
        if piece == "scalar" and kind in ("sphere", "circle"):
            pieces[i] = pieces[i].abs()
    return _join(geo, kind, tuple(pieces))


def split(geo: Geometry, kind: str, values: Tensor) -> Pieces:
    """The pieces of an object; scalars and angles lose their last axis."""
    sizes = _sizes(geo, kind)
    if values.shape[-1] != sum(sizes):
        raise ValueError(
            f"values of kind {kind!r} have {values.shape[-1]} columns; geometry {geo.name!r} needs {sum(sizes)}"
        )
    pieces = values.split(sizes, -1)
    return tuple(x.squeeze(-1) if _is_number(geo, p) else x for p, x in zip(lookup(kind).pieces, pieces, strict=True))


def _sizes(geo: Geometry, kind: str) -> list[int]:
    axes = len(geo.axes)
    size = {"vector": axes, "point": axes, "space": geo.dim, "scalar": 1, "rotation": 1 if geo.dim == 2 else 4}
    return [size[piece] for piece in lookup(kind).pieces]


def _is_number(geo: Geometry, piece: str) -> bool:
    return piece == "scalar" or (piece == "rotation" and geo.dim == 2)


def _join(geo: Geometry, kind: str, pieces: Pieces) -> Tensor:
    named = zip(lookup(kind).pieces, pieces, strict=True)
    return torch.cat([x.unsqueeze(-1) if _is_number(geo, piece) else x for piece, x in named], -1)


def _turn(geo: Geometry, piece: str, x: Tensor, matrix: Tensor, translation: Tensor) -> Tensor:
    if piece == "scalar":
        return x
    if piece == "rotation":  # M R M^-1: the axis of a rotation is an axial vector
        m = matrix[-geo.dim :, -geo.dim :]
        sign = torch.linalg.det(m)
        return sign * x if geo.dim == 2 else torch.cat([sign * x[..., :3] @ m.T, x[..., 3:]], -1)
    return x @ matrix.T + (translation if piece == "point" else 0)


def _offset(geo: Geometry, origin: Tensor | None, normal: Tensor, point: Tensor) -> Pieces:
    return normal, (normal * relative(point, origin)).sum(-1)


def _from_offset(geo: Geometry, origin: Tensor | None, normal: Tensor, offset: Tensor) -> Pieces:
    square = nonzero(normal.square().sum(-1, keepdim=True), 1e-6)
    return normal, absolute(offset.unsqueeze(-1) * normal / square, origin)


def _nearest(geo: Geometry, origin: Tensor | None, point: Tensor, direction: Tensor) -> Pieces:
    square = nonzero(direction.square().sum(-1, keepdim=True), 1e-6)
    along = (relative(point, origin) * direction).sum(-1, keepdim=True) * direction / square
    return point - along, direction


def _relative_motor(geo: Geometry, origin: Tensor | None, rotation: Tensor, t: Tensor) -> Pieces:
    """x -> R x + t seen from the origin c: x - c -> R (x - c) + (t + R c - c)."""
    return (rotation, t) if origin is None else (rotation, relative(t, origin - geo.rotate(rotation, origin.expand_as(t))))


def _absolute_motor(geo: Geometry, origin: Tensor | None, rotation: Tensor, t: Tensor) -> Pieces:
    if origin is None:
        return rotation, t
    centre = origin.expand(*t.shape[:-1], origin.shape[-1])
    return rotation, absolute(t, centre - geo.rotate(rotation.to(centre), centre))


def _motor(geo: Geometry, origin: Tensor | None, rotation: Tensor, t: Tensor) -> Tensor:
    return geo.embed_motor(*_relative_motor(geo, origin, rotation, t))


def _flip(geo: Geometry, mv: Tensor) -> Tensor:
    """Times the pseudoscalar, where it has an inverse: lines and pairs, odd under mirrors, become even."""
    return mv @ geo.algebra.right(geo.algebra.pseudoscalar).T.to(mv) if geo.algebra.r == 0 else mv


def _unflip(geo: Geometry, mv: Tensor) -> Tensor:
    inverse = geo.algebra.reverse(geo.algebra.pseudoscalar) * geo.algebra.metric[-1]
    return mv @ geo.algebra.right(inverse).T.to(mv) if geo.algebra.r == 0 else mv


KINDS: dict[str, Kind] = {
    "scalar": Kind(
        ("scalar",),
        lambda geo, origin, s: geo.embed_scalar(s),
        lambda geo, origin, mv: (geo.extract_scalar(mv),),
    ),
    "pseudoscalar": Kind(
        ("scalar",),
        lambda geo, origin, s: geo.embed_pseudoscalar(s),
        lambda geo, origin, mv: (geo.extract_pseudoscalar(mv),),
    ),
    "vector": Kind(
        ("vector",),
        lambda geo, origin, v: geo.embed_vector(v),
        lambda geo, origin, mv: (geo.extract_vector(mv),),
    ),
    "point": Kind(
        ("point",),
        lambda geo, origin, x: geo.embed_point(x, origin),
        lambda geo, origin, mv: (geo.extract_point(mv, origin),),
    ),
    "oriented_point": Kind(
        ("point",),
        lambda geo, origin, x: geo.embed_point(x, origin, oriented=True),
        lambda geo, origin, mv: (geo.extract_point(mv, origin, oriented=True),),
    ),
    "plane": Kind(
        ("vector", "point"),
        lambda geo, origin, normal, point: geo.embed_plane(normal, point, origin),
        lambda geo, origin, mv: geo.extract_plane(geo.carrier(mv), origin),
        ("vector", "scalar"),
        _offset,
        _from_offset,
    ),
    "line": Kind(
        ("point", "vector"),
        lambda geo, origin, point, direction: _flip(geo, geo.embed_line(point, direction, origin)),
        lambda geo, origin, mv: geo.extract_line(geo.carrier(_unflip(geo, mv)), origin),
        ("point", "vector"),
        _nearest,
    ),
    "rotation": Kind(
        ("rotation",),
        lambda geo, origin, rotation: geo.embed_rotation(rotation),
        lambda geo, origin, mv: (geo.extract_rotation(geo.carrier(mv)),),
    ),
    "translation": Kind(
        ("vector",),
        lambda geo, origin, t: geo.embed_translation(t),
        # the displacement of a general multivector depends on the place; that of a translation is its free vector
        lambda geo, origin, mv: (geo.extract_vector(mv),),
        ("vector",),
    ),
    "motor": Kind(
        ("rotation", "vector"),
        _motor,
        lambda geo, origin, mv: _absolute_motor(geo, origin, *geo.extract_motor(geo.carrier(mv))),
        ("rotation", "vector"),
        _relative_motor,
        _absolute_motor,
    ),
    "sphere": Kind(
        ("point", "scalar"),
        lambda geo, origin, centre, radius: geo.embed_sphere(centre, radius, origin),
        lambda geo, origin, mv: geo.extract_sphere(mv, origin),
        ("point", "scalar"),
    ),
    "circle": Kind(
        ("point", "vector", "scalar"),
        lambda geo, origin, centre, normal, radius: geo.embed_circle(centre, normal, radius, origin),
        lambda geo, origin, mv: geo.extract_circle(mv, origin),
        ("point", "vector", "scalar"),
    ),
    "pair": Kind(
        ("point", "point"),
        lambda geo, origin, a, b: _flip(geo, geo.embed_pair(a, b, origin)),
        lambda geo, origin, mv: geo.extract_pair(_unflip(geo, mv), origin),
        ("point", "point"),
    ),
    "momentum": Kind(
        ("scalar", "space"),
        lambda geo, origin, energy, p: geo.embed_momentum(torch.cat([energy.unsqueeze(-1), p], -1)),
        lambda geo, origin, mv: (geo.extract_momentum(mv)[..., 0], geo.extract_momentum(mv)[..., 1:]),
        ("scalar", "vector"),
    ),
}
