"""Evaluate the best weights of a run: errors on every split, and what a finished run is measured by."""

import json
import time
from collections.abc import Iterable, Mapping
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
from anygatr.lab.training.measure import SAMPLES, equivariance_error, is_blind, max_coefficient, mirror_error
from anygatr.lab.training.metrics import TargetMetrics, baseline_metrics, residuals, sample_errors, summary_of
from anygatr.lab.training.objective import predicted
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
    baselines = baselines_of(run, data)
    if out is not None:
        write_json(out, finished_row(run) | {"metrics": metrics})
    if config.json:
        print(json.dumps(metrics | {"baselines": baselines}))
    else:
        show_errors(f"{run.recipe.model} from {config.run}", metrics)
        show_baselines(run, metrics, baselines)
    return metrics


def show_errors(title: str, metrics: Mapping[str, Mapping[str, float]]) -> None:
    """Print errors by split under a title, which is not wrapped: paths in it can be copied."""
    terminal = Terminal()
    terminal.print(title, style="italic", highlight=False, soft_wrap=True)
    terminal.print(split_table(metrics))


def show_baselines(run: TrainingRun, metrics: Mapping[str, Any], baselines: Mapping[str, Any]) -> None:
    """Print what the model must beat, on the evaluation split or else the validation split."""
    split = "eval" if "eval" in baselines else next(iter(baselines), None)
    if split is None:
        return
    units = {name: unit for name, unit in run.spec.kind.units.items() if name in run.task.targets}
    title = f"{split}: the model and what it must beat"
    Terminal().print(beaten_table(title, run.recipe.model, metrics[split], baselines[split], units))


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
    batch = run.units.normalised(probe).subset(size).dense().batch()
    device = next(module.parameters()).device
    batch = {name: x.to(device) for name, x in batch.items()}
    return {
        "metrics": metrics,
        "milliseconds_inference_per_sample": milliseconds,
        "max_coefficient": max_coefficient(module, batch, run.task),
        "equivariance": equivariance_error(module, batch, run.task),
        "mirror_error": mirror_error(module, batch, run.task),
        "blind": is_blind(module, batch, run.task),
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
        part = run.units.normalised(part)
        began = time.perf_counter()
        metrics[name] = _metrics(
            run, module, ({k: x.to(device) for k, x in b.items()} for b in part.batches(run.recipe.batch))
        )
        seconds, samples = seconds + time.perf_counter() - began, samples + len(part)
    return metrics, 1e3 * seconds / max(samples, 1)


@torch.no_grad()
def _metrics(run: TrainingRun, module: nn.Module, batches: Iterable[Mapping[str, Tensor]]) -> dict[str, Any]:
    """The errors on normalised batches, in the data's own units; those of vector fields where a vector is predicted."""
    errors, targets, vectors = [], TargetMetrics(), VectorMetrics.of(run.task, run.units.normaliser)
    for batch in batches:
        out, layout = predicted(module, batch, run.task), (batch.get("offsets"), batch.get("scored"))
        own = run.units.errors.restored(residuals(out, batch, run.task))
        errors.append(sample_errors(own, *layout, run.units.weights))
        targets.add(own, run.units.restored(*_both_sides(batch, run), batch.get("offsets")), layout)
        if vectors is not None:
            vectors.add(out, batch)
    return summary_of(torch.cat(errors), targets.summary()) | ({} if vectors is None else vectors.summary())


def _both_sides(batch: Mapping[str, Tensor], run: TrainingRun) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The targets and the inputs of a batch."""
    return {name: batch[name] for name in run.task.targets}, {name: batch[name] for name in run.task.inputs}


def split_table(metrics: Mapping[str, Mapping[str, float]]) -> Table:
    """Errors by split; many metrics stand below each other, so that no number is cut on a narrow terminal."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    shown = {name: title for name, title in COLUMNS.items() if any(name in values for values in metrics.values())}
    rows = {split: [_cell(values, name) for name in shown] for split, values in metrics.items()}
    corner, header = "split", list(shown.values())
    if len(shown) > MOST_COLUMNS:
        corner, header, columns = "", list(rows), zip(*rows.values(), strict=True)
        rows = dict(zip(shown.values(), map(list, columns), strict=True))
    for column in (corner, *header):
        table.add_column(column, justify="left" if column == corner else "right")
    for name, cells in rows.items():
        table.add_row(name, *cells)
    return table


MOST_COLUMNS = 6
"""Metrics that stand side by side."""


def _cell(values: Mapping[str, float], name: str) -> str:
    return f"{values[name]:.4g}" if name in values else "-"


def baselines_of(run: TrainingRun, data: Dataset) -> dict[str, dict[str, Any]]:
    """What predictors without training achieve on the splits of these data but the first: split -> predictor -> numbers."""
    train = training_set(data, run.recipe.size)
    parts = {name: data.split(name) for name in sorted(data.splits, key=split_order) if name != "train"}
    return baseline_metrics(train, parts, run.units.weights)


def beaten_table(
    title: str, model: str, metrics: Mapping[str, Any], baselines: Mapping[str, Any], units: Mapping[str, str]
) -> Table:
    """The errors of a model on one split above those of predictors without training, target by target."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    rows = {model: by_target(metrics, units)} | {name: by_target(numbers, units) for name, numbers in baselines.items()}
    table.add_column("predictor")
    for target in rows[model]:
        unit = f" [{units[target]}]" if target in units else ""
        for name in ("RMSE", "MAE", "R²"):
            label = " ".join(filter(None, (target, name))) + (unit if name != "R²" else "")
            table.add_column(label, justify="right")
    for name, targets in rows.items():
        cells = [numbers.get(key) for numbers in targets.values() for key in ("rmse", "mae", "r2")]
        style = "bold" if name == model else None
        table.add_row(name, *("-" if cell is None else f"{cell:.4g}" for cell in cells), style=style)
    return table


def by_target(metrics: Mapping[str, Any], units: Mapping[str, str]) -> dict[str, Mapping[str, float]]:
    """RMSE, MAE and R2 of each target; a single target needs no name unless its unit is known."""
    return dict(metrics["targets"]) if "targets" in metrics else {next(iter(units), ""): metrics}


COLUMNS = {
    "mse": "mean squared error",
    "rmse": "RMSE",
    "mae": "MAE",
    "r2": "R²",
    "median": "median",
    "trimmed": "trimmed mean",
    "approximation": "approximation error",
    "nmae": "NMAE",
    "cosine": "cosine",
}
