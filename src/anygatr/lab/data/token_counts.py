"""Targets that grow with the number of tokens of a sample: how much of one that explains, and a warning."""

import warnings

import numpy as np

from anygatr.lab.data.dataset import Dataset

EXTENSIVE = 0.5
"""Share of a target's variance from which on it is called proportional to the number of tokens."""


def share_of_count(target: np.ndarray, counts: np.ndarray) -> float:
    """The share of a target's variance that a straight line in the number of tokens explains, 0 to 1."""
    keep = np.isfinite(target)
    target, counts = target[keep].astype(np.float64), counts[keep].astype(np.float64)
    if len(target) < 3 or target.std() == 0 or counts.std() == 0:
        return 0.0
    return float(np.corrcoef(target, counts)[0, 1] ** 2)


def extensive_targets(data: Dataset) -> dict[str, float]:
    """The scalar targets of whole samples that grow with the number of tokens, and the share that this explains."""
    if data.per != "sample":
        return {}
    counts = data.counts.numpy()
    scalars = [name for name, kind in data.target_kinds.items() if kind == "scalar"]
    shares = {name: share_of_count(data.fields[name].numpy(), counts) for name in scalars}
    return {name: share for name, share in shares.items() if share >= EXTENSIVE}


def warn_of_unseen_count(data: Dataset, pool: str = "mean") -> None:
    """Warn where targets of whole samples may depend on their number of tokens, which averages cannot see.

    Attention and pooling by means: a sample with every token twice gives the same output to the last bit.
    """
    if data.per != "sample" or pool == "sum" or len(data.counts.unique()) == 1 or _is_count_given(data):
        return
    seen = f"samples have {int(data.counts.min())} to {int(data.counts.max())} tokens, a number that averages cannot see"
    found = extensive_targets(data)
    if found:
        named = " and ".join(f"{share:.0%} of {name}" for name, share in found.items())
        warnings.warn(f"{seen}, but it explains {named}: sum over tokens with --pool sum", stacklevel=2)
    else:
        warnings.warn(
            f"{seen}; if the target grows with it, sum over tokens with --pool sum, or declare it as a scalar input (B,)",
            stacklevel=2,
        )


def _is_count_given(data: Dataset) -> bool:
    """Whether some scalar input is the number of tokens."""
    counts = data.counts.repeat_interleave(data.counts)
    packed = data.packed()
    return any(bool((packed.fields[name] == counts).all()) for name, kind in data.input_kinds.items() if kind == "scalar")
