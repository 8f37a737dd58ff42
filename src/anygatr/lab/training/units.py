"""The units of a run: fields on their way to the network, predictions on their way back, and in what errors are counted."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from anygatr.lab.config.recipe import Recipe
from anygatr.lab.data.dataset import Dataset
from anygatr.lab.data.normalise import Normaliser
from anygatr.lab.data.spec import DataSpec
from anygatr.lab.data.task import Task
from anygatr.lab.training.metrics import target_weights
from anygatr.lab.training.models import conservative_fields
from anygatr.lab.training.objective import ErrorUnits


@dataclass(frozen=True)
class RunUnits:
    """A change of unit for each field; for summed targets, what each token adds besides; the weights of several targets."""

    normaliser: Normaliser
    per_token: dict[str, float] = field(default_factory=dict)
    """Of targets that are sums over tokens, the mean contribution of a token. Subtracted from what is learned: a sum of
    tokens has no constant that could be shifted by the mean."""
    weights: dict[str, float] = field(default_factory=dict)
    """Of several targets, one over the squared error of predicting without learning."""

    @classmethod
    def fit(cls, spec: DataSpec, train: Dataset, recipe: Recipe) -> "RunUnits":
        """Units from the training samples."""
        found = cls._fit(spec, train, recipe)
        if not recipe.conservative:
            return found
        place, energy, forces = conservative_fields(Task.of(train))
        scale = dict(found.normaliser.scale)
        scale[forces] = tuple(scale[energy][0] / length for length in scale[place])  # so that forces stay a gradient
        return replace(found, normaliser=replace(found.normaliser, scale=scale))

    @classmethod
    def _fit(cls, spec: DataSpec, train: Dataset, recipe: Recipe) -> "RunUnits":
        weights = target_weights(train)
        if recipe.pool != "sum" or train.per != "sample" or not spec.normalise:
            return cls(spec.normaliser(train), {}, weights)
        summed = [name for name, kind in train.target_kinds.items() if kind == "scalar" and train.is_per_sample(name)]
        per_token = {name: float(train.fields[name].sum() / train.counts.sum()) for name in summed}
        fitted = spec.normaliser(without_tokens(train, per_token))
        return cls(replace(fitted, shift=fitted.shift | dict.fromkeys(summed, (0.0,))), per_token, weights)

    @property
    def errors(self) -> ErrorUnits:
        """The units of errors of normalised fields."""
        return ErrorUnits(self.normaliser.scale, self.weights)

    def normalised(self, data: Dataset) -> Dataset:
        """The data as a network sees them."""
        return replace(data, fields=self.normaliser.apply(without_tokens(data, self.per_token).fields))

    def restored(self, predicted: Mapping[str, Tensor], counts: Tensor) -> dict[str, Tensor]:
        """Predictions for samples of so many tokens in the units of the data, in float64."""
        fields = self.normaliser.undo(predicted)
        return fields | {name: fields[name] + each * counts.to(fields[name]) for name, each in self.per_token.items()}

    def to_json(self) -> dict[str, Any]:
        """Plain values for a run's configuration file; what is empty is left out, as in older files."""
        more = {"per_token": self.per_token, "weights": self.weights}
        return {"normaliser": self.normaliser.to_json()} | {name: value for name, value in more.items() if value}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "RunUnits":
        """The inverse of `to_json`."""
        return cls(Normaliser.from_json(record["normaliser"]), record.get("per_token", {}), record.get("weights", {}))


def without_tokens(data: Dataset, per_token: Mapping[str, float]) -> Dataset:
    """The data without what each token adds to summed targets."""
    known = {name: each for name, each in per_token.items() if name in data.fields}
    return replace(data, fields=data.fields | {name: data.fields[name] - each * data.counts for name, each in known.items()})
