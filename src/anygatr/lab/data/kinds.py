"""Kinds of fields a data file can declare: what their columns mean, and `name:kind` as written on the command line."""

from collections.abc import Iterable
from difflib import get_close_matches

# The columns of each kind, in order, as (role, width). The role decides how a column may be normalised:
#   position, length   divided by the one length unit of the data set; a position is never shifted
#   free               divided by a unit of its own, never shifted
#   direction, rotor   left as they are: their length is 1 or means nothing
#   invariant          standardised: the only columns that may be shifted
#   pseudo             divided, never shifted: it changes sign under mirrors
KINDS: dict[str, tuple[tuple[str, str], ...]] = {
    "point": (("position", "d"),),
    "oriented_point": (("position", "d"),),
    "vector": (("free", "d"),),
    "plane": (("direction", "d"), ("position", "d")),
    "line": (("position", "d"), ("direction", "d")),
    "sphere": (("position", "d"), ("length", "1")),
    "circle": (("position", "d"), ("direction", "d"), ("length", "1")),
    "pair": (("position", "d"), ("position", "d")),
    "scalar": (("invariant", "1"),),
    "pseudoscalar": (("pseudo", "1"),),
    "rotation": (("rotor", "rotor"),),
    "translation": (("length", "d"),),
    "motor": (("rotor", "rotor"), ("length", "d")),
    "momentum": (("free", "d+1"),),
}

DIMENSIONS = (3, 2)
"""Dimensions of space a file is tried for when none is declared, the most common first."""

_SYNONYMS = {
    "position": "point", "coordinate": "point", "coordinates": "point", "vertex": "point",
    "velocity": "vector", "force": "vector", "displacement": "vector", "normal": "vector", "direction": "vector",
    "quaternion": "rotation", "angle": "rotation", "orientation": "rotation", "rotor": "rotation",
    "pose": "motor", "transform": "motor", "shift": "translation", "ray": "line",
    "float": "scalar", "number": "scalar", "mass": "scalar", "charge": "scalar", "energy": "scalar",
    "fourvector": "momentum", "four_momentum": "momentum",
}  # fmt: skip


def roles(kind: str, dim: int) -> tuple[tuple[str, int], ...]:
    """The columns of a kind in R^dim as (role, width), in the order they are stored."""
    rotor = {2: 1, 3: 4}
    widths = {"d": dim, "d+1": dim + 1, "1": 1, "rotor": rotor.get(dim, 0)}
    parts = tuple((role, widths[width]) for role, width in KINDS[kind])
    if any(width == 0 for _, width in parts):
        raise ValueError(f"kind={kind!r} is stored as an angle (dim=2) or a quaternion x,y,z,w (dim=3); dim={dim}")
    return parts


def columns(kind: str, dim: int) -> int:
    """How many numbers one object of this kind takes in R^dim."""
    return sum(width for _, width in roles(kind, dim))


def parse_fields(specs: Iterable[str], argument: str = "inputs") -> dict[str, str]:
    """Read `["position:point", "charge:scalar"]` as `{"position": "point", "charge": "scalar"}`."""
    fields: dict[str, str] = {}
    for spec in specs:
        name, colon, kind = spec.partition(":")
        if not (name and colon):
            raise ValueError(f"{argument}: {spec!r} is not of the form name:kind; write for example {name or 'x'}:point")
        if kind not in KINDS:
            raise ValueError(f"{argument}: unknown kind {kind!r} in {spec!r}; {_suggest_kind(kind)}")
        if name in fields:
            raise ValueError(f"{argument}: the field {name!r} is declared twice; name each field once")
        fields[name] = kind
    return fields


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of an error message: the closest known names, or all of them when none is close."""
    known = sorted(known)
    plain = {name.lower(): name for name in known}
    close = [plain[name] for name in get_close_matches(word.lower(), plain, n=3, cutoff=0.5)]
    return f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(known) or 'none'}"


def infer_dim(fields: dict[str, str], widths: dict[str, int]) -> int:
    """The dimension d in which every field has the number of columns its kind needs."""
    for dim in DIMENSIONS:
        if all(columns(kind, dim) in (1, widths[name]) for name, kind in fields.items()):
            return dim
    found = "; ".join(
        f"{name}:{kind} has {widths[name]}, needs " + " or ".join(f"{columns(kind, d)} (dim={d})" for d in DIMENSIONS)
        for name, kind in fields.items()
        if columns(kind, DIMENSIONS[0]) > 1
    )
    raise ValueError(f"no dimension fits the columns of all fields: {found}; check the kinds, or declare dim")


def _suggest_kind(kind: str) -> str:
    synonym = _SYNONYMS.get(kind.lower())
    return f"did you mean {synonym}?" if synonym else nearest(kind, KINDS)
