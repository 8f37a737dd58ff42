"""Guess the kind of every array from its name, its columns and its numbers, and say why."""

import re
from dataclasses import dataclass, replace

import numpy as np

from anygatr.lab.data.files.view import ArrayView
from anygatr.lab.data.kinds import DIMENSIONS, columns
from anygatr.spaces.kinds import KINDS

_WORDS = {
    "point": "x xy xyz pos position coord coordinate loc location point vertex center centre r place",
    "vector": "v vel velocity f force acc acceleration displacement direction dipole wss grad gradient field normal "
    "omega torque angular magnetic vorticity spin",
    "scalar": "m mass q charge e energy temperature pressure density time t radius distance geo",
    "rotation": "quat quaternion q rot rotation orientation attitude angle theta heading yaw",
    "translation": "translation trans shift",
    "motor": "pose motor transform motion",
    "plane": "plane",
    "line": "line ray",
    "sphere": "sphere ball",
    "pseudoscalar": "pseudoscalar chirality helicity handedness",
    "momentum": "p4 momentum momenta fourmomentum jet particle",
}
CODES = "type species class element category kind symbol residue atom z number atomic label"
"""Words of names that are likely to hold codes, not magnitudes."""
MOST_CLASSES = 120
"""More different whole numbers than there are elements are no codes."""
_TARGETS = "final target label y out output next future truth goal"


@dataclass(frozen=True)
class ProposedField:
    """One array of the file and what we make of it."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    low: float
    high: float
    per: str
    """token, sample, or `other` when its first axis counts neither."""
    kind: str | None
    """Proposed kind; None when the array cannot be a field."""
    reason: str
    is_target: bool
    is_guess: bool = False
    """Whether the numbers fit another kind as well: a question to whoever knows the data."""


def propose(view: ArrayView, dim: int | None = None) -> tuple[int, list[ProposedField]]:
    """The dimension of space, guessed unless it is given, and every array with the kind it probably has."""
    if dim is None:
        dim = _guess_dim([view.rows(name).shape[1] for name in view.arrays if view.owner(name) != "other"])
    return dim, _mark_targets([_describe(name, view, dim) for name in view.arrays])


def words(name: str) -> set[str]:
    """The words of an array's name, also in the singular: `initialPositions` -> initial, positions, position."""
    found = [word.lower() for word in re.findall(r"[A-Z]?[a-z]+4?|[A-Z]+(?![a-z])", name)]
    return {*found, *(word.removesuffix("s") for word in found)}


def is_unit(values: np.ndarray) -> bool:
    """Whether all rows have length 1, to the precision that files are written with."""
    return values.shape[1] > 1 and len(values) > 0 and bool(np.allclose(np.linalg.norm(values, axis=1), 1.0, atol=1e-4))


def _guess_dim(widths: list[int]) -> int:
    """The dimension of space that most arrays with several columns speak for."""
    return max(DIMENSIONS, key=lambda dim: (widths.count(dim), -DIMENSIONS.index(dim)))


def _describe(name: str, view: ArrayView, dim: int) -> ProposedField:
    array, rows, owner = view.arrays[name], view.rows(name), view.owner(name)
    low, high = (float(rows.min()), float(rows.max())) if rows.size else (np.nan, np.nan)
    kind: str | None
    is_guess = False
    if owner == "other":
        kind, reason = None, f"its first axes are neither {view.lead} tokens nor {view.samples} samples"
    elif array.ndim > (len(view.lead) if owner == "token" else 1) + 1:
        kind, reason = None, f"{array.shape[-2]} objects in one array; if they are channels of one kind, declare it"
    else:
        is_offset = False
        if owner == "token" and rows.shape[1] == dim:
            offset, spread = view.offset_and_spread(name)
            is_offset = offset > spread
        kind, reason, is_guess = _propose_kind(name, rows, dim, is_offset, name in view.text, array.dtype.kind in "iub")
        if kind in ("scalar", "category") and view.fits_both(name, dim):
            wide = next(
                (k for k, known in _WORDS.items() if k in ("vector", "point") and words(name) & set(known.split())), None
            )
            number = f"{dim} columns of each sample, or a number for each of its {dim} tokens"
            kind, reason = (
                (wide, f"by its name: {number}") if wide else (kind, f"{number}; if it is a vector, say {name}:vector")
            )
            owner, is_guess = ("sample" if wide else owner), True
    dtype = view.text.get(name, str(array.dtype))
    return ProposedField(name, array.shape, dtype, low, high, owner, kind, reason, is_target=False, is_guess=is_guess)


