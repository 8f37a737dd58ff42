"""Names of splits: what others call valid or test is our val or eval."""

_SPLIT_NAMES = {
    "train": "train", "training": "train",
    "val": "val", "valid": "val", "validation": "val", "dev": "val",
    "test": "eval", "testing": "eval", "eval": "eval", "evaluation": "eval",
    "e3_generalization": "e3_generalization", "object_generalization": "object_generalization",
}  # fmt: skip


def split_name(word: str) -> str | None:
    """The name we give a split that others call `word` (test -> eval), or None if it names no split."""
    return _SPLIT_NAMES.get(word.lower())


def split_order(name: str) -> int:
    """Where a split stands in a list: train, val, eval, then the generalisation sets, then what we do not know."""
    known = list(dict.fromkeys(_SPLIT_NAMES.values()))
    return known.index(name) if name in known else len(known)
