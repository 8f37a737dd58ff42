"""What is invariant in objects of R^d seen from an origin: lengths, distances, inner products, determinants, angles.

Every number is of the first degree in the size of the data, however far away they are, and smooth, at zero as well: a form
q of degree m becomes q / (q^2 + SMOOTH^2m)^((m - 1) / 2m), the m-th root of a large q, proportional to a small one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import combinations

import torch
from torch import Tensor

from anygatr.spaces import kinds, substitutes
from anygatr.spaces.coordinates import relative
from anygatr.spaces.geometry import Geometry
from anygatr.spaces.pieces import Pieces

SMOOTH = 0.5  # of a unit of length: below it a root turns into a multiple
MOST = 64  # numbers of one family, such as all inner products; a larger family is left out


def root(q: Tensor, degree: int) -> Tensor:
    """The odd and smooth m-th root of a form q of degree m."""
    return q / (q.square() + SMOOTH ** (2 * degree)).pow((degree - 1) / (2 * degree))


@dataclass
class Said:
    """What objects say in the simplest terms: numbers that no motion changes, vectors and, seen from the origin, places."""

    numbers: list[Tensor] = field(default_factory=list)
    vectors: list[Tensor] = field(default_factory=list)
    places: list[Tensor] = field(default_factory=list)


def invariants(
    geo: Geometry, objects: Sequence[tuple[str, Tensor]], origin: Tensor | None = None, anchored: bool = True
) -> Tensor:
    """The invariants (..., count) of objects given as (kind, values); signed volumes only in groups without mirrors.

    Places count from the origin (None: that of the coordinates) where `anchored`, else only from each other.
    """
    said = Said()
    for kind, values in objects:
        _collect(geo, kind, values.double(), origin, anchored, said)
    if not anchored:
        said.places = [place - said.places[0] for place in said.places[1:]]
    vectors, metric = [*said.places, *said.vectors], geo.tables.squares
    found = said.numbers + [root((v * metric * v).sum(-1), 2) for v in vectors]
    found += _family([_pair(a, b, metric, j < len(said.places)) for (_, a), (j, b) in combinations(enumerate(vectors), 2)])
    if not len(geo.symmetry.mirrors):
        size = len(metric)
        found += _family([root(_volume(geo, v), size) for v in combinations(vectors, size)])
    shape = objects[0][1].shape[:-1]
    return torch.stack([x.expand(shape) for x in found], -1) if found else objects[0][1].new_zeros(*shape, 0)


def count(geo: Geometry, names: Sequence[str], anchored: bool = True) -> int:
    """How many invariants objects of these kinds have."""
    example = [(kind, kinds.draw(geo, kind, 1, generator=torch.Generator().manual_seed(0))) for kind in names]
    return invariants(geo, example, None, anchored).shape[-1] if example else 0


def _pair(a: Tensor, b: Tensor, metric: Tensor, places: bool) -> Tensor:
    """The distance of two places, the inner product of anything else."""
    return root(((a - b) * metric * (a - b)).sum(-1) if places else (a * metric * b).sum(-1), 2)


def _volume(geo: Geometry, vectors: Sequence[Tensor]) -> Tensor:
    """The determinant as v1 ^ v2 ^ ...: a polynomial, whose derivatives exist where vectors are dependent as well."""
    base = geo.space.base
    return reduce(base.outer, map(base.vector, vectors))[..., -1]


def _family(found: list[Tensor]) -> list[Tensor]:
    return found if len(found) <= MOST else []


def _collect(geo: Geometry, kind: str, values: Tensor, origin: Tensor | None, anchored: bool, said: Said) -> None:
    """Take an object apart as its substitutes would; what they give the network as scalars is not repeated."""
    entry, pieces = kinds.lookup(kind), kinds.split(geo, kind, values)
    # energy and momentum are invariant one by one only where there are no boosts
    simple = not entry.substitute or (geo.space.time is not None and entry.exists(geo.space))
    parts: Pieces = pieces if simple else entry.divide(geo, origin, *pieces)
    names = (kind,) if simple else entry.substitute
    known = simple or kinds.parts(geo, kind) != (kind,)
    # without an anchor only what is not measured from the origin: the direction of a line, not its nearest point
    free = anchored or entry.divide is substitutes.unchanged
    for name, x in zip(names, parts, strict=True):
        if name == "scalar":
            said.numbers += [x] if not known and free else []
        elif name in ("point", "oriented_point"):
            said.places += [relative(x, origin)] if free else []
        elif name == "pseudoscalar":
            said.numbers += [root(x.square(), 2) if len(geo.symmetry.mirrors) else x]
        elif name == "rotation":
            said.numbers += _angle(geo, x)
        elif free or "shift" not in entry.pieces:
            said.vectors.append(x)


def _angle(geo: Geometry, rotation: Tensor) -> list[Tensor]:
    """The cosine of the angle and, where mirrors do not turn it around, the sine of one in the plane."""
    if geo.dim == 2:
        return [rotation.cos(), *([] if len(geo.symmetry.mirrors) else [rotation.sin()])]
    square = rotation.square()
    return [(square[..., 3] - square[..., :3].sum(-1)) / square.sum(-1)]
