"""Kinds of data, each declared once in the table below, and what networks, tests and the laboratory ask of a kind.

Where a geometry has no such object, simpler ones say the same relative to the origin: a plane is its normal and its offset,
a line its direction and its nearest point, a sphere its centre and its radius. Positions are taken from the origin on the
way in and given back to it on the way out; everything read is equivariant, whatever multivector it is read from.
"""

from difflib import get_close_matches
from functools import cache, partial

import torch
from torch import Tensor

from anygatr.spaces import existence, substitutes
from anygatr.spaces.embeddings import flats, points, rounds, vectors, versors
from anygatr.spaces.embeddings.isometries import on_axes
from anygatr.spaces.kind import Kind
from anygatr.spaces.pieces import PIECES, Piece, Pieces
from anygatr.spaces.space import HasSpace, Space
from anygatr.spaces.standard import STANDARD

DRAWS = 16  # random objects that show what a kind fills and what reading it asks for

TABLE: dict[str, Kind] = {
    "scalar": Kind(
        columns=(("scalar", "invariant"),),
        exists=existence.anywhere,
        embed=vectors.embed_scalar,
        extract=vectors.extract_scalar,
        synonyms=("float", "number", "mass", "charge", "energy"),
    ),
    "category": Kind(
        columns=(("code", "code"),),
        exists=existence.anywhere,
        embed=vectors.embed_scalar,
        extract=vectors.extract_scalar,
        coded=True,
        synonyms=("class", "species", "element", "type", "atomic_number", "onehot", "one_hot"),
    ),
    "pseudoscalar": Kind(
        columns=(("pseudoscalar", "pseudo"),),
        exists=existence.anywhere,
        embed=vectors.embed_pseudoscalar,
        extract=vectors.extract_pseudoscalar,
    ),
    "vector": Kind(
        columns=(("vector", "free"),),
        exists=existence.anywhere,
        embed=vectors.embed_vector,
        extract=vectors.extract_vector,
        synonyms=("velocity", "force", "displacement", "normal", "direction"),
    ),
    "reflection": Kind(
        columns=(), exists=existence.anywhere, embed=versors.embed_reflection, extract=versors.extract_reflection
    ),
    "point": Kind(
        columns=(("point", "position"),),
        exists=existence.with_points,
        embed=points.embed_point,
        extract=points.extract_point,
        synonyms=("position", "coordinate", "coordinates", "vertex"),
    ),
    "oriented_point": Kind(
        columns=(("point", "position"),),
        exists=existence.with_oriented_points,
        embed=partial(points.embed_point, oriented=True),
        extract=partial(points.extract_point, oriented=True),
    ),
    "plane": Kind(
        columns=(("vector", "direction"), ("point", "position")),
        exists=existence.with_infinity,
        embed=flats.embed_plane,
        extract=flats.extract_plane,
        carried=True,
        substitute=("vector", "scalar"),
        divide=substitutes.offset,
        unite=substitutes.from_offset,
    ),
    "line": Kind(
        columns=(("point", "position"), ("vector", "direction")),
        exists=existence.with_lines,
        embed=flats.embed_line,
        extract=flats.extract_line,
        carried=True,
        flipped=True,
        substitute=("point", "vector"),
        divide=substitutes.nearest,
        synonyms=("ray",),
    ),
    "rotation": Kind(
        columns=(("rotation", "rotor"),),
        exists=existence.with_rotations,
        embed=versors.embed_rotation,
        extract=versors.extract_rotation,
        carried=True,
        synonyms=("quaternion", "angle", "orientation", "rotor"),
    ),
    "rotation6": Kind(
        columns=(("vector", "direction"), ("vector", "direction")),
        exists=existence.nowhere,
        embed=vectors.embed_vector,
        extract=vectors.extract_vector,
        substitute=("vector", "vector"),
        unite=substitutes.orthonormal,
        spatial=True,
        note="two vectors stand for it where there is no time",
        synonyms=("frame", "axes", "rotation_matrix", "rot6d", "six_d"),
    ),
    "translation": Kind(
        columns=(("vector", "length"),),
        exists=existence.with_infinity,
        embed=versors.embed_translation,
        # the displacement of a general multivector depends on the place; that of a translation is its free vector
        extract=vectors.extract_vector,
        substitute=("vector",),
        synonyms=("shift",),
    ),
    "motor": Kind(
        columns=(("rotation", "rotor"), ("shift", "length")),
        exists=existence.with_motors,
        embed=substitutes.embed_motor_from,
        extract=substitutes.extract_motor_from,
        carried=True,
        substitute=("rotation", "vector"),
        divide=substitutes.relative_motor,
        unite=substitutes.absolute_motor,
        move=substitutes.move_motor,
        synonyms=("pose", "transform"),
    ),
    "sphere": Kind(
        columns=(("point", "position"), ("radius", "length")),
        exists=existence.with_spheres,
        embed=rounds.embed_sphere,
        extract=rounds.extract_sphere,
        substitute=("point", "scalar"),
    ),
    "circle": Kind(
        columns=(("point", "position"), ("vector", "direction"), ("radius", "length")),
        exists=existence.with_circles,
        embed=rounds.embed_circle,
        extract=rounds.extract_circle,
        substitute=("point", "vector", "scalar"),
        note="in 2 a circle is a sphere",
    ),
    "pair": Kind(
        columns=(("point", "position"), ("point", "position")),
        exists=existence.with_spheres,
        embed=rounds.embed_pair,
        extract=rounds.extract_pair,
        flipped=True,
        substitute=("point", "point"),
    ),
    "momentum": Kind(
        columns=(("momentum", "free"),),
        exists=existence.with_time,
        embed=vectors.embed_momentum,
        extract=vectors.extract_momentum,
        substitute=("scalar", "vector"),
        divide=substitutes.energy_and_momentum,
        unite=substitutes.four_momentum,
        synonyms=("fourvector", "four_momentum"),
    ),
}

