"""Kinds of fields in data files: the roles of their columns, and `name:kind` as written on the command line."""

from collections.abc import Iterable
from difflib import get_close_matches

from anygatr.spaces.kinds import KINDS
from anygatr.spaces.pieces import PIECES

DIMENSIONS = (3, 2)
"""Dimensions of space a file is tried for when none is declared, the most common first."""


def roles(kind: str, dim: int) -> tuple[tuple[str, int], ...]:
    """The columns of a kind in R^dim as (role, width), in the order they are stored; `Kind.columns` lists the roles."""
    if "rotation" in KINDS[kind].pieces and dim not in (2, 3):
        raise ValueError(f"kind={kind!r} is stored as an angle (dim=2) or a quaternion x,y,z,w (dim=3); dim={dim}")
    return tuple((role, PIECES[piece].width(dim, axes=dim)) for piece, role in KINDS[kind].columns)


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
    synonym = next((name for name, known in KINDS.items() if kind.lower() in known.synonyms), None)
    return f"did you mean {synonym}?" if synonym else nearest(kind, KINDS)
