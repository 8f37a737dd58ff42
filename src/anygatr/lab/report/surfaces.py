"""Surfaces with a predicted vector field, in space: its true length, a model's, and the error, seen by linked cameras."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from anygatr.lab.report.figure import INK, Figure, FigureView, Trace
from anygatr.lab.report.palette import Look, looks
from anygatr.lab.report.ranking import by_error
from anygatr.lab.report.rows import Arrays, ComparisonResults
from anygatr.lab.report.wording import number

ARROWS = 350
"""Arrows drawn on a surface at most."""
ARROW = 0.06
"""Length of a long arrow, in parts of the surface's extent."""
PANELS = ((0.675, 1.0), (0.3375, 0.6625), (0.0, 0.325))
"""From top to bottom: arteries are long."""
WIDTH, HEIGHT = 9.0, 2.2
"""Of a panel, in the units of its camera: a surface fills one of them."""
COLOURS, ERRORS = "Viridis", [[0, "#d9dde3"], [0.5, "#f0934e"], [1, "#a4133c"]]


@dataclass(frozen=True)
class Wall:
    """One surface: nodes around its middle, triangles, the true field and what each model says."""

    nodes: np.ndarray
    triangles: np.ndarray
    true: np.ndarray
    predicted: dict[str, np.ndarray]
    scored: np.ndarray
    """The nodes that count for the error."""

    def deviation(self, model: str) -> np.ndarray:
        """The length of a model's error at every node."""
        return np.linalg.norm(self.predicted[model] - self.true, axis=1)

    def approximation(self, model: str) -> float:
        """Its error relative to the field, over the nodes that count."""
        square = np.linalg.norm(self.true, axis=1)[self.scored] ** 2
        return float(np.sqrt((self.deviation(model)[self.scored] ** 2).sum() / max(square.sum(), 1e-300)))


def surfaces_figure(experiment: ComparisonResults) -> Figure | None:
    """The stored surfaces, one view each; None if the samples are no surfaces with a field of vectors."""
    targets, fields = experiment.data.get("targets") or {}, experiment.data.get("fields") or {}
    target = next((name for name, kind in targets.items() if kind == "vector"), None)
    place = next((name for name, kind in fields.items() if kind == "point"), None)
    order = [model for model, _ in by_error(experiment)]
    stored = {model: experiment.predictions[model] for model in order if model in experiment.predictions}
    walls = _walls(stored, target, place) if target and place else []
    if not walls or not target:
        return None
    styles, units = looks(experiment.models), experiment.data.get("units") or {}
    unit, length = units.get(target, ""), units.get(place, "")
    views = {f"Surface {i}": _view(wall, styles, target, unit, length) for i, wall in enumerate(walls, 1)}
    where = f" in {unit}" if unit else ""
    caption = (
        f"Length of {target}{where}: true, predicted by the model chosen above the picture, and the length of the error. "
        "Drag to turn, scroll or pinch to zoom: the cameras move together. Arrows, on a click on their name, have the "
        "length of the field, the longest cut. Samples of the evaluation set with all their nodes."
    )
    return Figure("systems", "True, predicted, error", caption, views, height=560)


def _walls(stored: Mapping[str, Arrays], target: str, place: str) -> list[Wall]:
    arrays = next((a for a in stored.values() if {"triangles", "offsets", place, f"target/{target}"} <= set(a)), None)
    if arrays is None:
        return []
    true, walls = arrays[f"target/{target}"], []
    predicted = {
        model: a[f"prediction/{target}"]
        for model, a in stored.items()
        if f"prediction/{target}" in a and a[f"prediction/{target}"].shape == true.shape
    }
    nodes, faces = arrays["offsets"], arrays["triangle_offsets"]
    scored = arrays.get("scored", np.ones(len(true), dtype=bool))
    for i in range(len(nodes) - 1):
        own = slice(int(nodes[i]), int(nodes[i + 1]))
        triangles = arrays["triangles"][int(faces[i]) : int(faces[i + 1])]
        where = _laid(arrays[place][own])
        turned = {model: values[own] @ where[1] for model, values in predicted.items()}
        walls.append(Wall(where[0], triangles, true[own] @ where[1], turned, scored[own]))
    return walls


