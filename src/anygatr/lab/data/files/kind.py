"""A user's own files as a kind of data set: whatever has its fields declared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from anygatr.lab.config.commands import PredictConfig
from anygatr.lab.data.spec import DatasetKind, DataSpec

if TYPE_CHECKING:
    from anygatr.lab.data.dataset import Dataset


class UserFiles(DatasetKind):
    """.npz and .h5 files with declared fields."""

    name = "files"
    patience = 6

    def recognises(self, path: str) -> bool:
        """Never: fields that nobody declared cannot be known."""
        return False

    def load(self, spec: DataSpec) -> Dataset:
        """The declared fields, with splits given or made."""
        from anygatr.lab.data.files.dataset import load

        return load(
            spec.path,
            spec.inputs,
            spec.targets,
            dim=spec.dim,
            per=spec.per,  # type: ignore[arg-type]
            vocabulary=spec.vocabulary,
        )

    def load_inputs(self, spec: DataSpec, path: str, options: PredictConfig | None = None) -> Dataset:
        """The declared inputs of another file."""
        from anygatr.lab.data.files.dataset import load

        return load(path, spec.inputs, {}, dim=spec.dim, fractions=None, vocabulary=spec.vocabulary)

    def is_implied_by(self, record: Mapping[str, Any]) -> bool:
        """Declared inputs say so."""
        return bool(record["inputs"])
