"""The least error of predictions that follow mirrors: exact where a sample is its own mirror image."""

from collections.abc import Mapping

import torch

from anygatr.lab.data.dataset import Dataset
from anygatr.lab.data.mirrors import Mirror, moved_field, samples_with_mirrors, space_of
from anygatr.lab.data.task import Task
from anygatr.lab.training.metrics import residuals, sample_errors


def mirror_bound(data: Dataset, weights: Mapping[str, float]) -> dict[str, float] | None:
    """The least mean squared error that any mirror-symmetric prediction has on these data; None where no sample tells.

    Such a prediction f has f(M x) = M f(x). If M x = x for the inputs of a sample, f(x) = M f(x): the nearest that it can
    come to a target y is (y + M y) / 2, and |y - M y| / 2 remains. Samples without such a mirror count as zero, so this is
    a lower bound; it is exact where all samples have one and no more than one, as flat ones.
    """
    geo, task = space_of(data), Task.of(data)
    if geo is None:
        return None
    errors, symmetric = [], 0
    for sample, mirror in samples_with_mirrors(data, geo):
        if mirror is None:
            errors.append(0.0)
            continue
        symmetric += 1
        image = {}
        for name, kind in task.targets.items():
            turned = moved_field(geo, kind, sample.fields[name], mirror.matrix, mirror.shift)
            image[name] = _reordered(turned, mirror, task.per_target(name))
        halves = {name: 0.5 * x for name, x in residuals(image, sample.fields, task).items()}
        errors.append(float(sample_errors(halves, None, sample.scored, weights)))
    return {"mse": sum(errors) / len(errors), "share": symmetric / len(errors)} if symmetric else None


def _reordered(image: torch.Tensor, mirror: Mirror, per: str) -> torch.Tensor:
    """The image of a field, its tokens in the order of the sample's own."""
    return image if per == "sample" else torch.empty_like(image).index_copy(1, mirror.order, image)
