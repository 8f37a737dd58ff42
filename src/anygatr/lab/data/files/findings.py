"""Warn about arrays and samples that will hurt training, each with a remedy."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from anygatr.lab.data.files.arrays import WHOLE
from anygatr.lab.data.files.checks import coincident_samples, nonfinite_samples, sample_digests
from anygatr.lab.data.files.propose import ProposedField, is_unit, words
from anygatr.lab.data.files.view import ArrayView
from anygatr.lab.data.token_counts import EXTENSIVE, share_of_count

FEW_SAMPLES = 100
FAR = 100.0
"""Offset over spread beyond which float32 squares of positions keep fewer than four digits of a squared distance."""
_AXIAL = {"angular", "torque", "magnetic", "spin", "vorticity", "omega"}
GROWS = "grows with the number of tokens"


@dataclass(frozen=True)
class Finding:
    """Something that will hurt, and what to do about it."""

    field: str
    problem: str
    remedy: str


def findings_of_arrays(view: ArrayView, fields: list[ProposedField], split: str) -> Iterator[Finding]:
    """What is wrong with single arrays."""
    of_split = "" if split == WHOLE else f" of {split}"
    for f in fields:
        if f.kind is None or f.name not in view.arrays:
            continue
        array, rows = view.arrays[f.name], view.rows(f.name)
        if len(bad := nonfinite_samples(array, view.offsets)):
            problem = f"{len(bad)} samples{of_split}, the first is {bad[0]}, hold NaN or infinite values"
            yield Finding(f.name, problem, "remove or repair them: loading refuses them")
        elif f.kind == "point" and f.per == "token" and len(bad := coincident_samples(array, view.offsets)):
            problem = f"{len(bad)} samples{of_split}, the first is {bad[0]}, hold points that coincide"
            yield Finding(f.name, problem, "check for bodies stored twice; directions between them are undefined")
        constant = np.flatnonzero(rows.min(axis=0) == rows.max(axis=0)) if len(rows) else np.array([])
        if len(constant) and len(rows) > 1:
            problem = f"column{'s' * (len(constant) > 1)} {', '.join(map(str, constant))}{of_split} never change"
            yield Finding(f.name, problem, "a network learns nothing from them; check that this is meant")
        yield from _findings_of_kind(f, view, rows)


def findings_of_samples(views: dict[str, ArrayView]) -> Iterator[Finding]:
    """What is wrong with the samples as a whole."""
    counts = np.concatenate([view.counts for view in views.values()])
    if len(counts) < FEW_SAMPLES:
        yield Finding("samples", f"only {len(counts)}", f"errors will be uncertain; bring at least {FEW_SAMPLES}")
    if any(view.counts.min() != view.counts.max() for view in views.values()):
        problem = f"ragged: {counts.min()} to {counts.max()} tokens, {np.median(counts):g} in the middle"
        yield Finding("samples", problem, "nothing to do, batches are packed; memory follows the largest samples")
    digests = {
        split: sample_digests([a for k, a in view.arrays.items() if view.owner(k) != "other"], view.offsets)
        for split, view in views.items()
    }
    repeated = sum(len(d) - len(set(d)) for d in digests.values())
    if repeated:
        yield Finding("samples", f"{repeated} repeat an earlier one bit for bit", "remove the copies before splitting")
    shared = sum(len(set(digests[a]) & set(digests[b])) for a, b in combinations(digests, 2))
    if shared:
        yield Finding("splits", f"{shared} samples occur in two of them", "remove them: the test would not be one")


def findings_of_counts(views: dict[str, ArrayView], fields: list[ProposedField]) -> Iterator[Finding]:
    """Targets of whole samples that grow with their number of tokens, which a mean over tokens cannot follow."""
    for f in fields:
        if not (f.is_target and f.per == "sample" and f.kind == "scalar"):
            continue
        share = share_of_count(
            np.concatenate([view.arrays[f.name].ravel() for view in views.values()]),
            np.concatenate([view.counts for view in views.values()]),
        )
        if share >= EXTENSIVE:
            yield Finding(f.name, f"{GROWS}, which explains {share:.0%} of its variance", "sum over tokens: --pool sum")


def _findings_of_kind(f: ProposedField, view: ArrayView, rows: np.ndarray) -> Iterator[Finding]:
    """What is wrong with an array if it is of the proposed kind."""
    if f.kind == "point" and view.arrays[f.name].dtype.itemsize < 8 and f.per == "token":
        offset, spread = view.offset_and_spread(f.name)
        if offset > FAR * spread > 0:
            problem = f"{f.dtype} positions lie {offset / spread:.2g} times their spread away from 0, which costs digits"
            yield Finding(f.name, problem, "save them as float64, or subtract each sample's centre before rounding")
    if f.kind == "vector" and is_unit(rows):
        yield Finding(f.name, "rows have unit length: normals or directions", "with a point each, declare a plane or line")
    if f.kind in ("rotation", "motor") and rows.shape[1] >= 4:
        if not is_unit(rows[:, :4]):
            yield Finding(f.name, "quaternions are not of unit length", "normalise them, or choose another kind")
        elif np.abs(rows[:, 0]).mean() > 1.5 * np.abs(rows[:, 1:4]).mean(axis=0).max():
            yield Finding(f.name, "the first column dominates: it looks like w", "store quaternions as x, y, z, w")
    if f.kind == "vector" and words(f.name) & _AXIAL:
        yield Finding(f.name, "by its name an axial vector", "it turns as a vector but not under mirrors: use mirrors=False")
    if f.kind == "scalar" and len(rows) and rows.min() > 0 and rows.max() > 1e4 * np.median(rows):
        yield Finding(f.name, "spans many orders of magnitude", "store its logarithm")
