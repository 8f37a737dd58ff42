"""How the arrays of a file count samples and tokens, found from their shapes alone."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from anygatr.lab.data.files.arrays import RESERVED, Arrays, checked_offsets
from anygatr.lab.data.files.checks import sample_of_rows


@dataclass(frozen=True)
class ArrayView:
    """The numeric arrays of one part of a file, and how their first axes count samples and tokens."""

    arrays: Arrays
    samples: int
    lead: tuple[int, ...]
    """Leading axes of an array with a row per token: (B, n), or (N,) when packed."""
    offsets: np.ndarray | None
    text: dict[str, str] = field(default_factory=dict)
    """The type of each array of text, of which `arrays` has the number of each word among all of them, sorted."""

    @classmethod
    def of(cls, arrays: Arrays) -> "ArrayView":
        """Count samples and tokens as most arrays do."""
        kept = {k: a for k, a in arrays.items() if k not in RESERVED and a.dtype.kind in "fiubUS" and a.size and a.ndim}
        text = {k: str(a.dtype) for k, a in kept.items() if a.dtype.kind in "US"}
        numbers = {k: np.unique(a, return_inverse=True)[1].reshape(a.shape) if k in text else a for k, a in kept.items()}
        if "offsets" in arrays:
            offsets = checked_offsets(arrays["offsets"])
            return cls(numbers, len(offsets) - 1, (int(offsets[-1]),), offsets, text)
        samples = _most_common([len(a) for a in numbers.values()], default=0)
        tokens = _most_common([a.shape[1] for a in numbers.values() if a.ndim > 2 and len(a) == samples], default=1)
        return cls(numbers, samples, (samples, tokens), None, text)

    @property
    def counts(self) -> np.ndarray:
        """Tokens in each sample."""
        return np.full(self.samples, self.lead[-1]) if self.offsets is None else np.diff(self.offsets)

    def owner(self, name: str) -> str:
        """token, sample, or `other` when the first axes of an array count neither."""
        shape = self.arrays[name].shape
        if shape[: len(self.lead)] == self.lead and not (self.lead[1:] == (1,) and len(shape) == 2):
            return "token"
        return "sample" if shape[0] == self.samples and len(shape) < 3 else "other"

    def fits_both(self, name: str, dim: int) -> bool:
        """Whether an array (B, d) may hold d columns for each sample as well as a number for each of its d tokens."""
        return self.offsets is None and self.arrays[name].shape == self.lead == (self.samples, dim)

    def rows(self, name: str) -> np.ndarray:
        """One row of columns per token or per sample, without rows that are not finite."""
        array = self.arrays[name]
        lead = len(self.lead) if self.owner(name) == "token" else 1
        rows = array.reshape(-1, *array.shape[lead:] or (1,)).astype(np.float64)
        rows = rows.reshape(len(rows), -1)
        return rows[np.isfinite(rows).all(axis=1)]

    def offset_and_spread(self, name: str) -> tuple[float, float]:
        """How far the points of a sample are from 0, and from their own centre (root mean squares)."""
        array = self.arrays[name].astype(np.float64)
        array = np.where(np.isfinite(array), array, np.nan)
        if self.offsets is None:
            centre = array.mean(axis=1, keepdims=True) if self.owner(name) == "token" else array
            within = array - centre
        else:
            sample = sample_of_rows(array, self.offsets)
            starts = self.offsets[:-1] if len(array) == self.offsets[-1] else np.arange(len(array))
            centre = np.add.reduceat(array, starts) / np.bincount(sample)[:, None]
            within = array - centre[sample]
        return float(np.sqrt(np.nanmean(centre**2))), float(np.sqrt(np.nanmean(within**2)))


def _most_common(values: list[int], default: int) -> int:
    return Counter(values).most_common(1)[0][0] if values else default
