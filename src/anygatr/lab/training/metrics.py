"""How wrong predictions are: residuals that respect the kinds of fields, errors per sample, and the trivial predictor."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from anygatr.lab.data.dataset import Dataset
from anygatr.lab.data.kinds import roles
from anygatr.lab.data.task import Task

TRIMMED = 0.01
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


def sample_errors(differences: Mapping[str, Tensor], offsets: Tensor | None = None, scored: Tensor | None = None) -> Tensor:
    """The mean square over the tokens and columns of each sample, (B,); only scored tokens count."""
    return sample_means(torch.cat(list(differences.values()), -1).square().mean(-1), offsets, scored)


def sample_means(x: Tensor, offsets: Tensor | None = None, scored: Tensor | None = None) -> Tensor:
    """The mean over the scored tokens of each sample, (B,); what has no token axis is returned as it is."""
    if x.dim() == 2:
        return x.mean(1) if scored is None else (x * scored).sum(1) / scored.sum(1).clamp(min=1)
    if offsets is None or len(x) != int(offsets[-1]):
        return x
    counts = offsets.diff()
    sample = torch.arange(len(counts), device=x.device).repeat_interleave(counts)
    if scored is not None:
        x, counts = x * scored, torch.bincount(sample[scored], minlength=len(counts)).clamp(min=1)
    return x.new_zeros(len(counts)).index_add(0, sample, x) / counts


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
    differences = [residuals(guess, evaluation.fields, task) for guess in (mean, stays)]
    errors = [sample_errors(x, evaluation.offsets, evaluation.scored) for x in differences]
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
