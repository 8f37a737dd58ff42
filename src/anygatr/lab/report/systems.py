"""A few systems, true and predicted: in space where the target lives there, else predicted against true numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from anygatr.lab.report.figure import INK, MUTED, Figure, FigureView, Trace
from anygatr.lab.report.palette import Look, looks
from anygatr.lab.report.ranking import by_error
from anygatr.lab.report.rows import Arrays, ComparisonResults
from anygatr.lab.report.wording import number

ARROW = 0.15  # median length of a drawn vector, in parts of the system's extent
TITLE = "True and predicted"
ORDER = ("point", "vector")  # kinds that live in space, the more telling first


@dataclass(frozen=True)
class Scene:
    """One system: where its tokens start, where they truly end (points or arrow tips), and where each model says."""

    start: np.ndarray
    true: np.ndarray
    predicted: dict[str, np.ndarray]
    deviations: dict[str, np.ndarray]
    """The distance of each prediction from the truth, before any scaling for the eye."""

    @property
    def legibility(self) -> float:
        """Motion in parts of the extent: how much of it an eye can see."""
        moved = np.linalg.norm(self.true - self.start, axis=-1)
        return float(np.median(moved) / max(np.ptp(self.true, axis=0).max(), 1e-12))


def systems_figure(experiment: ComparisonResults) -> Figure:
    """The stored systems in space, the most legible first, or a scatter of predicted against true values."""
    order = [model for model, _ in by_error(experiment)]
    stored = {model: experiment.predictions[model] for model in order if model in experiment.predictions}
    truth = _truth(experiment, stored)
    if truth is None:
        return Figure("systems", TITLE, "No predictions were stored with these runs, so there is nothing to look at.", {})
    target, kind, arrays = truth
    true = arrays[f"target/{target}"]
    predicted = {model: values[f"prediction/{target}"] for model, values in stored.items() if _agrees(values, target, true)}
    dim, styles = int(experiment.data.get("dim", 3)), looks(experiment.models)
    place = _place(experiment, arrays)
    if kind in ORDER and place is not None and dim in (2, 3) and true.shape[-1] == dim:
        is_per_token = experiment.data.get("per", "token") == "token"
        scenes = _scenes(arrays[place], true, predicted, arrays.get("offsets"), is_per_token, kind == "vector")
        return _space(scenes, styles, kind, dim)
    return _scatter(true, predicted, styles, target)


def _agrees(arrays: Arrays, target: str, true: np.ndarray) -> bool:
    """Whether a model was asked about the same systems, so that it may be drawn into them."""
    own, predicted = arrays.get(f"target/{target}"), arrays.get(f"prediction/{target}")
    return own is not None and predicted is not None and predicted.shape == true.shape and np.array_equal(own, true)


def _truth(experiment: ComparisonResults, stored: Mapping[str, Arrays]) -> tuple[str, str, Arrays] | None:
    """The target to show (points before vectors before the rest), its kind, and the arrays it lies in."""
    kinds = experiment.data.get("targets") or {}
    order = sorted(kinds, key=lambda name: ORDER.index(kinds[name]) if kinds[name] in ORDER else len(ORDER))
    for name in order:
        for arrays in stored.values():
            if {f"target/{name}", f"prediction/{name}"} <= set(arrays) and arrays[f"target/{name}"].size:
                return name, kinds[name], arrays
    return None


def _place(experiment: ComparisonResults, arrays: Arrays) -> str | None:
    """The input field that says where each token is."""
    fields = experiment.data.get("fields") or {}
    return next((name for name, kind in fields.items() if kind == "point" and name in arrays), None)


def _scenes(
    places: np.ndarray,
    true: np.ndarray,
    predicted: dict[str, np.ndarray],
    offsets: np.ndarray | None,
    is_per_token: bool,
    is_vector: bool,
) -> list[Scene]:
    """The systems in their own coordinates; a target of the whole sample starts at the middle of its tokens."""
    scenes = []
    for i in range(len(places) if offsets is None else len(offsets) - 1):
        tokens: Any = i if offsets is None else slice(int(offsets[i]), int(offsets[i + 1]))
        system = places[tokens] - places[tokens].mean(0)
        start = system if is_per_token else np.zeros_like(system[:1])
        own = tokens if is_per_token else i
        end, ends = np.atleast_2d(true[own]), {model: np.atleast_2d(values[own]) for model, values in predicted.items()}
        away = {model: np.linalg.norm(values - end, axis=-1) for model, values in ends.items()}
        # a point is seen from the system's middle; a vector starts at its token, scaled to be seen
        shift, scale = (start, _scale(system, end)) if is_vector else (-places[tokens].mean(0), 1.0)
        drawn = {model: shift + scale * values for model, values in ends.items()}
        scenes.append(Scene(start, shift + scale * end, drawn, away))
    return sorted(scenes, key=lambda scene: -scene.legibility)


def _scale(system: np.ndarray, vectors: np.ndarray) -> float:
    length = float(np.median(np.linalg.norm(vectors, axis=-1)))
    return ARROW * max(float(np.ptp(system, axis=0).max()), 1e-12) / max(length, 1e-12)


def _space(scenes: list[Scene], styles: Mapping[str, Look], kind: str, dim: int) -> Figure:
    views = {
        f"System {i}": FigureView(_traces(scene, styles, kind), _layout(dim), _deviations(scene, styles))
        for i, scene in enumerate(scenes, 1)
    }
    what = {
        "point": "Each dot is where a body starts, the line leads to its true end, a ring",
        "vector": "The line from each dot to a ring is the true vector, scaled to be seen",
    }[kind]
    turn = "Drag to turn, scroll or pinch to zoom" if dim == 3 else "Drag to zoom, double-click to go back"
    caption = f"{what}; in colour: what a model says. {turn}; a click on a name shows or hides a model. "
    caption += "Coordinates from the system's middle; the most legible first."
    return Figure("systems", TITLE, caption, views, height=560)


def _traces(scene: Scene, styles: Mapping[str, Look], kind: str) -> list[Trace]:
    word = "end" if kind == "point" else "tip"
    traces = [
        _cloud(scene.start, "start", {"color": MUTED, "symbol": "circle", "size": 3}),
        _segments(scene.start, scene.true, MUTED, 2, "start"),
        _cloud(scene.true, f"true {word}", {"color": INK, "symbol": "circle-open", "size": 9}),
    ]
    for order, (model, ends) in enumerate(scene.predicted.items()):
        look, visible = styles[model], True if order == 0 else "legendonly"
        marker = {"color": look.colour, "symbol": "diamond", "size": 5}
        both = {"visible": visible, "legendgroup": model}
        traces.append(_cloud(ends, look.label, marker) | both)
        traces.append(_segments(scene.true if kind == "point" else scene.start, ends, look.colour, 4, model) | both)
    return traces


def _cloud(points: np.ndarray, name: str, marker: dict[str, Any]) -> Trace:
    coordinates = {axis: _rounded(points[:, i]) for i, axis in zip(range(points.shape[1]), "xyz", strict=False)}
    if points.shape[1] == 2:
        marker = marker | {"size": marker["size"] + 4}
    return {
        "type": _kind(points),
        "mode": "markers",
        "name": name,
        "marker": marker,
        "hoverinfo": "name",
        "legendgroup": name,
    } | coordinates


def _segments(a: np.ndarray, b: np.ndarray, colour: str, width: float, group: str) -> Trace:
    """Lines from each point of a to its partner in b, as one trace with breaks."""
    ends = np.stack([a, b, np.full_like(a, np.nan)], 1).reshape(-1, a.shape[1])
    coordinates = {axis: _rounded(ends[:, i]) for i, axis in zip(range(a.shape[1]), "xyz", strict=False)}
    trace: Trace = {
        "type": _kind(a),
        "mode": "lines",
        "line": {"color": colour, "width": width if a.shape[1] == 3 else width / 2},
    }
    return trace | {"showlegend": False, "hoverinfo": "skip", "legendgroup": group} | coordinates


def _layout(dim: int) -> dict[str, Any]:
    if dim == 2:
        return {
            "xaxis": {"title": {"text": "x"}, "automargin": True},
            "yaxis": {"title": {"text": "y"}, "scaleanchor": "x", "automargin": True},
        }
    axes = {f"{axis}axis": {"title": {"text": axis}, "nticks": 5} for axis in "xyz"}
    camera = {"eye": {"x": 1.45, "y": 1.45, "z": 0.95}, "center": {"x": 0, "y": 0, "z": -0.12}}
    return {"scene": {"aspectmode": "data", "dragmode": "orbit", "camera": camera, **axes}, "uirevision": "systems"}


def _deviations(scene: Scene, styles: Mapping[str, Look]) -> list[list[str]]:
    rows = [["model", "mean distance from the truth", "largest"]]
    for model, away in scene.deviations.items():
        rows.append([styles[model].label, number(float(away.mean())), number(float(away.max()))])
    return rows


def _scatter(true: np.ndarray, predicted: dict[str, np.ndarray], styles: Mapping[str, Look], target: str) -> Figure:
    flat = np.asarray(true, dtype=float).ravel()
    ends = [float(flat.min()), float(flat.max())]
    traces: list[Trace] = [
        {
            "type": "scatter",
            "x": ends,
            "y": ends,
            "mode": "lines",
            "name": "perfect",
            "line": {"color": MUTED, "dash": "dash", "width": 1.5},
            "hoverinfo": "skip",
        }
    ]
    rows = [["model", "root mean squared deviation in what is shown"]]
    for model, values in predicted.items():
        look = styles[model]
        marker = {"color": look.colour, "symbol": look.symbol, "size": 9, "opacity": 0.75}
        x, y = _rounded(flat), _rounded(np.asarray(values, dtype=float).ravel())
        traces.append({"type": "scatter", "mode": "markers", "x": x, "y": y, "name": look.label, "marker": marker})
        away = np.asarray(values, dtype=float).ravel() - flat
        rows.append([look.label, number(float(np.sqrt(np.mean(away**2))))])
    layout = {
        "xaxis": {"title": {"text": f"true {target}"}, "automargin": True},
        "yaxis": {"title": {"text": f"predicted {target}"}, "automargin": True},
    }
    caption = f"Predicted against true {target} for a few evaluation samples: a perfect model lies on the dashed line."
    return Figure("systems", TITLE, caption, {"Scatter": FigureView(traces, layout, rows)})


def _kind(points: np.ndarray) -> str:
    return "scatter3d" if points.shape[1] == 3 else "scatter"


def _rounded(values: np.ndarray) -> list[float | None]:
    """Five digits are more than a screen shows, and keep the file small."""
    return [float(f"{value:.5g}") if np.isfinite(value) else None for value in values.astype(float)]
