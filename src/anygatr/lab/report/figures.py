"""The figures of the report that show numbers: error, gap, learning curves, cost, shift and equivariance."""

from collections.abc import Callable
from math import exp, log10

import numpy as np

from anygatr.lab.report.advice import FAR, MORE
from anygatr.lab.report.figure import Figure, FigureView, Trace, curves, dots, level, line, log_axis
from anygatr.lab.report.palette import Look, looks
from anygatr.lab.report.rows import ComparisonResults, ResultRow
from anygatr.lab.report.spread import FLOOR, Spread, spread
from anygatr.lab.report.wording import listing, measured

SAMPLES, ERROR = "training samples", "mean squared error"
METRICS = {
    "Mean": ("mse", ERROR),
    "Median": ("median", "median squared error"),
    "Trimmed": ("trimmed", "trimmed squared error"),
    "Approximation error": ("approximation", "error relative to the field, mean over samples"),
    "75th percentile": ("approximation_p75", "error relative to the field, 75th percentile of samples"),
    "NMAE": ("nmae", "mean absolute error over the largest vector"),
}
COSTS = {
    "Time per step": ("milliseconds_per_step", "milliseconds per training step"),
    "Training time": ("seconds", "seconds of training"),
    "Inference": ("milliseconds_inference_per_sample", "milliseconds per sample at inference"),
    "Memory": ("training_memory_mb", "memory of a training step, MB"),
    "Parameters": ("parameters", "parameters"),
}
SHIFTS = {"as in training": "eval", "moved far away": FAR, "more objects": MORE, "finer meshes": "full_resolution"}
GRID = 120  # points of a drawn learning curve


def error_figure(experiment: ComparisonResults) -> Figure:
    """Error against the number of training samples, as in the paper's figure."""
    styles = looks(experiment.models)
    caption = f"Evaluation error on unseen systems. {_bands(experiment)} Dashed: the error of predicting without learning."
    if len(experiment.sizes) == 1:
        caption = (
            f"Evaluation error with {experiment.reference:,} samples, the only size that was run: more sizes give a curve."
        )
    views = {}
    for label, (metric, title) in METRICS.items():
        trivial = experiment.trivial if metric == "mse" else None
        series = {model: _against_size(experiment, model, metric) for model in experiment.models}
        if not any(series.values()):
            continue
        if len(experiment.sizes) > 1:
            views[label] = curves(styles, series, (SAMPLES, title), trivial)
        else:
            found = {model: points[experiment.reference] for model, points in series.items() if points}
            views[label] = dots(styles, {"evaluation": found}, title, ("no learning", trivial) if trivial else None)
    return Figure("error", "Error against number of samples", caption, views, height=480)


def gap_figure(experiment: ComparisonResults) -> Figure:
    """Training against validation error, and their ratio."""
    styles, views = looks(experiment.models), {}
    for size in experiment.sizes[::-1]:
        found = {name: _errors(experiment, size, split) for name, split in (("training", "train"), ("validation", "val"))}
        if found["training"] and found["validation"]:
            views[f"{size:,} samples"] = dots(styles, found, ERROR)
    gaps = {model: _gaps(experiment, model) for model in experiment.models}
    if len(experiment.sizes) > 1 and any(gaps.values()):
        views["Gap"] = curves(styles, gaps, (SAMPLES, "validation error ÷ training error"))
    caption = "The bar between the two is the generalisation gap. Validation to the right: the longer the bar, the more a "
    caption += "model has learned by heart. Validation to the left: those few samples happen to be easier."
    missing = "No run recorded both a training and a validation error, so there is no gap to show."
    return Figure("gap", "Training and validation error", caption if views else missing, views, height=360)


