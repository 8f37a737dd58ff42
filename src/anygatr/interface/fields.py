"""Named fields of data and the channels of a network: which field goes where, and how it comes back.

Fields share a multivector channel as long as their grades differ, because every layer keeps grades apart; those that clash
get channels of their own. Scalars go to the scalar channels and, where a multivector channel has its scalar part free, there
as well: products see the one, attention and the scalar stream the other.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

import torch
from torch import Tensor

from anygatr.nn.width import Width
from anygatr.spaces import invariants as door
from anygatr.spaces import kinds
from anygatr.spaces.geometry import Geometry

RESERVED = ("mask", "offsets", "pairs", "edges")
"""What a model is called with besides its fields."""


@dataclass(frozen=True)
class Field:
    """A declared field: `count` objects of one kind, their columns side by side. Written "point" or "scalar*5".

    Of a category, `count` is the number of classes: one column holds the code of a token, and each class is a scalar.
    """

    name: str
    kind: str
    count: int = 1

    @classmethod
    def parse(cls, geo: Geometry, name: str, text: str) -> "Field":
        """The field declared by a text such as "point" or "scalar*5", once the geometry is known to take it."""
        kind, star, count = str(text).partition("*")
        if star and not (count.strip().isdigit() and int(count) > 0):
            raise ValueError(f"{name}={text!r}: after * write how many, e.g. 'scalar*5'")
        try:
            kinds.parts(geo, kind.strip())
        except ValueError as error:
            raise ValueError(f"{name}={text!r}: {error}") from None
        if kinds.lookup(kind.strip()).coded and (not star or int(count) < 2):
            raise ValueError(f"{name}={text!r}: say how many classes there are, two or more, e.g. '{kind.strip()}*14'")
        return cls(name, kind.strip(), int(count) if star else 1)

    @property
    def is_coded(self) -> bool:
        """Whether its column is a code of one of `count` classes."""
        return kinds.lookup(self.kind).coded

    @property
    def part(self) -> str:
        """The kind of each of its `count` objects in a network: a class is a scalar."""
        return "scalar" if self.is_coded else self.kind

    def columns(self, geo: Geometry) -> int:
        """How many numbers a token has in this field."""
        return kinds.columns(geo, self.kind) * (1 if self.is_coded else self.count)

    def objects(self, geo: Geometry, values: Tensor) -> list[Tensor]:
        """The values of each object, in the kind `part`: of a category, whether a token is of that class, as 1 or 0."""
        if self.is_coded:
            return list((values == torch.arange(self.count, device=values.device)).to(values).split(1, -1))
        return list(values.split(kinds.columns(geo, self.kind), -1))

    def draw(self, geo: Geometry, *shape: int, generator: torch.Generator | None = None) -> Tensor:
        """Random float64 values, (*shape, columns)."""
        objects = [
            kinds.draw(geo, self.kind, *shape, generator=generator) for _ in range(1 if self.is_coded else self.count)
        ]
        return torch.cat(objects, -1)


@dataclass(frozen=True)
class Slot:
    """Where one part of a field goes: `channel` is None for a scalar that found no room among the multivectors."""

    field: str
    kind: str
    channel: int | None


def declare(geo: Geometry, declaration: Mapping[str, str], label: str) -> tuple[Field, ...]:
    """The fields of a declaration {"position": "point", ...}."""
    if not isinstance(declaration, Mapping) or not declaration:
        raise ValueError(f"{label}={declaration!r} must name at least one field, e.g. {{'position': 'point'}}")
    for name in declaration:
        if not isinstance(name, str) or not name.isidentifier() or name in RESERVED:
            raise ValueError(f"{label} has a field named {name!r}; use an identifier other than {', '.join(RESERVED)}")
    return tuple(Field.parse(geo, name, text) for name, text in declaration.items())


class Inputs:
    """Fields on their way in: x (..., channels, blades), on the blades of the stream, and s (..., scalars).

    With `invariants` the scalars end with what is invariant in all objects of a token: `spaces.invariants`. Places count
    from the origin where they are `anchored` to one.
    """

    def __init__(self, geo: Geometry, declaration: Mapping[str, str], invariants: bool = False, anchored: bool = True):
        self.geo = geo
        self.fields = declare(geo, declaration, "inputs")
        self.slots = _pack(geo, self.fields)
        self.anchored = anchored or not geo.space.has_infinity
        channels = 1 + max((slot.channel for slot in self.slots if slot.channel is not None), default=-1)
        objects = [field.part for field in self.fields for _ in range(field.count)] if invariants else []
        self.invariants = door.count(geo, objects, self.anchored)
        self.width = Width(channels, sum(slot.kind == "scalar" for slot in self.slots) + self.invariants)

    def __getitem__(self, name: str) -> Field:
        found = next((field for field in self.fields if field.name == name), None)
        if found is None:
            names = [field.name for field in self.fields]
            near = get_close_matches(str(name), names, n=1, cutoff=0.5)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"there is no input field {name!r} among {', '.join(names)}{hint}")
        return found

    def channels(self, name: str) -> tuple[int, ...]:
        """The multivector channels that hold a field."""
        self[name]
        found = {slot.channel for slot in self.slots if slot.field == name and slot.channel is not None}
        return tuple(sorted(found))

    def positions(self, name: str, values: Tensor) -> Tensor | None:
        """The positions (..., d) in the values of a field, of its first object; None if its kind has none."""
        field = self[name]
        return kinds.positions(self.geo, field.kind, field.objects(self.geo, values)[0])

    @property
    def positional(self) -> tuple[str, ...]:
        """The names of the fields that have a position."""
        return tuple(field.name for field in self.fields if "point" in kinds.lookup(field.kind).pieces)

    @property
    def have_points(self) -> bool:
        """Whether some field holds points, as multivectors of their own."""
        return any("point" in kinds.parts(self.geo, field.kind) for field in self.fields)

    @property
    def grades(self) -> tuple[int, ...]:
        """The grades that fields fill."""
        filled = (kinds.filled(self.geo, slot.kind) for slot in self.slots if slot.channel is not None)
        return tuple(sorted(set().union(*filled)))

    def embed(self, values: Mapping[str, Tensor], origin: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """All fields as multivector and scalar channels, in the dtype of the values."""
        objects = [(field.part, one) for field in self.fields for one in field.objects(self.geo, values[field.name])]
        multivectors = [mv for kind, one in objects for mv in kinds.embed(self.geo.stored, kind, one, origin)]
        placed = list(zip(self.slots, multivectors, strict=True))
        channels = [sum(mv for slot, mv in placed if slot.channel == c) for c in range(self.width.mv)]
        scalars = [mv[..., 0] for slot, mv in placed if slot.kind == "scalar"]
        x = torch.stack(channels, -2)  # type: ignore[arg-type]
        s = torch.stack(scalars, -1) if scalars else x.new_zeros(*x.shape[:-2], 0)
        if self.invariants:
            s = torch.cat([s, door.invariants(self.geo, objects, origin, self.anchored).to(x.dtype)], -1)
        return x, s


class Targets:
    """Fields on their way out, each part of each object read from a channel of its own.

    Where points change sign under mirrors, so do scalars made of an odd number of them, such as a signed volume. If
    `signed`, a pseudoscalar is read there as its own coefficient plus the scalar part: times the weight of points, 1.
    """

    def __init__(self, geo: Geometry, declaration: Mapping[str, str], signed: bool = False):
        self.geo, self.signed = geo, signed and bool(len(geo.symmetry.mirrors)) and _points_are_odd(geo)
        self.fields = declare(geo, declaration, "targets")
        if coded := next((field for field in self.fields if field.is_coded), None):
            raise ValueError(
                f"target {coded.name!r} is a {coded.kind}, which can be an input only; predict a score for each class "
                f"instead, '{coded.part}*{coded.count}'"
            )
        self.width = Width(sum(field.count * len(kinds.parts(geo, field.kind)) for field in self.fields), 0)

    @property
    def positional(self) -> tuple[str, ...]:
        """The names of the fields that have a position."""
        return tuple(field.name for field in self.fields if "point" in kinds.lookup(field.kind).pieces)

    @property
    def grades(self) -> tuple[int, ...]:
        """The grades that fields are read from."""
        asked = set[int]().union(*(kinds.asked(self.geo, field.kind) for field in self.fields))
        if self.signed and any(field.kind == "pseudoscalar" for field in self.fields):
            asked |= kinds.asked(self.geo, "scalar")
        return tuple(sorted(asked))

    def read(self, x: Tensor, origin: Tensor | None = None) -> dict[str, Tensor]:
        """Every field from multivector channels (..., channels, blades), with its columns on the last axis."""
        channels, out = list(x.unbind(-2)), {}
        for field in self.fields:
            size = len(kinds.parts(self.geo, field.kind))
            objects = []
            for _ in range(field.count):
                value = kinds.read(self.geo.stored, field.kind, channels[:size], origin)
                if self.signed and field.kind == "pseudoscalar":
                    value = value + kinds.read(self.geo.stored, "scalar", channels[:1])
                objects.append(value)
                channels = channels[size:]
            out[field.name] = torch.cat(objects, -1)
        return out


def _points_are_odd(geo: Geometry) -> bool:
    """Whether a mirror through a point turns the multivector of that point into its negative."""
    if "point" not in geo.kinds or geo.point == "relative":
        return False
    point = geo.embed_point(torch.zeros(len(geo.axes), dtype=torch.float64))
    return bool(torch.allclose(geo.symmetry.act(geo.algebra[geo.axes[-1]], point), -point))


def _pack(geo: Geometry, fields: tuple[Field, ...]) -> tuple[Slot, ...]:
    """A slot for every part of every object: geometric parts first come, first served; then scalars where there is room."""
    wanted = [
        (field.name, part, occupied)
        for field in fields
        for _ in range(field.count)
        for part, occupied in zip(kinds.parts(geo, field.part), kinds.grades(geo, field.part), strict=True)
    ]
    taken: list[set[int]] = []
    channel: dict[int, int | None] = {}
    for i, (_, part, occupied) in sorted(enumerate(wanted), key=lambda item: item[1][1] == "scalar"):
        free = next((c for c, grades in enumerate(taken) if not grades & occupied), None)
        if free is None and (part != "scalar" or not taken):
            taken.append(set())
            free = len(taken) - 1
        if free is not None:
            taken[free] |= occupied
        channel[i] = free
    return tuple(Slot(name, part, channel[i]) for i, (name, part, _) in enumerate(wanted))
