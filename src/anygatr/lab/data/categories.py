"""Categories in files: names or numbers of classes become the codes 0, 1, ..., the same for every file of a run."""

from collections.abc import Iterable, Mapping

import numpy as np

from anygatr.lab.data.kinds import declared_count, is_category, nearest

Class = str | int
Vocabulary = Mapping[str, tuple[Class, ...]]
FEW = 12
"""Classes that a message lists."""


def category_vocabulary(
    kinds: Mapping[str, str], parts: Iterable[Mapping[str, np.ndarray]], known: Vocabulary
) -> dict[str, tuple[Class, ...]]:
    """The classes of each category: those that are known, or all that occur, sorted.

    A category that is declared with a count, as in category*14, has codes already and no vocabulary.
    """
    parts, found = list(parts), dict[str, tuple[Class, ...]]()
    for name in (name for name, kind in kinds.items() if is_category(kind) and declared_count(kind) is None):
        if name in known:
            found[name] = tuple(known[name])
            continue
        values = np.unique(np.concatenate([_plain(name, arrays[name]).ravel() for arrays in parts]))
        if len(values) < 2:
            raise ValueError(f"the field {name!r} has a single class, {values.tolist()}, which tells nothing; leave it out")
        found[name] = tuple(values.tolist())
    return found


def to_codes(name: str, array: np.ndarray, classes: tuple[Class, ...]) -> np.ndarray:
    """The code of every entry; raises for a class that is not in the vocabulary."""
    values = _plain(name, array)
    order = {value: code for code, value in enumerate(classes)}
    distinct, inverse = np.unique(values, return_inverse=True)
    for value in distinct.tolist():
        if value not in order:
            some = ", ".join(map(str, classes[:FEW])) + (", ..." if len(classes) > FEW else "")
            hint = nearest(value, [str(c) for c in classes]) if isinstance(value, str) else f"known: {some}"
            hint = hint if hint.startswith("known") else f"{hint} Known: {some}"
            raise ValueError(f"the field {name!r} has the category {value!r}, which was not there in training; {hint}")
    codes = np.array([order[value] for value in distinct.tolist()], dtype=np.int64)
    return codes[inverse].reshape(values.shape)


def _plain(name: str, array: np.ndarray) -> np.ndarray:
    """Text as str, whole numbers as integers; anything else is no category."""
    array = np.asarray(array)
    if array.dtype.kind in "US":
        return np.char.strip(array.astype(str))
    if array.dtype.kind in "iub":
        return array.astype(np.int64)
    if array.dtype.kind == "f" and bool((array == np.round(array)).all()):
        return array.astype(np.int64)
    raise ValueError(f"the field {name!r} holds {array.dtype}; a category needs whole numbers or names")