KINDS: dict[str, Kind] = {name: kind for name, kind in TABLE.items() if kind.columns}


def lookup(kind: str) -> Kind:
    """The kind of data of that name."""
    if kind not in KINDS:
        near = get_close_matches(str(kind), KINDS, n=2, cutoff=0.5)
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
        raise ValueError(f"kind {kind!r} is unknown{hint} Kinds are {', '.join(KINDS)}")
    return KINDS[kind]


def existing(space: Space) -> tuple[str, ...]:
    """The kinds of objects that a space can represent without loss."""
    return tuple(name for name, kind in TABLE.items() if kind.exists(space) and not kind.coded)


def refusal(space: Space, kind: str) -> str:
    """Why a space cannot represent a kind, and which presets can."""
    plain, note = kind.replace("_", " "), TABLE[kind].note
    return (
        f"geometry {space.name!r} with dim={space.dim} cannot represent a {plain}; these can: {presets_with(kind)}"
        f"{f' ({note})' if note else ''}"
    )


@cache
def presets_with(kind: str) -> str:
    """The presets that have a kind, and their dimensions if not all do: "P, iP, C in 2 or 3 dimensions"."""
    dims = range(1, 5)  # no kind asks for more
    able = {name: [d for d in dims if TABLE[kind].exists(space(d))] for name, space in STANDARD.items()}
    found = sorted(set().union(*able.values()))
    if not found:
        return "no preset"
    names = ", ".join(name for name, where in able.items() if where)
    if found == list(dims):
        return names
    numbers = f"{found[0]} or more" if found[-1] == dims[-1] else " or ".join(map(str, found))
    return f"{names} in {numbers} dimensions"


def columns(geo: HasSpace, kind: str) -> int:
    """How many numbers one object of this kind has."""
    return sum(_widths(geo, kind))


def roles(geo: HasSpace, kind: str) -> tuple[tuple[str, int], ...]:
    """The columns of a kind as (role, width); `Kind.columns` says what roles are."""
    return tuple(zip((role for _, role in lookup(kind).columns), _widths(geo, kind), strict=True))


def parts(geo: HasSpace, kind: str) -> tuple[str, ...]:
    """The kinds this one becomes: itself where the geometry has it, its substitute elseexistence."""
    entry, known = lookup(kind), existing(geo.space)
    if kind in known or entry.coded:
        return (kind,)
    placed = {"point"} & set(entry.pieces)  # a plane without points to measure from has no offset either
    missing = not entry.substitute or not {*entry.substitute, *placed} <= set(known)
    if missing or (entry.spatial and geo.space.time is not None):
        geo.require(kind)
    return entry.substitute


def embed(geo: HasSpace, kind: str, values: Tensor, origin: Tensor | None = None) -> list[Tensor]:
    """One multivector for each of `parts`, from values (..., columns)."""
    pieces, entry = split(geo, kind, values), lookup(kind)
    if entry.exists(geo.space):
        return [_embed(geo, entry, origin, *pieces)]
    divided = entry.divide(geo, origin, *pieces)
    return [_embed(geo, KINDS[part], origin, x) for part, x in zip(parts(geo, kind), divided, strict=True)]


def read(geo: HasSpace, kind: str, multivectors: list[Tensor], origin: Tensor | None = None) -> Tensor:
    """The values (..., columns) of one object, from one multivector for each of `parts`."""
    entry = lookup(kind)
    if entry.exists(geo.space):
        return _join(geo, kind, _read(geo, entry, origin, *multivectors))
    pieces = [_read(geo, KINDS[part], origin, mv)[0] for part, mv in zip(parts(geo, kind), multivectors, strict=True)]
    return _join(geo, kind, entry.unite(geo, origin, *pieces))


