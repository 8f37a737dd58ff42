"""How wrong predictions are: residuals that respect the kinds of fields, errors per sample and target, what to beat."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from anygatr.lab.baselines.closed_forms import closed_forms
from anygatr.lab.data.dataset import Dataset
from anygatr.lab.data.kinds import roles
from anygatr.lab.data.task import Task

Layout = tuple[Tensor | None, Tensor | None]
"""Offsets of a packed batch, and its scored tokens."""
Weighting = Mapping[str, float]
TRIMMED = 0.01
"""Share of the worst samples that the trimmed mean leaves out: close encounters of bodies have heavy tails."""


def residuals(predicted: Mapping[str, Tensor], true: Mapping[str, Tensor], task: Task) -> dict[str, Tensor]:
    """Predicted minus true, columns last. A quaternion is compared with the nearer of q and -q, an angle modulo 2 pi."""
    out = {}
    for name, kind in task.targets.items():
        parts = roles(kind, task.dim)
        widths = [width for _, width in parts]
        p, t = predicted[name], true[name]
        if p.shape != t.shape:
            raise ValueError(
                f"{name} is predicted with shape {tuple(p.shape)}, but its true values have {tuple(t.shape)}; torch would "
                "broadcast them against each other: give both the same shape"
            )
        p, t = (x.unsqueeze(-1) if sum(widths) == 1 else x for x in (p, t))
        pieces = zip(parts, p.split(widths, -1), t.split(widths, -1), strict=True)
        out[name] = torch.cat([_turned(a, b) if role == "rotor" else a - b for (role, _), a, b in pieces], -1)
    return out


def sample_errors(
    differences: Mapping[str, Tensor],
    offsets: Tensor | None = None,
    scored: Tensor | None = None,
    weights: Weighting | None = None,
) -> Tensor:
    """The mean square over the tokens and columns of each sample, (B,); only scored tokens count.

    With weights, the mean over the targets of their mean squares times their weights.
    """
    if not weights:
        return sample_means(torch.cat(list(differences.values()), -1).square().mean(-1), offsets, scored)
    each = [weights[name] * sample_means(x.square().mean(-1), offsets, scored) for name, x in differences.items()]
    return torch.stack(each).mean(0)


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


@dataclass
class TargetMetrics:
    """Gathered over batches: RMSE, MAE and R2 of each target over its columns, means over tokens and then over samples.

    R2 is one minus the squared error over the squared distance of the targets from their mean, columns added up.
    """

    squares: dict[str, list[Tensor]] = field(default_factory=dict)
    absolutes: dict[str, list[Tensor]] = field(default_factory=dict)
    moments: dict[str, list[Tensor]] = field(default_factory=dict)

    def add(self, differences: Mapping[str, Tensor], true: Mapping[str, Tensor], layout: Layout) -> None:
        """Count the samples of a batch: predicted minus true and true, in the data's own units."""
        for name, difference in differences.items():
            r, t = difference.double(), true[name].double().reshape(difference.shape)
            self.squares.setdefault(name, []).append(sample_means(r.square().mean(-1), *layout))
            self.absolutes.setdefault(name, []).append(sample_means(r.abs().mean(-1), *layout))
            both = [sample_means(x, *layout) for x in (*t.unbind(-1), *t.square().unbind(-1))]
            self.moments.setdefault(name, []).append(torch.stack(both, -1))

    def summary(self) -> dict[str, dict[str, float]]:
        """The numbers of every target."""
        out = {}
        for name in self.squares:
            square = float(torch.cat(self.squares[name]).mean())
            first, second = torch.cat(self.moments[name]).mean(0).chunk(2)
            variance = float((second - first.square()).clamp(min=0).mean())
            numbers = {"rmse": math.sqrt(square), "mae": float(torch.cat(self.absolutes[name]).mean())}
            out[name] = numbers | ({"r2": 1 - square / variance} if variance > 0 else {})
        return out


def summary_of(errors: Tensor, targets: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Mean, median and trimmed mean of the errors of samples, and RMSE, MAE and R2: of the target, or of each of several."""
    if len(targets) == 1:
        return summary(errors) | dict(next(iter(targets.values())))
    return summary(errors) | {"targets": {name: dict(numbers) for name, numbers in targets.items()}}


def baseline_metrics(train: Dataset, parts: Mapping[str, Dataset], weights: Weighting) -> dict[str, dict[str, Any]]:
    """What predictors without training achieve, measured as a model is: part -> predictor -> numbers."""
    task, predictors = Task.of(train), closed_forms(train)
    out: dict[str, dict[str, Any]] = {}
    for part, data in parts.items():
        layout, out[part] = (data.offsets, data.scored), {}
        for name, predict in predictors.items():
            differences, found = residuals(predict(data), data.fields, task), TargetMetrics()
            found.add(differences, data.fields, layout)
            out[part][name] = summary_of(sample_errors(differences, *layout, weights), found.summary())
    return out


def target_weights(train: Dataset) -> dict[str, float]:
    """The weight of each of several targets: one over its squared error without learning; none for a single target.

    Errors of several targets, each with a unit of its own, are added as shares of what predicting without learning gives.
    """
    if len(train.targets) < 2:
        return {}
    task, forms = Task.of(train), closed_forms(train)
    best = dict.fromkeys(train.targets, math.inf)
    for name in ("mean", "stay"):
        if name in forms:
            differences = residuals(forms[name](train), train.fields, task)
            for target, x in differences.items():
                best[target] = min(best[target], float(sample_errors({target: x}, train.offsets, train.scored).mean()))
    return {name: 1.0 / error if error > 0 else 1.0 for name, error in best.items()}


def trivial_mse(train: Dataset, evaluation: Dataset) -> float:
    """The error of the best prediction that needs no learning, the training mean or staying, in the data's own units."""
    found = baseline_metrics(train, {"it": evaluation}, target_weights(train))["it"]
    return min(found[name]["mse"] for name in ("mean", "stay") if name in found)


def _turned(p: Tensor, t: Tensor) -> Tensor:
    """The difference of two rotations: of angles (one column) or unit quaternions (four)."""
    if p.shape[-1] == 1:
        return torch.remainder(p - t + math.pi, 2 * math.pi) - math.pi
    return p - torch.where((p * t).sum(-1, keepdim=True) < 0, -t, t)