def learning_figure(experiment: ComparisonResults) -> Figure:
    """Validation error and training loss against steps, one view per size."""
    views = {}
    for size in experiment.sizes[::-1]:
        view = _learning(experiment, size)
        if view:
            views[f"{size:,} samples"] = view
    caption = f"Thick: validation error. Thin and dotted: training loss. {_bands(experiment)} Dashed: the error of "
    caption += "predicting without learning on the validation set; a double click shows what is far above it."
    return Figure("learning", "Learning curves", caption if views else "No run recorded its learning curve.", views)


def cost_figure(experiment: ComparisonResults) -> Figure:
    """Error against each cost at the reference size: the best models are at the lower left."""
    styles, views = looks(experiment.models), {}
    errors = _errors(experiment, experiment.reference, "eval")
    for label, (name, title) in COSTS.items():
        costs = {model: experiment.measure(model, name) for model in errors}
        known = {model: cost for model, cost in costs.items() if cost}
        if known:
            rows = [["model", title, ERROR]]
            rows += [[styles[model].label, measured(cost), measured(errors[model])] for model, cost in known.items()]
            traces = [_cost_point(styles[model], cost, errors[model]) for model, cost in known.items()]
            views[label] = FigureView(traces, _cost_axes(title, known, errors), rows)
    caption = (
        f"With {experiment.reference:,} samples; lower left is better. Whiskers go from the lowest to the highest seed."
    )
    return Figure("cost", "What an error costs", caption if views else "No run recorded what it cost.", views)


def shift_figure(experiment: ComparisonResults) -> Figure:
    """Error on data like the training data, far away from it, and with more objects."""
    found = {name: _errors(experiment, experiment.reference, split) for name, split in SHIFTS.items()}
    present = {name: errors for name, errors in found.items() if errors}
    if len(present) < 2:
        caption = "These data have no set under shift (moved far away, or with more objects), so this was not measured."
        return Figure("shift", "Generalisation under shift", caption, {})
    view = dots(looks(experiment.models), present, ERROR)
    caption = f"Trained on {experiment.reference:,} samples, evaluated on systems {listing(list(present), 'or with')}. "
    caption += "A model that is equivariant under translations stays where it was."
    return Figure("shift", "Generalisation under shift", caption, {"Shift": view}, height=360)


def equivariance_figure(experiment: ComparisonResults) -> Figure:
    """How far each trained model is from equivariance."""
    seeing = [model for model in experiment.models if not experiment.is_blind(model)]
    spreads = {model: experiment.measure(model, "equivariance") for model in seeing}
    found = {model: values for model, values in spreads.items() if values and values.low > FLOOR}
    if not found:
        return Figure("equivariance", "Equivariance", "No run measured its equivariance.", {})
    caption = "Relative change of the prediction when a system is moved before instead of after it, in float32. "
    caption += "Rounding alone gives about the dashed line; a model without the symmetry is far to the right."
    view = dots(looks(experiment.models), {"equivariance error": found}, "relative error", ("float32", 2.0**-23))
    return Figure("equivariance", "Equivariance", caption, {"Equivariance": view}, height=320)


def _bands(experiment: ComparisonResults) -> str:
    if experiment.seeds < 2:
        return "One seed, hence no bands."
    return "Bands go from the lowest to the highest seed around their geometric mean."


def _errors(experiment: ComparisonResults, size: int, split: str) -> dict[str, Spread]:
    found = {model: experiment.error(model, size, split) for model in experiment.models}
    return {model: error for model, error in found.items() if error}


def _against_size(experiment: ComparisonResults, model: str, metric: str) -> dict[float, Spread]:
    found = {size: experiment.error(model, size, "eval", metric) for size in experiment.sizes}
    return {size: error for size, error in found.items() if error}


def _gaps(experiment: ComparisonResults, model: str) -> dict[float, Spread]:
    def gap(row: ResultRow) -> float | None:
        train, val = row.metric("train"), row.metric("val")
        return val / train if train and val is not None else None

    found = {size: experiment.spread(model, size, gap) for size in experiment.sizes}
    return {size: values for size, values in found.items() if values}


