"""Predict for new files with the best weights of a run."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from anygatr.files.whole import replacing
from anygatr.lab.config.commands import PredictConfig
from anygatr.lab.data.dataset import Dataset
from anygatr.lab.system.outputs import output_path
from anygatr.lab.system.terminal import Terminal
from anygatr.lab.training.run import TrainingRun

SUFFIXES = (".npz", ".h5", ".vtp")


def predict(config: PredictConfig) -> Path:
    """The command: predicted fields of every sample, in the units of the data, as a file; several surfaces as several."""
    return predict_fields(config)[0]


def predict_fields(config: PredictConfig) -> tuple[Path, dict[str, Tensor]]:
    """Predict as a command asks; returns the first file and all fields."""
    out = Path(config.out)
    if out.suffix not in SUFFIXES:
        raise ValueError(f"out={config.out!r} has the unknown suffix {out.suffix!r}; end it in {', '.join(SUFFIXES)}")
    if config.batch is not None and config.batch < 1:
        raise ValueError(f"batch={config.batch} must be at least 1")
    run = TrainingRun.open(config.run)
    read = [config.data, run.spec.path]
    output_path(out, read, config.force)
    data = run.spec.load_inputs(config.data, config)
    if run.task.dim != data.dim or run.task.inputs != data.input_kinds:
        missing = set(run.task.inputs) - set(data.input_kinds)
        hint = run.spec.kind.hint(missing)
        raise ValueError(f"data={config.data!r} has {data}, but {config.run} was trained on {run.task.inputs}{hint}")
    if out.suffix == ".vtp" and data.faces is None:
        raise ValueError(f"out={config.out!r}: {config.data} holds no surfaces; end it in .npz or .h5")
    batch = config.batch or (64 if data.faces is None else 1)
    fields = predictions(run, run.module(), data, batch)
    if out.suffix == ".vtp":
        written = [output_path(path, read, config.force) for path in surface_paths(out, len(data))]
        write_surfaces(written, data, fields)
    else:
        layout = {} if data.offsets is None else {"offsets": data.offsets}
        write_arrays(out, {name: x.numpy() for name, x in (fields | layout).items()})
        written = [out]
    places = str(out) if len(written) == 1 else f"{written[0]} to {written[-1]}"
    said = f"{len(data)} predictions of {', '.join(run.task.targets)} in {places}"
    Terminal().print(said, highlight=False, soft_wrap=True)
    return written[0], fields


@torch.no_grad()
def predictions(run: TrainingRun, module: nn.Module, data: Dataset, batch: int = 64) -> dict[str, Tensor]:
    """The predicted fields of every sample, in the units of the data."""
    inputs = run.normaliser.apply({name: data.fields[name] for name in run.task.inputs})
    parts = [module(**fields) for fields in replace(data, fields=inputs, scored=None).batches(batch)]
    return run.normaliser.undo({name: torch.cat([part[name] for part in parts]) for name in run.task.targets})


def surface_paths(path: Path, count: int) -> list[Path]:
    """The files of `count` surfaces: the path itself, or numbered ones beside it."""
    digits = len(str(count - 1))
    return [path] if count == 1 else [path.with_stem(f"{path.stem}-{i:0{digits}d}") for i in range(count)]


def write_surfaces(paths: list[Path], data: Dataset, predicted: dict[str, Tensor]) -> None:
    """A .vtp file per sample for ParaView: its nodes, triangles, inputs and predictions; `scored` marks trusted nodes.

    Nodes that are not scored lie near the cut ends, where a network is not trained.
    """
    from anygatr.lab.data.vtp import write_vtp

    packed = data.packed()
    assert packed.faces is not None
    assert packed.offsets is not None
    place = next(name for name, kind in data.input_kinds.items() if kind == "point")
    shown = {name: packed.fields[name] for name, kind in data.input_kinds.items() if kind == "scalar"}
    shown |= {name: x if data.offsets is not None else x.flatten(0, 1) for name, x in predicted.items()}
    if packed.scored is not None:
        shown["scored"] = packed.scored
    for i, (start, end) in enumerate(zip(packed.offsets[:-1].tolist(), packed.offsets[1:].tolist(), strict=True)):
        arrays = {name: x[start:end].numpy() for name, x in shown.items()}
        write_vtp(paths[i], packed.fields[place][start:end].numpy(), packed.faces[i].numpy(), arrays)


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """A .npz or .h5 file that appears when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        if path.suffix == ".npz":
            with temporary.open("wb") as stream:
                np.savez(stream, **arrays)  # type: ignore[arg-type]
        else:
            import h5py

            with h5py.File(temporary, "w") as file:
                for name, array in arrays.items():
                    file[name] = array
