"""Predict for new files with the best weights of a run."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from anygatr.lab.config.commands import PredictConfig
from anygatr.lab.data.dataset import Dataset
from anygatr.lab.data.range import outside
from anygatr.lab.system.outputs import output_path
from anygatr.lab.system.terminal import Terminal
from anygatr.lab.training.exact_cost import exact_cost
from anygatr.lab.training.large import attending
from anygatr.lab.training.run import TrainingRun
from anygatr.lab.training.write import on_whole_surface, surface_paths, write_arrays, write_surfaces

SUFFIXES = (".npz", ".h5", ".csv", ".vtp")


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
    check_inputs(run, data, config.data)
    if out.suffix == ".vtp" and data.faces is None:
        raise ValueError(f"out={config.out!r}: {config.data} holds no surfaces; end it in .npz, .h5 or .csv")
    run = replace(run, recipe=attending(run.recipe, config))
    if (cost := exact_cost(run.module, int(data.counts.max()), training=False)) is not None:
        Terminal().print(str(cost), highlight=False, soft_wrap=True)
    batch = config.batch or (64 if data.faces is None else 1)
    fields = predictions(run, run.module(), data, batch)
    if out.suffix == ".vtp":
        written = [output_path(path, read, config.force) for path in surface_paths(out, len(data))]
        write_surfaces(written, data, fields)
    else:
        per: Any = run.task.per
        write_arrays(out, on_whole_surface(data, fields), replace(data, per=per))
        written = [out]
    places = str(out) if len(written) == 1 else f"{written[0]} to {written[-1]}"
    units = {name: f" in {unit}" for name, unit in run.spec.kind.units.items()}
    what = ", ".join(f"{name}{units.get(name, '')}" for name in run.task.targets)
    Terminal().print(f"{len(data)} predictions of {what}: {places}", highlight=False, soft_wrap=True)
    if data.surface is not None and len(data.surface.kept) < len(data.surface.points):
        Terminal().print(
            f"{len(data.surface.kept)} of {len(data.surface.points)} vertices have a prediction; the others, nan, lie in "
            "the extensions at the ends (--no-extensions if there are none)",
            highlight=False,
            soft_wrap=True,
        )
    return written[0], fields


def check_inputs(run: TrainingRun, data: Dataset, source: str) -> None:
    """Raise if data lack what a run was trained on; warn, or raise where it is nonsense, of inputs outside its range."""
    if run.task.dim != data.dim or run.task.inputs != data.input_kinds:
        missing = set(run.task.inputs) - set(data.input_kinds)
        hint = run.spec.kind.hint(missing)
        raise ValueError(f"data={source!r} has {data}, but {run.directory} was trained on {run.task.inputs}{hint}")
    found = outside(data, run.range)
    if (problem := run.spec.kind.refusal(found)) is not None:
        raise ValueError(f"data={source!r}: {problem}")
    for _, _, sentence in found:
        warnings.warn(f"{source}: {sentence}: the prediction is an extrapolation", stacklevel=2)


@torch.no_grad()
def predictions(run: TrainingRun, module: nn.Module, data: Dataset, batch: int = 64) -> dict[str, Tensor]:
    """The predicted fields of every sample, in the units of the data."""
    inputs = run.units.normaliser.apply({name: data.fields[name] for name in run.task.inputs})
    parts = [module(**fields) for fields in replace(data, fields=inputs, scored=None).batches(batch)]
    joined = {name: torch.cat([part[name] for part in parts]) for name in run.task.targets}
    return run.units.restored(joined, inputs, data.offsets)