def _learning(experiment: ComparisonResults, size: int) -> FigureView | None:
    styles, traces, rows = (
        looks(experiment.models),
        list[Trace](),
        [["model", "last step", "training loss", "validation error"]],
    )
    last = 0.0
    for model in experiment.models:
        runs = [row.curve for row in experiment.select(model, size)]
        loss, error = _resampled(runs, lambda point: point[1]), _resampled(runs, lambda point: point[2])
        if not error:
            continue
        traces += line(styles[model], model, error, has_markers=False)
        for mean in line(styles[model], model, loss, has_markers=False)[-1:]:
            thin = {"line": {"color": styles[model].faded(0.65), "width": 1.2, "dash": "dot"}}
            traces.append(mean | thin | {"showlegend": False, "hoverinfo": "skip", "hovertemplate": None})
        end = max(error)
        last = max(last, end)
        tail = measured(loss[max(loss)]) if loss else ""
        rows.append([styles[model].label, f"{end:,.0f}", tail, measured(error[end])])
    if not traces:
        return None
    trivial = experiment.no_learning("val")  # of the split that the curves are of
    if trivial is not None:
        traces.append(level(trivial, [0, last]))
    heights = [y for trace in traces for y in trace["y"]]
    step = {"title": {"text": "training step"}, "rangemode": "tozero", "automargin": True, "separatethousands": True}
    return FigureView(traces, {"xaxis": step, "yaxis": _error_axis(heights, trivial)}, rows)


def _error_axis(heights: list[float], trivial: float | None) -> dict:
    """An axis on which the first steps of a bad start do not flatten all that follows."""
    low, top = min(heights), 3 * trivial if trivial else max(heights)
    if not FLOOR < low < top < max(heights):
        return log_axis("error", heights)
    return log_axis("error", [low, top]) | {"range": [log10(low) - 0.1, log10(top)]}


Point = tuple[float, float | None, float | None]


def _resampled(runs: list[list[Point]], read: Callable[[Point], float | None]) -> dict[float, Spread]:
    """The seeds' curves at common steps: runs matched by time stop and validate at different ones."""
    known = [[(point[0], value) for point in run if (value := read(point)) and value > 0] for run in runs]
    kept = [np.array(points) for points in known if len(points) > 1]
    if not kept:
        return {}
    start, end = max(points[0, 0] for points in kept), min(points[-1, 0] for points in kept)
    own = [points[:, 0] for points in kept]
    same = all(np.array_equal(steps, own[0]) for steps in own) and len(own[0]) <= GRID
    grid = own[0] if same else np.linspace(start, end, min(GRID, max(map(len, own))))
    logs = np.stack([np.interp(grid, points[:, 0], np.log(points[:, 1])) for points in kept], -1)
    found = {float(step): spread(exp(value) for value in at) for step, at in zip(grid, logs, strict=True)}
    return {step: values for step, values in found.items() if values}


def _cost_axes(title: str, costs: dict[str, Spread], errors: dict[str, Spread]) -> dict:
    """Both axes logarithmic, labelled over what is drawn."""
    across = [x for cost in costs.values() for x in cost.values]
    up = [y for model in costs for y in errors[model].values]
    return {"xaxis": log_axis(title, across), "yaxis": log_axis(ERROR, up)}


def _cost_point(look: Look, cost: Spread, error: Spread) -> Trace:
    def whiskers(values: Spread) -> dict:
        reach = {"array": [values.high - values.mean], "arrayminus": [values.mean - values.low]}
        return {"type": "data", "symmetric": False, "color": look.faded(0.6), "thickness": 1.5, "width": 5} | reach

    return {
        "type": "scatter",
        "x": [cost.mean],
        "y": [error.mean],
        "name": look.label,
        "mode": "markers",
        "marker": {"symbol": look.symbol, "size": 16, "color": look.colour},
        "error_x": whiskers(cost),
        "error_y": whiskers(error),
        "hovertemplate": f"{measured(cost)}, error {measured(error)}<extra>{look.label}</extra>",
    }
