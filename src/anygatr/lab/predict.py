"""Predict for new files with the best weights of a run."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from torch import Tensor, nn

from anygatr.lab.commands import PredictConfig
from anygatr.lab.data.dataset import Dataset
from anygatr.lab.runs import Run


def predict(config: PredictConfig) -> Path:
    """The command: predicted fields of every sample, in the units of the data, as a file."""
    out = Path(config.out)
    if out.suffix not in (".npz", ".h5"):
        raise ValueError(f"out={config.out!r} has the unknown suffix {out.suffix!r}; end it in .npz or .h5")
    run = Run.open(config.run)
    data = run.source.load_inputs(config.data)
    if run.task.dim != data.dim or run.task.inputs != data.input_kinds:
        raise ValueError(f"data={config.data!r} has {data}, but {config.run} was trained on {run.task.inputs}")
    fields = {name: x.numpy() for name, x in predictions(run, run.module(), data, config.batch).items()}
    if data.offsets is not None:
        fields["offsets"] = data.offsets.numpy()
    write_arrays(out, fields)
    Console().print(f"{len(data)} predictions of {', '.join(run.task.targets)} in {out}", highlight=False, soft_wrap=True)
    return out


@torch.no_grad()
def predictions(run: Run, module: nn.Module, data: Dataset, batch: int = 64) -> dict[str, Tensor]:
    """The predicted fields of every sample, in the units of the data."""
    normalised = replace(data, fields=run.normaliser.apply({name: data.fields[name] for name in run.task.inputs}))
    parts = [module(**fields) for fields in normalised.batches(batch)]
    return run.normaliser.undo({name: torch.cat([part[name] for part in parts]) for name in run.task.targets})


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """A .npz or .h5 file that appears when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{os.getpid()}.{path.name}")
    if path.suffix == ".npz":
        np.savez(temporary, **arrays)  # type: ignore[arg-type]
    else:
        import h5py

        with h5py.File(temporary, "w") as file:
            for name, array in arrays.items():
                file[name] = array
    os.replace(temporary, path)
