"""Kinds of fields in data files: the roles of their columns, and `name:kind` as written on the command line."""

from collections.abc import Iterable
from difflib import get_close_matches

import torch
from torch import Tensor

from anygatr.spaces.kinds import KINDS
from anygatr.spaces.pieces import PIECES

DIMENSIONS = (3, 2)
"""Dimensions of space a file is tried for when none is declared, the most common first."""


def base_kind(text: str) -> str:
    """The kind of one object: "scalar" of "scalar*5"."""
    return text.partition("*")[0]


def declared_count(text: str) -> int | None:
    """The number after the *: of objects side by side, or of the classes of a category. None where there is none."""
    return int(text.partition("*")[2]) if "*" in text else None


def is_category(text: str) -> bool:
    """Whether a kind is a code of classes, not a number."""
    return KINDS[base_kind(text)].coded


def roles(kind: str, dim: int) -> tuple[tuple[str, int], ...]:
    """The columns of a kind in R^dim as (role, width), in the order they are stored; `Kind.columns` lists the roles."""
    entry, count = KINDS[base_kind(kind)], declared_count(kind)
    if "rotation" in entry.pieces and dim not in (2, 3):
        raise ValueError(f"kind={kind!r} is stored as an angle (dim=2) or a quaternion x,y,z,w (dim=3); dim={dim}")
    one = tuple((role, PIECES[piece].width(dim, axes=dim)) for piece, role in entry.columns)
    return one if entry.coded else one * (count or 1)


def columns(kind: str, dim: int) -> int:
    """How many numbers a token has in a field of this kind in R^dim."""
    return sum(width for _, width in roles(kind, dim))


def encoded_width(kind: str, dim: int) -> int:
    """How many numbers describe a token to a network that knows no kinds: of a category, one per class."""
    return (declared_count(kind) or 1) if is_category(kind) else columns(kind, dim)


def encoded(kind: str, x: Tensor, dim: int) -> Tensor:
    """A field as (..., encoded_width): single numbers get an axis, codes become one column of 0 and 1 per class."""
    if is_category(kind):
        return (x.unsqueeze(-1) == torch.arange(encoded_width(kind, dim), device=x.device)).to(x)
    return x.unsqueeze(-1) if columns(kind, dim) == 1 else x


def parse_fields(specs: Iterable[str], argument: str = "inputs") -> dict[str, str]:
    """Read `["position:point", "charge:scalar"]` as `{"position": "point", "charge": "scalar"}`."""
    fields: dict[str, str] = {}
    for spec in specs:
        name, colon, kind = spec.partition(":")
        if not (name and colon):
            raise ValueError(f"{argument}: {spec!r} is not of the form name:kind; write for example {name or 'x'}:point")
        base, star, count = kind.partition("*")
        if base not in KINDS:
            raise ValueError(f"{argument}: unknown kind {base!r} in {spec!r}; {_suggest_kind(base)}")
        if star and not (count.isdigit() and int(count) > 0):
            raise ValueError(f"{argument}: {spec!r} should end with how many there are, for example {name}:scalar*5")
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
        if all(_fits(kind, dim, widths[name]) for name, kind in fields.items()):
            return dim
    found = "; ".join(
        f"{name}:{kind} has {widths[name]}, needs " + " or ".join(f"{columns(kind, d)} (dim={d})" for d in DIMENSIONS)
        for name, kind in fields.items()
        if columns(base_kind(kind), DIMENSIONS[0]) > 1
    )
    raise ValueError(f"no dimension fits the columns of all fields: {found}; check the kinds, or declare dim")


def _fits(kind: str, dim: int, width: int) -> bool:
    """Whether arrays with `width` columns can hold this kind: each object by itself, or all of them side by side."""
    return columns(base_kind(kind), dim) in (1, width) or columns(kind, dim) == width


def _suggest_kind(kind: str) -> str:
    synonym = next((name for name, known in KINDS.items() if kind.lower() in known.synonyms), None)
    return f"did you mean {synonym}?" if synonym else nearest(kind, KINDS)