def _mark_targets(fields: list[ProposedField]) -> list[ProposedField]:
    """Targets are what a name says is one; failing that, what belongs to samples while the rest belongs to tokens."""
    named = [f for f in fields if f.kind and words(f.name) & set(_TARGETS.split())]
    per_sample = [f for f in fields if f.kind and f.per == "sample"]
    if not named and len(per_sample) < sum(f.kind is not None for f in fields):
        named = per_sample
    targets = {f.name for f in named if f.per == named[0].per}
    return [replace(f, is_target=f.name in targets) for f in fields]


def is_one_hot(values: np.ndarray) -> bool:
    """Whether every row has a single 1 and else 0, not always in the same place."""
    binary = values.shape[1] > 1 and len(values) > 0 and bool(np.isin(values, (0, 1)).all() and (values.sum(1) == 1).all())
    return binary and not bool((values == values[0]).all())


def _propose_kind(
    name: str, values: np.ndarray, dim: int, is_offset: bool, is_text: bool, is_whole: bool
) -> tuple[str | None, str, bool]:
    """(kind, reason, is a guess) for rows of columns (rows, width).

    is_offset: the rows of a sample share a place far from 0; is_text: they number words; is_whole: they are integers.
    """
    width, classes = values.shape[1], len(np.unique(values)) if values.shape[1] == 1 else 0
    if is_text and classes < 2:
        return None, "the same word everywhere, which tells nothing", False
    if is_text:
        return "category", f"{classes} different words", False
    if is_one_hot(values):
        return f"scalar*{width}", f"{width} columns with a single 1 in each row: one-hot", False
    if is_whole and width == 1 and 1 < classes <= MOST_CLASSES:
        if words(name) & set(CODES.split()):
            return "category", f"by its name, and whole numbers with {classes} values", False
        if classes <= min(20, len(values) // 10):
            remark = f"whole numbers with {classes} values; if they are codes, say {name}:category"
            return "scalar", remark, not words(name) & set(_WORDS["scalar"].split())
    kind, reason = _propose_from_columns(name, values, dim, is_offset)
    is_guess = kind in ("vector", "point") and not reason.startswith("by its name")
    return kind, reason, is_guess


def _has_rotation(kind: str, dim: int) -> bool:
    """Whether a kind is written with a rotation in a dimension in which none is an angle or a quaternion."""
    return "rotation" in KINDS[kind].pieces and dim not in DIMENSIONS


def _propose_from_columns(name: str, values: np.ndarray, dim: int, is_offset: bool) -> tuple[str, str]:
    """(kind, reason) for rows of numbers; is_offset: the rows of a sample share a place far from 0."""
    width = values.shape[1]
    named = [kind for kind, known in _WORDS.items() if words(name) & set(known.split())]
    for kind in named:
        if not _has_rotation(kind, dim) and columns(kind, dim) == width:
            return kind, f"by its name, and a {kind} has {width} column{'s' * (width > 1)}"
    if dim == 3 and width == columns("motor", dim) and is_unit(values[:, : columns("rotation", dim)]):
        return "motor", "a unit quaternion and three more columns"
    if dim == 3 and width == columns("rotation", dim) and is_unit(values):
        return "rotation", "four columns of unit length: a quaternion"
    if width == 2 * dim and is_unit(values[:, :dim]):
        return "plane", "a unit normal and a point"
    if width == 2 * dim and is_unit(values[:, dim:]):
        return "line", "a point and a unit direction"
    if width == dim and is_unit(values):
        return "vector", f"{width} columns of unit length: a direction or normal"
    if width == dim and is_offset:
        return "point", f"{width} columns that move together with their sample"
    if width == dim:
        return "vector", f"{width} columns around 0; if it is a place, say {name}:point"
    if width == 1:
        return "scalar", "one column"
    return f"scalar*{width}", f"{width} columns that fit no geometric kind: {width} scalars"
