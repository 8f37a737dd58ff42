"""Evaluate the best weights of a run: errors on every split, and what a finished run is measured by."""

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from rich import box
from rich.table import Table
from torch import Tensor, nn

from anygatr.lab.config.commands import EvaluateConfig
from anygatr.lab.config.json_files import read_json, write_json
from anygatr.lab.data.dataset import Dataset
from anygatr.lab.data.splits import split_order
from anygatr.lab.system.outputs import output_path
from anygatr.lab.system.terminal import Terminal
from anygatr.lab.training.measure import SAMPLES, equivariance_error, max_coefficient
from anygatr.lab.training.metrics import summary
from anygatr.lab.training.objective import batch_errors, predicted
from anygatr.lab.training.run import CONFIG, TrainingRun, training_set
from anygatr.lab.training.vector_metrics import VectorMetrics

MOST = 1_000
"""Training samples on which the training error is measured at most."""
TOKENS = 20_000
"""Tokens on which equivariance and coefficients are measured at most, unless one sample has more."""


def evaluate(config: EvaluateConfig) -> dict[str, dict[str, float]]:
    """The command: errors on every split, in the data's own units."""
    run = TrainingRun.open(config.run)
    read = [run.spec.path] if config.data is None else [run.spec.path, config.data]
    out = None if config.out is None else output_path(config.out, read, config.force)
    data = run.spec.at(config.data, config.memory).load()
    metrics, _ = split_metrics(run, run.module(), data)
    if out is not None:
        write_json(out, finished_row(run) | {"metrics": metrics})
    if config.json:
        print(json.dumps(metrics))
    else:
        Terminal().print(split_table(f"{run.recipe.model} from {config.run}", metrics))
    return metrics


def finished_row(run: TrainingRun) -> dict[str, Any]:
    """The row of a run, with the command and the environment that made it."""
    if run.result is None:
        raise ValueError(f"run={str(run.directory)!r} is not finished, so it has no row; continue it: {run.command}")
    return run.result | {"command": run.command, "environment": read_json(run.directory / CONFIG)["environment"]}


def measured(run: TrainingRun, module: nn.Module, data: Dataset) -> dict[str, Any]:
    """All that a row says about the weights of a finished run."""
    module.eval()
    metrics, milliseconds = split_metrics(run, module, data)
    probe = data.split("eval" if "eval" in data.splits else "val")
    size = max(1, int((probe.counts[:SAMPLES].cumsum(0) <= TOKENS).sum()))
    batch = replace(probe, fields=run.normaliser.apply(probe.fields)).subset(size).dense().batch()
    device = next(module.parameters()).device
    batch = {name: x.to(device) for name, x in batch.items()}
    return {
        "metrics": metrics,
        "milliseconds_inference_per_sample": milliseconds,
        "max_coefficient": max_coefficient(module, batch, run.task),
        "equivariance": equivariance_error(module, batch, run.task),
    }


def split_metrics(run: TrainingRun, module: nn.Module, data: Dataset) -> tuple[dict[str, dict[str, float]], float]:
    """Errors on every split, and the milliseconds that one sample took."""
    device = next(module.parameters()).device
    metrics, seconds, samples = {}, 0.0, 0
    for name in sorted(data.splits, key=split_order):
        part = data.split(name)
        if name == "train":
            size = min(run.recipe.size or len(part), len(part))
            part = training_set(data, min(size, MOST))
        part = replace(part, fields=run.normaliser.apply(part.fields))
        began = time.perf_counter()
        metrics[name] = _metrics(
            run, module, ({k: x.to(device) for k, x in b.items()} for b in part.batches(run.recipe.batch))
        )
        seconds, samples = seconds + time.perf_counter() - began, samples + len(part)
    return metrics, 1e3 * seconds / max(samples, 1)


@torch.no_grad()
def _metrics(run: TrainingRun, module: nn.Module, batches: Iterable[Mapping[str, Tensor]]) -> dict[str, float]:
    """The errors on normalised batches, in the data's own units; those of vector fields where a vector is predicted."""
    errors, vectors = [], VectorMetrics.of(run.task, run.normaliser)
    for batch in batches:
        out = predicted(module, batch, run.task)
        errors.append(batch_errors(out, batch, run.task, run.normaliser.scale)[1])
        if vectors is not None:
            vectors.add(out, batch)
    return summary(torch.cat(errors)) | ({} if vectors is None else vectors.summary())


def split_table(title: str, metrics: Mapping[str, Mapping[str, float]]) -> Table:
    """Errors by split."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    shown = {name: title for name, title in COLUMNS.items() if any(name in values for values in metrics.values())}
    for column in ("split", *shown.values()):
        table.add_column(column, justify="left" if column == "split" else "right")
    for split, values in metrics.items():
        table.add_row(split, *(f"{values[name]:.4g}" for name in shown))
    return table


COLUMNS = {
    "mse": "mean squared error",
    "median": "median",
    "trimmed": "trimmed mean",
    "approximation": "approximation error",
    "nmae": "NMAE",
    "cosine": "cosine",
}
