"""Predictors of the n-body task without training: stay, inertia, and the best equivariant linear one by least squares."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from anygatr import geometry, linear_maps
from anygatr.lab.data.dataset import Dataset
from anygatr.lab.training.metrics import sample_errors, summary

# axes: b samples, n bodies, f features, x coordinates

TIME = 0.1
"""How long the bodies move: 100 steps of 0.001."""
Displacement = Callable[[Dataset], Float[Tensor, "b n x"]]


@dataclass(frozen=True)
class Linear:
    """d_i = sum_f c_f h_if, with vectors h_i that are linear in positions and velocities, and E(3)-equivariant."""

    coefficients: dict[str, float]

    @classmethod
    def fit(cls, train: Dataset) -> "Linear":
        """The coefficients with the least mean squared error on the training set."""
        features = vectors(train)
        columns = torch.stack([x.flatten() for x in features.values()], -1)
        moved = (train.fields["final"].double() - train.fields["position"].double()).reshape(-1, 1)
        found = torch.linalg.lstsq(columns, moved, driver="gelsd").solution.flatten().tolist()
        return cls(dict(zip(features, found, strict=True)))

    def __call__(self, data: Dataset) -> Float[Tensor, "b n x"]:
        """Where each body goes, relative to where it is."""
        return sum((self.coefficients[name] * x for name, x in vectors(data).items()), torch.zeros(()))


def vectors(data: Dataset) -> dict[str, Float[Tensor, "b n x"]]:
    """All that a linear map equivariant under motions and permutations can make of the bodies, masses being weights.

    Every map takes vectors to vectors, so it is made of the solver's maps from grade 1 to grade 1 (the identity alone), of
    a body's own vector and of means over the bodies, plain or weighted by mass. Translations leave positions only relative
    to the centre of mass.
    """
    own = _own_maps()
    position, velocity, mass = (data.fields[name].double() for name in ("position", "velocity", "mass"))
    weight = (mass / mass.sum(-1, keepdim=True)).unsqueeze(-1)
    centre, drift = ((weight * x).sum(-2, keepdim=True) for x in (position, velocity))
    found = {
        "position - centre": position - centre,
        "velocity - drift": velocity - drift,
        "drift": drift.expand_as(velocity),
        "mean position - centre": (position - centre).mean(-2, keepdim=True).expand_as(position),
        "mean velocity - drift": (velocity - drift).mean(-2, keepdim=True).expand_as(velocity),
    }
    return {f"{map_}({name})": x @ W.T for name, x in found.items() for map_, W in own.items()}


def predictors() -> dict[str, Displacement]:
    """The two that know nothing but physics at rest and without forces."""
    return {
        "stay": lambda data: torch.zeros_like(data.fields["position"].double()),
        "inertia": lambda data: TIME * data.fields["velocity"].double(),
    }


def errors(predict: Displacement, data: Dataset) -> dict[str, float]:
    """Mean, median and trimmed mean of the squared error, as of a trained model."""
    guess = data.fields["position"].double() + predict(data)
    differences: Mapping[str, Tensor] = {"final": guess - data.fields["final"].double()}
    return summary(sample_errors(differences))


def _own_maps() -> dict[str, Float[Tensor, "x x"]]:
    """The equivariant linear maps of Euclidean vectors, by formula."""
    euclidean = geometry("E")
    basis, vector = linear_maps(euclidean.symmetry), euclidean.algebra.grades == 1
    chosen = [m for m, pair in enumerate(basis.grades) if pair == (1, 1)]
    return {basis.names[m]: basis.tensor[m][vector][:, vector] for m in chosen}
