"""What training minimises: the mean squared error, and a pull of predicted points towards homogeneous weight one."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from anygatr.interface.model import Model
from anygatr.lab.data.task import Task
from anygatr.lab.training.metrics import residuals, sample_errors
from anygatr.spaces import kinds
from anygatr.spaces.embeddings.points import point_weight


class Objective:
    """error + regulariser * penalty. The penalty, per sample, is the sum over tokens and predicted points of (|a| - 1)^2."""

    def __init__(self, module: nn.Module, task: Task, regulariser: float, units: "ErrorUnits | None" = None):
        self.task, self.units = task, units or ErrorUnits()
        self.points = _point_channels(module) if regulariser and isinstance(module, Model) else []
        self.regulariser = regulariser if self.points else 0.0
        self.geo = module.geo if isinstance(module, Model) else None
        self.net = module.net if isinstance(module, Model) else None

    def __call__(self, network: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """The objective and the error alone; `network` is the module, perhaps wrapped."""
        with self._outputs() as outputs:
            errors, _ = batch_errors(predicted(network, batch, self.task), batch, self.task, self.units)
        error = errors.mean()
        if not self.points or self.geo is None:
            return error, error
        weights = point_weight(self.geo.stored, outputs[0][..., self.points, :].float())
        return error + self.regulariser * (weights.abs() - 1).square().sum() / len(errors), error

    @contextmanager
    def _outputs(self) -> Iterator[list[Tensor]]:
        """The multivectors that the network puts out meanwhile."""
        outputs: list[Tensor] = []
        if not self.points or self.net is None:
            yield outputs
            return
        handle = self.net.register_forward_hook(lambda module, arguments, out: outputs.append(out[0]))
        try:
            yield outputs
        finally:
            handle.remove()


def predicted(network: nn.Module, batch: Mapping[str, Tensor], task: Task) -> dict[str, Tensor]:
    """What a network says about the inputs of a batch."""
    return network(**{name: batch[name] for name in task.inputs}, offsets=batch.get("offsets"))


@dataclass(frozen=True)
class ErrorUnits:
    """In which units errors are: the scale of each target's columns, and the weights of several targets."""

    scale: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)

    def restored(self, differences: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Differences of normalised fields in the data's own units."""
        return {name: r * r.new_tensor(self.scale[name]) if name in self.scale else r for name, r in differences.items()}


def batch_errors(
    out: Mapping[str, Tensor], batch: Mapping[str, Tensor], task: Task, units: ErrorUnits
) -> tuple[Tensor, Tensor]:
    """The error of each sample of a batch of normalised fields: as they are, and in the data's own units.

    Of several targets both are the weighted sum, which has no unit.
    """
    layout = batch.get("offsets"), batch.get("scored")
    differences = residuals(out, batch, task)
    own = sample_errors(units.restored(differences), *layout, units.weights)
    return (own if units.weights else sample_errors(differences, *layout)), own


@torch.no_grad()
def errors_of(
    network: nn.Module, batches: Iterable[Mapping[str, Tensor]], task: Task, units: ErrorUnits
) -> tuple[Tensor, Tensor]:
    """The errors of every sample: normalised, and in the data's own units."""
    pairs = [batch_errors(predicted(network, batch, task), batch, task, units) for batch in batches]
    normalised, own = zip(*pairs, strict=True)
    return torch.cat(normalised), torch.cat(own)


def _point_channels(module: Model) -> list[int]:
    """The output channels from which points are read."""
    parts = [
        part for field in module.targets.fields for _ in range(field.count) for part in kinds.parts(module.geo, field.kind)
    ]
    return [channel for channel, part in enumerate(parts) if part == "point"] if module.geo.point != "relative" else []
