"""A trained run in Python: its model, predictions in the units of its data, its certificate, its export."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from anygatr.files.whole import replacing
from anygatr.interface.conservative import ConservativeModel
from anygatr.interface.model import Model
from anygatr.interface.scaled import ScaledModel
from anygatr.lab.data.categories import to_codes
from anygatr.lab.data.kinds import columns, is_category, nearest
from anygatr.lab.training.run import CONFIG, RESULT, WEIGHTS, TrainingRun
from anygatr.testing import Certificate, certify


def load_run(directory: str | Path) -> "TrainedRun":
    """The run that `anygatr train --out` or a comparison has written: `load_run("runs/x").predict(position=..., mass=...)`.

    The data it was trained on are not needed.
    """
    return TrainedRun(TrainingRun.open(directory))


class TrainedRun:
    """A run with its best weights.

    `model` is a module between fields in the units of the data; `inputs` and `targets` are their kinds by name.
    """

    def __init__(self, run: TrainingRun):
        self.run = run
        units = run.units
        change = units.normaliser
        self.model = ScaledModel(run.module(), change.shift, change.scale, units.per_token, units.per_class).eval()

    def __repr__(self) -> str:
        fields = [", ".join(f"{name}:{kind}" for name, kind in side.items()) for side in (self.inputs, self.targets)]
        return f"<run {self.run.directory}: {self.run.recipe.model}, {fields[0]} -> {fields[1]}>"

    @property
    def inputs(self) -> dict[str, str]:
        """The input fields and their kinds."""
        return dict(self.run.task.inputs)

    @property
    def targets(self) -> dict[str, str]:
        """The predicted fields and their kinds."""
        return dict(self.run.task.targets)

    @property
    def network(self) -> nn.Module:
        """The network itself, which works in normalised units."""
        return self.model.model

    @property
    def row(self) -> dict[str, Any] | None:
        """What was measured of it; None if the run is not finished."""
        return self.run.result

    def predict(self, *, mask: Any = None, offsets: Any = None, **fields: Any) -> dict[str, Tensor]:
        """The predicted fields, in the units of the data.

        Fields are arrays, tensors or lists by name: (n, columns) for one sample, (B, n, columns) for several of the same
        size, with a `mask` (B, n) of real tokens, or packed (N, columns) with `offsets` (B + 1,). Single numbers and
        categories, which may be names, have no last axis. Predictions of one sample have no axis of samples.
        """
        values = self.tensors(fields)
        axis = offsets is None and self._is_one_sample(values)
        values = {name: x.unsqueeze(0) for name, x in values.items()} if axis else values
        layout = {} if offsets is None else {"offsets": torch.as_tensor(np.asarray(offsets)).long()}
        if mask is not None:
            real = torch.as_tensor(np.asarray(mask)).bool()
            layout |= {"mask": real.unsqueeze(0) if axis else real}
        with torch.no_grad():
            out = self.model(**values, **layout)
        return {name: x.squeeze(0) for name, x in out.items()} if axis else out

    def tensors(self, fields: dict[str, Any]) -> dict[str, Tensor]:
        """Named arrays as the tensors that `model` takes: numbers in float64, categories as codes."""
        kinds = self.inputs
        for name in fields:
            if name not in kinds:
                raise ValueError(f"there is no input field {name!r}; {nearest(name, kinds)}")
        if missing := [name for name in kinds if name not in fields]:
            raise ValueError(f"the input field {missing[0]!r} is missing; this run takes {', '.join(kinds)}")
        return {name: self._tensor(name, x) for name, x in fields.items()}

    def certify(self) -> Certificate:
        """How equivariant the network is, layer by layer and generator by generator."""
        network = self.network
        return certify(network.model if isinstance(network, ConservativeModel) else network)

    def save(self, path: str | Path) -> Path:
        """Write a copy of the run without its training state: all that `load_run` and `anygatr predict` need."""
        path = Path(path)
        if path.exists() and any(path.iterdir() if path.is_dir() else [path]):
            raise ValueError(f"path={str(path)!r} exists; choose a directory that does not")
        path.mkdir(parents=True, exist_ok=True)
        for name in (WEIGHTS, RESULT, CONFIG):
            if (self.run.directory / name).exists():
                with replacing(path / name) as temporary:
                    shutil.copyfile(self.run.directory / name, temporary)
        return path

    def export(self, path: str | Path, mask: bool = False) -> Path:
        """Write the model with its units as a graph: ONNX (.onnx), or what `torch.export.load` reads (.pt2).

        The graph takes fields in the units of the data, (samples, tokens, columns), categories as codes; with `mask=True`
        a mask of real tokens as well. What it gives is in the units of the data.
        """
        from anygatr.export import program, to_onnx

        path, network = Path(path), self.network
        if not isinstance(network, Model):
            what = "forces by differentiation" if isinstance(network, ConservativeModel) else self.run.recipe.model
            raise ValueError(f"{self.run.directory} has {what}, which cannot be exported; GATrs without them can")
        if path.suffix == ".onnx":
            to_onnx(self.model, path, mask)
        elif path.suffix == ".pt2":
            with replacing(path) as temporary:
                torch.export.save(program(self.model, mask), temporary)
        else:
            raise ValueError(f"path={str(path)!r} has the unknown suffix {path.suffix!r}; end it in .onnx or .pt2")
        return path

    def _tensor(self, name: str, x: Any) -> Tensor:
        task = self.run.task
        if is_category(task.inputs[name]):
            array = x.numpy() if isinstance(x, Tensor) else np.asarray(x)
            known = task.vocabulary.get(name)
            return torch.as_tensor(array if known is None else to_codes(name, array, known)).long()
        return x.double() if isinstance(x, Tensor) else torch.from_numpy(np.array(x, dtype=np.float64))

    def _is_one_sample(self, values: dict[str, Tensor]) -> bool:
        """Whether fields are those of one sample: no axis in front of tokens and columns."""
        task = self.run.task
        return all(x.dim() == (1 if columns(task.inputs[name], task.dim) == 1 else 2) for name, x in values.items())
