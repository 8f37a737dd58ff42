"""Warn of targets that may depend on how many tokens a sample has."""

import warnings

from anygatr.lab.data.dataset import Dataset


def warn_of_unseen_count(data: Dataset) -> None:
    """Warn where targets of whole samples may depend on their number of tokens, which averages cannot see.

    Attention and pooling are means: a sample with every token twice gives the same output to the last bit.
    """
    if data.per == "sample" and len(data.counts.unique()) > 1 and not _is_count_given(data):
        warnings.warn(
            f"samples have {int(data.counts.min())} to {int(data.counts.max())} tokens, a number that networks made of "
            "averages cannot see; if the target grows with it, save it as an array (B,) and declare it as a scalar input",
            stacklevel=2,
        )


def _is_count_given(data: Dataset) -> bool:
    """Whether some scalar input is the number of tokens."""
    counts = data.counts.repeat_interleave(data.counts)
    packed = data.packed()
    return any(bool((packed.fields[name] == counts).all()) for name, kind in data.input_kinds.items() if kind == "scalar")
