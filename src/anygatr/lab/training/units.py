"""The units of a run: fields on their way to the network, predictions on their way back, and in what errors are counted."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from anygatr.interface.scaled import Shares, token_sums
from anygatr.lab.config.recipe import Recipe
from anygatr.lab.data.dataset import Dataset
from anygatr.lab.data.normalise import Normaliser, power_of_two
from anygatr.lab.data.spec import DataSpec
from anygatr.lab.data.task import Task
from anygatr.lab.data.token_sums import linear_in_tokens
from anygatr.lab.training.metrics import target_weights
from anygatr.lab.training.models import conservative_fields
from anygatr.lab.training.objective import ErrorUnits


@dataclass(frozen=True)
class RunUnits:
    """A change of unit for each field; for summed targets, what each token adds besides; the weights of several targets."""

    normaliser: Normaliser
    per_token: dict[str, float] = field(default_factory=dict)
    """Of targets that are sums over tokens, what a token contributes. Subtracted from what is learned, like a constant,
    which is in the normaliser: a network has to learn only what no linear predictor knows."""
    per_class: Shares = field(default_factory=dict)
    """Of such targets, what a token of each class contributes besides, as atoms do: target -> category -> numbers."""
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
            return cls(spec.normaliser(train), weights=weights)
        summed = [name for name, kind in train.target_kinds.items() if kind == "scalar" and train.is_per_sample(name)]
        sums = {name: linear_in_tokens(train, name) for name in summed}
        found = cls(
            spec.normaliser(train),
            {name: known.each for name, known in sums.items()},
            {name: known.classes for name, known in sums.items() if known.classes},
            weights,
        )
        fitted = spec.normaliser(found.without_tokens(train))
        tokens = power_of_two(float(train.counts.double().mean()))  # a sum of n tokens of order one is of order n
        shift = fitted.shift | {name: (known.constant,) for name, known in sums.items()}
        scale = fitted.scale | {name: (fitted.scale[name][0] / tokens,) for name in summed}
        return replace(found, normaliser=replace(fitted, shift=shift, scale=scale))

    @property
    def errors(self) -> ErrorUnits:
        """The units of errors of normalised fields."""
        return ErrorUnits(self.normaliser.scale, self.weights)

    def normalised(self, data: Dataset) -> Dataset:
        """The data as a network sees them."""
        return replace(data, fields=self.normaliser.apply(self.without_tokens(data).fields))

    def without_tokens(self, data: Dataset) -> Dataset:
        """The data without what tokens add to summed targets."""
        added = self._added({name: data.fields[name] for name in data.input_kinds}, data.offsets)
        return replace(
            data, fields=data.fields | {name: data.fields[name] - x for name, x in added.items() if name in data.fields}
        )

    def restored(
        self, predicted: Mapping[str, Tensor], inputs: Mapping[str, Tensor], offsets: Tensor | None
    ) -> dict[str, Tensor]:
        """Predictions for samples with these inputs in the units of the data, in float64."""
        fields = self.normaliser.undo(predicted)
        return fields | {name: fields[name] + x.to(fields[name]) for name, x in self._added(inputs, offsets).items()}

    def _added(self, inputs: Mapping[str, Tensor], offsets: Tensor | None) -> dict[str, Tensor]:
        """What the tokens of each sample add to summed targets."""
        return token_sums(inputs, self.per_token, self.per_class, None, offsets)

    def to_json(self) -> dict[str, Any]:
        """Plain values for a run's configuration file; what is empty is left out, as in older files."""
        more = {"per_token": self.per_token, "per_class": self.per_class, "weights": self.weights}
        return {"normaliser": self.normaliser.to_json()} | {name: value for name, value in more.items() if value}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "RunUnits":
        """The inverse of `to_json`."""
        return cls(
            Normaliser.from_json(record["normaliser"]),
            record.get("per_token", {}),
            record.get("per_class", {}),
            record.get("weights", {}),
        )
