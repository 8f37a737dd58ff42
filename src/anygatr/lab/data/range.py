"""What training has seen of each input, and what of new data lies outside it."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from anygatr.lab.data.dataset import Dataset
from anygatr.lab.data.kinds import columns, roles

BEYOND = 2.0
"""Lengths of vectors and extents of samples may exceed those of training by this factor without a remark."""
MARGIN = 0.5
"""Numbers may lie outside their range in training by this share of it without a remark."""


def seen_range(train: Dataset) -> dict[str, Any]:
    """For each input the range of what motions do not change.

    Of positions, how far the tokens of a sample are from their centre; of vectors, their length; of numbers, themselves.
    """
    found: dict[str, Any] = {}
    for name, (what, values) in _measured(train):
        finite = values[values.isfinite()]
        if len(finite):
            found[name] = {"what": what, "low": float(finite.min()), "high": float(finite.max())}
    return found


def outside(data: Dataset, seen: Mapping[str, Any]) -> list[tuple[str, float, str]]:
    """(field, factor, sentence) for each input of which new data have more, or less, than training has seen."""
    found = []
    for name, (what, values) in _measured(data):
        if name not in seen or not len(values):
            continue
        low, high = float(seen[name]["low"]), float(seen[name]["high"])
        least, most = float(values.min()), float(values.max())
        if what == "number":
            slack = MARGIN * (high - low)
            factor = max(low - slack - least, most - high - slack) / max(high - low, 1e-300)
            is_out = factor > 0
        else:
            # extents: the smallest of them, so that one small sample among others is no reason to speak
            factor = max(most / high if high > 0 else 1.0, low / most if most > 0 and what == "extent" else 1.0)
            is_out = factor > BEYOND
        if is_out:
            sentence = f"{name}: {NAMES[what]} {least:.3g} to {most:.3g}, in training {low:.3g} to {high:.3g}"
            found.append((name, factor, sentence))
    return found


NAMES = {"extent": "samples extend over", "length": "vectors have lengths", "number": "values are"}


def _measured(data: Dataset) -> Iterator[tuple[str, tuple[str, Tensor]]]:
    data = data.packed()
    sample = torch.arange(len(data)).repeat_interleave(data.counts)
    for name, kind in data.input_kinds.items():
        parts, width = roles(kind, data.dim), columns(kind, data.dim)
        role, size = parts[0]
        if role == "code":
            continue
        x = data.fields[name].double().reshape(-1, width)[:, :size]
        if role == "position":
            yield name, ("extent", _extents(x, sample, data.counts))
        elif role == "free":
            yield name, ("length", torch.linalg.vector_norm(x, dim=-1))
        elif role == "invariant":
            yield name, ("number", x.flatten())


def _extents(x: Tensor, sample: Tensor, counts: Tensor) -> Tensor:
    """The largest distance of a point from the centre of its sample, (B,)."""
    centre = x.new_zeros(len(counts), x.shape[-1]).index_add(0, sample, x) / counts.unsqueeze(-1)
    away = torch.linalg.vector_norm(x - centre[sample], dim=-1)
    return away.new_zeros(len(counts)).scatter_reduce(0, sample, away, "amax")
