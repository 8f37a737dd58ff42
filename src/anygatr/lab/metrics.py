"""How wrong predictions are: residuals that respect the kinds of fields, errors per sample, and the trivial predictor."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from anygatr.lab.data.dataset import Dataset
from anygatr.lab.data.kinds import roles
from anygatr.lab.task import Task

TRIMMED = 0.05
"""Share of the worst samples that the trimmed mean leaves out: close encounters of bodies have heavy tails."""


def residuals(predicted: Mapping[str, Tensor], true: Mapping[str, Tensor], task: Task) -> dict[str, Tensor]:
    """Predicted minus true, columns last. A quaternion is compared with the nearer of q and -q, an angle modulo 2 pi."""
    out = {}
    for name, kind in task.targets.items():
        parts = roles(kind, task.dim)
        widths = [width for _, width in parts]
        p, t = (x.unsqueeze(-1) if sum(widths) == 1 else x for x in (predicted[name], true[name]))
        pieces = zip(parts, p.split(widths, -1), t.split(widths, -1), strict=True)
        out[name] = torch.cat([_turned(a, b) if role == "rotor" else a - b for (role, _), a, b in pieces], -1)
    return out


def sample_errors(differences: Mapping[str, Tensor], offsets: Tensor | None = None) -> Tensor:
    """The mean square over the tokens and columns of each sample, (B,)."""
    squares = torch.cat(list(differences.values()), -1).square().mean(-1)
    if squares.dim() == 2:
        return squares.mean(1)
    if offsets is None or len(squares) != int(offsets[-1]):
        return squares
    counts = offsets.diff()
    sample = torch.arange(len(counts), device=squares.device).repeat_interleave(counts)
    return squares.new_zeros(len(counts)).index_add(0, sample, squares) / counts


def summary(errors: Tensor) -> dict[str, float]:
    """Mean, median and trimmed mean over samples."""
    kept = errors.sort().values[: max(1, round((1 - TRIMMED) * len(errors)))]
    return {"mse": float(errors.mean()), "median": float(errors.median()), "trimmed": float(kept.mean())}


def trivial_mse(train: Dataset, evaluation: Dataset) -> float:
    """The error of the best prediction that needs no learning, in the data's own units.

    Either the training mean, or the target left where an input of the same kind is (the centre of the sample's, if the
    target belongs to the sample).
    """
    task = Task.of(train)
    lead = (0, 1) if train.per == "token" and train.offsets is None else (0,)
    mean = {name: train.fields[name].mean(lead).expand_as(evaluation.fields[name]) for name in task.targets}
    stays = mean | {name: x for name, kind in task.targets.items() if (x := _resting(evaluation, kind)) is not None}
    errors = [sample_errors(residuals(guess, evaluation.fields, task), evaluation.offsets) for guess in (mean, stays)]
    return min(float(error.mean()) for error in errors)


def _turned(p: Tensor, t: Tensor) -> Tensor:
    """The difference of two rotations: of angles (one column) or unit quaternions (four)."""
    if p.shape[-1] == 1:
        return torch.remainder(p - t + math.pi, 2 * math.pi) - math.pi
    return p - torch.where((p * t).sum(-1, keepdim=True) < 0, -t, t)


def _resting(data: Dataset, kind: str) -> Tensor | None:
    """The first input of the target's kind, or its mean over each sample; None if there is no such input."""
    name = next((name for name, found in data.input_kinds.items() if found == kind), None)
    if name is None:
        return None
    x = data.fields[name]
    if data.per == "token":
        return x
    if data.offsets is None:
        return x.mean(1)
    return torch.stack([part.mean(0) for part in x.split(data.counts.tolist())])
