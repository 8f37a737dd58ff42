"""Task: what a model is asked to do, as its constructor and its evaluation need to know it."""

from dataclasses import asdict, dataclass
from typing import Any

from anygatr.lab.data.dataset import Dataset


@dataclass(frozen=True)
class Task:
    """Named input and target fields with their kinds, in R^dim; targets belong to each token or to each sample."""

    inputs: dict[str, str]
    targets: dict[str, str]
    dim: int
    per: str

    @classmethod
    def of(cls, data: Dataset) -> "Task":
        """The task that a data set poses."""
        return cls(data.input_kinds, data.target_kinds, data.dim, data.per)

    def to_json(self) -> dict[str, Any]:
        """Plain values for a run's configuration file."""
        return asdict(self)
