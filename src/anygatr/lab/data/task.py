"""Task: what a model is asked to do, as its constructor and its evaluation need to know it."""

from dataclasses import asdict, dataclass, field
from typing import Any

from anygatr.lab.data.dataset import Dataset

OPTIONAL = ("reinsert", "vocabulary")
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

    @classmethod
    def of(cls, data: Dataset) -> "Task":
        """The task that a data set poses."""
        return cls(data.input_kinds, data.target_kinds, data.dim, data.per, data.reinsert, data.vocabulary)

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "Task":
        """The inverse of `to_json`."""
        vocabulary = {name: tuple(classes) for name, classes in record.get("vocabulary", {}).items()}
        return cls(**record | {"reinsert": tuple(record.get("reinsert", ())), "vocabulary": vocabulary})

    def to_json(self) -> dict[str, Any]:
        """Plain values for a run's configuration file; what is empty is left out, so that older files stay the same."""
        return {key: value for key, value in asdict(self).items() if key not in OPTIONAL or value}
