"""Evaluate the best weights of a run: errors on every split, and what a finished run is measured by."""

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from torch import nn

from anygatr.lab.commands import EvaluateConfig
from anygatr.lab.data.dataset import Dataset
from anygatr.lab.data.splits import split_order
from anygatr.lab.measure import SAMPLES, equivariance_error, max_coefficient, peak_memory_mb
from anygatr.lab.metrics import summary
from anygatr.lab.objective import errors_of
from anygatr.lab.runs import Run, training_set

MOST = 5_000
"""Training samples on which the training error is measured at most."""


def evaluate(config: EvaluateConfig) -> dict[str, dict[str, float]]:
    """The command: errors on every split, in the data's own units."""
    run = Run.open(config.run)
    data = run.source.at(config.data).load()
    metrics, _ = split_metrics(run, run.module(), data)
    if config.json:
        print(json.dumps(metrics))
    else:
        Console().print(split_table(f"{run.recipe.model} from {config.run}", metrics))
    return metrics


def measured(run: Run, module: nn.Module, data: Dataset) -> dict[str, Any]:
    """All that a row says about the weights of a finished run."""
    module.eval()
    metrics, milliseconds = split_metrics(run, module, data)
    probe = data.split("eval" if "eval" in data.splits else "val")
    batch = replace(probe, fields=run.normaliser.apply(probe.fields)).subset(min(SAMPLES, len(probe))).dense().batch()
    device = next(module.parameters()).device
    batch = {name: x.to(device) for name, x in batch.items()}
    return {
        "metrics": metrics,
        "milliseconds_inference_per_sample": milliseconds,
        "max_coefficient": max_coefficient(module, batch, run.task),
        "equivariance": equivariance_error(module, batch, run.task),
        "peak_memory_mb": peak_memory_mb(),
    }


def split_metrics(run: Run, module: nn.Module, data: Dataset) -> tuple[dict[str, dict[str, float]], float]:
    """Errors on every split, and the milliseconds that one sample took."""
    device = next(module.parameters()).device
    metrics, seconds, samples = {}, 0.0, 0
    for name in sorted(data.splits, key=split_order):
        part = data.split(name)
        if name == "train":
            size = min(run.recipe.size or len(part), len(part))
            part = training_set(data, min(size, MOST))
        part = replace(part, fields=run.normaliser.apply(part.fields))
        batches = ({k: x.to(device) for k, x in batch.items()} for batch in part.batches(run.recipe.batch))
        began = time.perf_counter()
        metrics[name] = summary(errors_of(module, batches, run.task, run.normaliser.scale)[1])
        seconds, samples = seconds + time.perf_counter() - began, samples + len(part)
    return metrics, 1e3 * seconds / max(samples, 1)


def split_table(title: str, metrics: Mapping[str, Mapping[str, float]]) -> Table:
    """Errors by split."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("split", "mean squared error", "median", "trimmed mean"):
        table.add_column(column, justify="left" if column == "split" else "right")
    for split, values in metrics.items():
        table.add_row(split, *(f"{values[name]:.4g}" for name in ("mse", "median", "trimmed")))
    return table
