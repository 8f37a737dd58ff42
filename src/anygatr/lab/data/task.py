"""Task: what a model is asked to do, as its constructor and its evaluation need to know it."""

from dataclasses import asdict, dataclass, field
from typing import Any

from anygatr.lab.data.dataset import Dataset

OPTIONAL = ("reinsert", "vocabulary", "token_targets")
"""What a configuration file leaves out where it is empty."""


@dataclass(frozen=True)
class Task:
    """Named input and target fields with their kinds, in R^dim; targets belong to each token or to each sample."""

    inputs: dict[str, str]
    targets: dict[str, str]
    dim: int
    per: str
    reinsert: tuple[str, ...] = ()
    """Inputs that every query and key of a GATr sees again."""
    vocabulary: dict[str, tuple[str | int, ...]] = field(default_factory=dict)
    """The classes of each category, in the order of their codes."""
    token_targets: tuple[str, ...] = ()
    """With per="sample", the targets that belong to tokens nevertheless."""

    @classmethod
    def of(cls, data: Dataset) -> "Task":
        """The task that a data set poses."""
        fields = data.input_kinds, data.target_kinds, data.dim, data.per
        return cls(*fields, data.reinsert, data.vocabulary, data.token_targets)

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "Task":
        """The inverse of `to_json`."""
        vocabulary = {name: tuple(classes) for name, classes in record.get("vocabulary", {}).items()}
        tuples = {name: tuple(record.get(name, ())) for name in ("reinsert", "token_targets")}
        return cls(**record | tuples | {"vocabulary": vocabulary})

    def per_target(self, name: str) -> str:
        """Whether a target belongs to each token or to each sample."""
        return "token" if name in self.token_targets else self.per

    def to_json(self) -> dict[str, Any]:
        """Plain values for a run's configuration file; what is empty is left out, so that older files stay the same."""
        return {key: value for key, value in asdict(self).items() if key not in OPTIONAL or value}