def grades(geo: HasSpace, kind: str) -> list[set[int]]:
    """The grades that each of `parts` occupies."""
    values = torch.linspace(0.3, 0.9, columns(geo, kind), dtype=torch.float64)
    return [set(geo.space.algebra.grades[mv != 0].tolist()) for mv in embed(geo, kind, values)]


def filled(geo: HasSpace, kind: str) -> set[int]:
    """The grades that objects of a kind that the geometry has can have, seen in random ones."""
    mv = embed(geo, kind, draw(geo, kind, DRAWS, generator=torch.Generator().manual_seed(0)))[0]
    return set(geo.space.algebra.grades[(mv != 0).any(0)].tolist())


def asked(geo: HasSpace, kind: str) -> set[int]:
    """The grades on which what is read as this kind depends, seen in random multivectors."""
    rng, alg = torch.Generator().manual_seed(0), geo.space.algebra
    channels = torch.randn(2, len(parts(geo, kind)), DRAWS, alg.dim, generator=rng, dtype=torch.float64)
    found = set()
    for grade, blades in enumerate(alg.slices):
        changed = channels[0].clone()
        changed[..., blades] = channels[1][..., blades]
        if not torch.equal(read(geo, kind, list(changed)), read(geo, kind, list(channels[0]))):
            found.add(grade)
    return found


def positions(geo: HasSpace, kind: str, values: Tensor) -> Tensor | None:
    """The position (..., d) of an object, None for a kind that has none."""
    found = [x for piece, x in zip(lookup(kind).pieces, split(geo, kind, values), strict=True) if piece == "point"]
    return found[0] if found else None


def move(geo: HasSpace, kind: str, values: Tensor, matrix: Tensor, translation: Tensor) -> Tensor:
    """The values after x -> matrix x + translation: how coordinates of this kind transform."""
    matrix, translation = on_axes(geo, matrix, translation)
    entry, named = lookup(kind), zip(_pieces(kind), split(geo, kind, values), strict=True)
    moved = tuple(piece.move(geo.space, x, matrix, translation) for piece, x in named)
    return _join(geo, kind, moved if entry.move is None else entry.move(geo, moved, matrix, translation))


def draw(geo: HasSpace, kind: str, *shape: int, generator: torch.Generator | None = None) -> Tensor:
    """Random float64 values of this kind, (*shape, columns); radii are positive and quaternions have length one."""
    values = torch.randn(*shape, columns(geo, kind), generator=generator, dtype=torch.float64)
    named = zip(_pieces(kind), split(geo, kind, values), strict=True)
    pieces = tuple(piece.draw(geo.space, x) for piece, x in named)
    # what others stand for everywhere is nothing but what they unite to
    entry = lookup(kind)
    return _join(geo, kind, entry.unite(geo, None, *pieces) if entry.exists is existence.nowhere else pieces)


def split(geo: HasSpace, kind: str, values: Tensor) -> Pieces:
    """The pieces of an object; scalars and angles lose their last axis."""
    widths = _widths(geo, kind)
    if values.shape[-1] != sum(widths):
        raise ValueError(
            f"values of kind {kind!r} have {values.shape[-1]} columns; geometry {geo.space.name!r} needs {sum(widths)}"
        )
    named = zip(_pieces(kind), values.split(widths, -1), strict=True)
    return tuple(x.squeeze(-1) if piece.is_number(geo.space.dim) else x for piece, x in named)


def _pieces(kind: str) -> list[Piece]:
    return [PIECES[piece] for piece in lookup(kind).pieces]


def _widths(geo: HasSpace, kind: str) -> list[int]:
    return [piece.width(geo.space.dim, len(geo.space.axes)) for piece in _pieces(kind)]


def _join(geo: HasSpace, kind: str, pieces: Pieces) -> Tensor:
    named = zip(_pieces(kind), pieces, strict=True)
    return torch.cat([x.unsqueeze(-1) if piece.is_number(geo.space.dim) else x for piece, x in named], -1)


def _embed(geo: HasSpace, entry: Kind, origin: Tensor | None, *pieces: Tensor) -> Tensor:
    mv = entry.embed(geo, *pieces, origin) if entry.placed else entry.embed(geo, *pieces)
    flip = geo.space.tables.flip if entry.flipped else None
    return mv if flip is None else mv @ flip.to(mv)


def _read(geo: HasSpace, entry: Kind, origin: Tensor | None, mv: Tensor) -> Pieces:
    unflip = geo.space.tables.unflip if entry.flipped else None
    mv = mv if unflip is None else mv @ unflip.to(mv)
    mv = geo.space.carrier(mv) if entry.carried else mv
    found = entry.extract(geo, mv, origin) if entry.placed else entry.extract(geo, mv)
    return found if isinstance(found, tuple) else (found,)