def _laid(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The points around their middle in their own axes, the longest first, and the rotation (columns) that does it."""
    centred = points - points.mean(axis=0)
    axes = np.linalg.svd(centred, full_matrices=False)[2][[0, 2, 1]].T
    axes[:, 0] *= np.linalg.det(axes)
    return centred @ axes, axes


def _view(wall: Wall, styles: Mapping[str, Look], target: str, unit: str, length: str) -> FigureView:
    models = list(wall.predicted)
    strength = np.linalg.norm(wall.true, axis=1)
    high = float(np.quantile(strength, 0.99))
    worst = max(float(np.quantile(wall.deviation(model), 0.99)) for model in models[:3])
    lengths = {model: np.linalg.norm(wall.predicted[model], axis=1) for model in models}
    first = models[0]
    traces = [
        _mesh(wall, strength, "scene", "coloraxis"),
        _mesh(wall, lengths[first], "scene2", "coloraxis"),
        _mesh(wall, wall.deviation(first), "scene3", "coloraxis2"),
        _ruler(wall, length),
        _arrows(wall, wall.true, "true arrows", "scene", INK),
        *(_arrows(wall, wall.predicted[m], f"{styles[m].label} arrows", "scene2", styles[m].colour) for m in models),
    ]
    for i in range(1, len(models)):
        traces[5 + i]["visible"] = False
    layout = {
        **{name: _scene(panel, wall) for name, panel in zip(("scene", "scene2", "scene3"), PANELS, strict=True)},
        "coloraxis": _colours(COLOURS, high, f"length of {target}", unit, (PANELS[1][0], PANELS[0][1])),
        "coloraxis2": _colours(ERRORS, worst, "error", unit, PANELS[2]),
        "annotations": [_title(text, panel) for text, panel in zip(_titles(styles[first]), PANELS, strict=True)],
        "updatemenus": [_menu(wall, styles, lengths)],
        "legend": {"x": 0, "xanchor": "left", "y": 0, "yanchor": "top"},
        "margin": {"l": 4, "r": 4, "t": 52, "b": 36},
    }
    return FigureView(traces, layout, _numbers(wall, styles, unit))


def _mesh(wall: Wall, values: np.ndarray, scene: str, axis: str) -> Trace:
    i, j, k = wall.triangles.T.tolist()
    return {
        "type": "mesh3d",
        **_coordinates(wall.nodes),
        "i": i,
        "j": j,
        "k": k,
        "intensity": _rounded(values),
        "coloraxis": axis,
        "scene": scene,
        "hoverinfo": "skip",
        "lighting": {"ambient": 0.75, "diffuse": 0.5, "specular": 0.05},
        "showlegend": False,
    }


def _arrows(wall: Wall, vectors: np.ndarray, name: str, scene: str, colour: str) -> Trace:
    """Lines with a dot at the tip; the few that would be much longer than the rest are cut."""
    chosen = np.linspace(0, len(vectors) - 1, min(ARROWS, len(vectors))).astype(int)
    start, arrow = wall.nodes[chosen], vectors[chosen]
    typical = float(np.quantile(np.linalg.norm(wall.true, axis=1), 0.9))
    lengths = np.linalg.norm(arrow, axis=1, keepdims=True) / max(typical, 1e-12)
    arrow = arrow / max(typical, 1e-12) * np.minimum(1, 2 / np.maximum(lengths, 1e-12))
    tip = start + ARROW * np.ptp(wall.nodes, axis=0).max() * arrow
    ends = np.stack([start, tip, np.full_like(start, np.nan)], 1).reshape(-1, 3)
    return {
        "type": "scatter3d",
        **_coordinates(ends),
        "mode": "lines+markers",
        "line": {"color": colour, "width": 3},
        "marker": {"color": colour, "size": [0, 3, 0] * len(chosen), "line": {"width": 0}},
        "name": name,
        "scene": scene,
        "visible": "legendonly",
        "hoverinfo": "skip",
    }


def _ruler(wall: Wall, unit: str) -> Trace:
    """A line of a known length beside the first picture: 1, 2 or 5 times a power of ten, below a quarter of the wall."""
    low, high = wall.nodes.min(axis=0), wall.nodes.max(axis=0)
    half = (high[0] - low[0]) / 4
    power = 10.0 ** np.floor(np.log10(half))
    size = max(step * power for step in (1, 2, 5) if step * power <= half)
    ends = {"x": [high[0] - size, high[0]], "y": [low[1]] * 2, "z": [low[2] - 0.04 * (high[0] - low[0])] * 2}
    return {
        "type": "scatter3d",
        **{axis: _rounded(np.array(values)) for axis, values in ends.items()},
        "mode": "lines+text",
        "text": [f"{size:g} {unit}", ""],
        "textposition": "middle left",
        "textfont": {"color": INK},
        "line": {"color": INK, "width": 4},
        "scene": "scene",
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _menu(wall: Wall, styles: Mapping[str, Look], lengths: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Choose the model: other colours on the second and third picture, other arrows to be had."""
    models, buttons = list(lengths), []
    changed = [1, 2, *range(5, 5 + len(models))]
    for model in models:
        colours = [_rounded(lengths[model]), _rounded(wall.deviation(model)), *[None] * len(models)]
        seen = [True, True, *("legendonly" if other == model else False for other in models)]
        titles = {f"annotations[{i}].text": text for i, text in enumerate(_titles(styles[model]))}
        label = f"{styles[model].label}: {100 * wall.approximation(model):.1f} %"
        buttons.append(
            {"label": label, "method": "update", "args": [{"intensity": colours, "visible": seen}, titles, changed]}
        )
    style = {"bgcolor": "var(--card)", "bordercolor": "var(--line)", "font": {"color": INK}}
    return {"type": "dropdown", "buttons": buttons, "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom", **style}


def _titles(look: Look) -> tuple[str, str, str]:
    return "true", f"predicted by {look.label}", "error"


def _title(text: str, panel: tuple[float, float]) -> dict[str, Any]:
    place = {"x": 0, "xref": "paper", "xanchor": "left", "y": panel[1], "yref": "paper", "yanchor": "top"}
    return {"text": text, "showarrow": False, **place}


def _scene(panel: tuple[float, float], wall: Wall) -> dict[str, Any]:
    """The same ranges and proportions in every panel: arrows and ruler must not change the scale of one alone."""
    low, high = wall.nodes.min(axis=0), wall.nodes.max(axis=0)
    pad = 0.08 * (high[0] - low[0])
    ends = {axis: _rounded(np.array([low[i] - pad, high[i] + pad])) for i, axis in enumerate("xyz")}
    size = high - low + 2 * pad
    ratio = dict(zip("xyz", _rounded(size * min(WIDTH / size[0], HEIGHT / size[2])), strict=True))
    camera = {"eye": {"x": 0, "y": -1.25, "z": 0}, "up": {"x": 0, "y": 0, "z": 1}, "projection": {"type": "orthographic"}}
    return {
        "domain": {"x": [0, 1], "y": list(panel)},
        "aspectmode": "manual",
        "aspectratio": ratio,
        "dragmode": "orbit",
        "camera": camera,
        **{f"{axis}axis": {"visible": False, "range": ends[axis], "autorange": False} for axis in "xyz"},
    }


def _colours(scale: Any, high: float, title: str, unit: str, panel: tuple[float, float]) -> dict[str, Any]:
    text = f"{title}, {unit}" if unit else title
    place = {"x": 1.0, "xanchor": "left", "y": sum(panel) / 2, "yanchor": "middle", "len": 0.95 * (panel[1] - panel[0])}
    bar = {"thickness": 12, "nticks": 5, "title": {"text": text, "side": "right"}, **place}
    return {"colorscale": scale, "cmin": 0, "cmax": high, "colorbar": bar}


def _numbers(wall: Wall, styles: Mapping[str, Look], unit: str) -> list[list[str]]:
    rows = [["model", "approximation error", f"mean error{f', {unit}' if unit else ''}", "largest"]]
    for model in wall.predicted:
        away = wall.deviation(model)[wall.scored]
        cells = [f"{100 * wall.approximation(model):.1f} %", number(float(away.mean())), number(float(away.max()))]
        rows.append([styles[model].label, *cells])
    return rows


def _coordinates(points: np.ndarray) -> dict[str, list[float | None]]:
    return {axis: _rounded(points[:, a]) for a, axis in enumerate("xyz")}


def _rounded(values: np.ndarray) -> list[float | None]:
    """Four digits are more than a screen shows, and keep the file small; a gap where there is no number."""
    return [float(f"{value:.4g}") if np.isfinite(value) else None for value in values.astype(float)]
