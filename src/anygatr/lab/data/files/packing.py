"""Samples of different size, one after the other, with the offsets at which each begins."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

Fields = dict[str, np.ndarray]


def packed(samples: Iterable[Mapping[str, Any]], rows: str) -> Fields:
    """Samples as one: arrays with a row per token joined, numbers of a sample stacked, and `offsets` (B + 1,).

    `rows` names the array that counts tokens; only what all samples have is kept.
    """
    samples = list(samples)
    if not samples:
        raise ValueError("there are no samples; give at least one")
    counts = np.array([len(sample[rows]) for sample in samples])
    names = [name for name in samples[0] if all(name in sample for sample in samples)]
    fields: Fields = {}
    for name in names:
        arrays = [np.asarray(sample[name]) for sample in samples]
        is_of_tokens = all(array.ndim and len(array) == n for array, n in zip(arrays, counts, strict=True))
        fields[name] = np.concatenate(arrays) if is_of_tokens else np.stack(arrays)
    return fields | {"offsets": np.concatenate([[0], np.cumsum(counts)])}
