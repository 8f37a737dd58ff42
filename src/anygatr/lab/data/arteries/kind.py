"""Artery walls as a kind of data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anygatr.lab.config.commands import DataOptions, PredictConfig
from anygatr.lab.config.recipe import Preset
from anygatr.lab.data.arteries.config import ArteryConfig
from anygatr.lab.data.arteries.names import FULL, INFLOW, UNITS
from anygatr.lab.data.spec import DatasetKind, DataSpec

if TYPE_CHECKING:
    from rich.progress import Progress

    from anygatr.lab.data.dataset import Dataset


TOO_FAR = 3.0
"""A wall so many times larger or smaller than those of training is no wall of this unit."""


class Arteries(DatasetKind):
    """Artery walls with the stress of the flow: the published set, or one that we made."""

    name = "arteries"
    config = ArteryConfig
    preset: Preset = "arteries"
    units = UNITS
    shown = (FULL, "eval", "val")

    def recognises(self, path: str) -> bool:
        """By a group per artery with its surface and its stress."""
        if Path(path).suffix not in (".h5", ".hdf5"):  # other files are no reason to load h5py and scipy
            return False
        from anygatr.lab.data.arteries.fields import is_artery_file

        return is_artery_file(path)

    def settings(self, path: str, options: DataOptions) -> dict[str, Any]:
        """nodes: which nodes are seen in training, "corners" or "all"."""
        from anygatr.lab.data.arteries.fields import default_nodes

        older = options.nodes if isinstance(options.nodes, str) else None
        return {"nodes": options.wall or older or default_nodes(path)}

    def load(self, spec: DataSpec) -> Dataset:
        """The arteries, each in its fixed orientation."""
        from anygatr.lab.data.arteries.fields import load

        return load(spec.path, spec.settings["nodes"])

    def load_inputs(self, spec: DataSpec, path: str, options: PredictConfig | None = None) -> Dataset:
        """Walls from a file of arteries or of one surface; the options tell what the file lacks."""
        from anygatr.lab.data.arteries.fields import load_inputs

        if options is None:
            return load_inputs(path)
        return load_inputs(path, options.inlet, options.scale, options.inflow, options.extensions)

    def describe(self, spec: DataSpec) -> str:
        """How many there are and who made them."""
        from anygatr.lab.data.arteries.fields import describe

        return describe(spec.path)

    def hint(self, missing: set[str]) -> str:
        """The velocity at the inlet can be given on the command line."""
        return "; give it with --inflow" if INFLOW in missing else ""

    def refusal(self, found: Sequence[tuple[str, float, str]]) -> str | None:
        """A wall of another size than those of training is most likely in another unit."""
        wrong = next((sentence for name, factor, sentence in found if name == "position" and factor > TOO_FAR), None)
        return None if wrong is None else f"{wrong} cm; --scale says how many centimetres a unit of the file is, 0.1 for mm"

    def make(self, config: ArteryConfig, bar: Progress) -> str:
        """Solve the flow of as many random arteries as are missing."""
        from anygatr.lab.data.arteries.generate import generate

        task = bar.add_task(self.name, total=config.count)
        return str(generate(config, lambda state: bar.update(task, completed=state.done, total=state.total)))

    def is_implied_by(self, record: Mapping[str, Any]) -> bool:
        """Only walls have nodes to choose from."""
        return "nodes" in record
