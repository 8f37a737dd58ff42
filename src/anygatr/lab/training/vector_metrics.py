"""How wrong a predicted field of vectors is: the error relative to the field, sample by sample, and its direction."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from anygatr.lab.data.normalise import Normaliser
from anygatr.lab.data.task import Task
from anygatr.lab.training.metrics import sample_means


@dataclass
class VectorMetrics:
    """Gathered over batches. With e the error and y the true vector of a token, means over the scored tokens of a sample:

    approximation error  sqrt(mean |e|^2 / mean |y|^2); its mean, median and 75th percentile over samples
    NMAE                 mean |e| / max |y|, the maximum over all tokens of all samples, scored or not; mean over samples
    cosine               mean of cos(y, prediction); mean over samples
    """

    name: str
    scale: tuple[float, ...]
    relative: list[Tensor] = field(default_factory=list)
    absolute: list[Tensor] = field(default_factory=list)
    cosine: list[Tensor] = field(default_factory=list)
    largest: float = 0.0

    @classmethod
    def of(cls, task: Task, normaliser: Normaliser) -> "VectorMetrics | None":
        """For the first vector that a task predicts at each token; None if it predicts none."""
        vectors = [name for name, kind in task.targets.items() if kind == "vector"]
        name = next((name for name in vectors if task.per_target(name) == "token"), None)
        return None if name is None else cls(name, normaliser.scale[name])

    def add(self, predicted: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> None:
        """Count the samples of a batch of normalised fields."""
        layout = batch.get("offsets"), batch.get("scored")
        p, t = (x.double() * x.new_tensor(self.scale, dtype=torch.float64) for x in (predicted[self.name], batch[self.name]))
        error, length = torch.linalg.vector_norm(p - t, dim=-1), torch.linalg.vector_norm(t, dim=-1)
        square = sample_means(length.square(), *layout).clamp(min=1e-300)
        self.relative.append((sample_means(error.square(), *layout) / square).sqrt())
        self.absolute.append(sample_means(error, *layout))
        self.cosine.append(sample_means(torch.nn.functional.cosine_similarity(p, t, dim=-1), *layout))
        self.largest = max(self.largest, float(length.max()))

    def summary(self) -> dict[str, float]:
        """The numbers of a row."""
        relative = torch.cat(self.relative)
        return {
            "approximation": float(relative.mean()),
            "approximation_median": float(relative.median()),
            "approximation_p75": float(relative.quantile(0.75)),
            "nmae": float(torch.cat(self.absolute).mean()) / max(self.largest, 1e-300),
            "cosine": float(torch.cat(self.cosine).mean()),
        }
