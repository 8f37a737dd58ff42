"""What a figure of the report is, and the two shapes most of them take: curves with bands, and dots in rows.

Traces and layouts are plain dictionaries in plotly's terms. Colours of the page are CSS variables, which the page resolves
when it draws, so that one figure serves light, dark and paper.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Any

from anygatr.lab.report.palette import Look
from anygatr.lab.report.spread import FLOOR, Spread
from anygatr.lab.report.wording import measured, number, superscript

INK, MUTED = "var(--ink)", "var(--muted)"
SYMBOLS = ("circle-open", "diamond", "square", "triangle-up")  # of the series in rows of dots
Trace = dict[str, Any]
Table = list[list[str]]


@dataclass(frozen=True)
class FigureView:
    """One drawing: traces, layout and the numbers behind it, as a table whose first row is its head."""

    traces: list[Trace]
    layout: dict[str, Any]
    numbers: Table


@dataclass(frozen=True)
class Figure:
    """A titled figure with one or several views to choose from; without views its caption says why."""

    name: str
    title: str
    caption: str
    views: dict[str, FigureView]
    height: int = 430


def curves(
    looks: Mapping[str, Look],
    series: Mapping[str, Mapping[float, Spread]],
    titles: tuple[str, str],
    trivial: float | None = None,
) -> FigureView:
    """One line per model through the means at each x, in a band from the lowest to the highest seed; both axes log."""
    traces, rows = list[Trace](), [[titles[0], *(looks[model].label for model in series)]]
    places = sorted({x for points in series.values() for x in points})
    for model, points in series.items():
        traces += line(looks[model], model, dict(sorted(points.items())))
    for x in places:
        rows.append([number(x), *(measured(points[x]) if x in points else "" for points in series.values())])
    if trivial is not None and places:
        traces.append(level(trivial, places))
        rows.append(["no learning", *[number(trivial)] * len(series)])
    heights = [y for points in series.values() for values in points.values() for y in values.values]
    layout = {"xaxis": log_axis(titles[0], places, at=places), "yaxis": log_axis(titles[1], heights)}
    return FigureView(traces, layout, rows)


def dots(
    looks: Mapping[str, Look],
    series: Mapping[str, Mapping[str, Spread]],
    title: str,
    reference: tuple[str, float] | None = None,
) -> FigureView:
    """One row per model, one dot per series at its mean with whiskers over the seeds; the bar between them is the gap."""
    models = list(dict.fromkeys(model for found in series.values() for model in found))
    labels = [looks[model].label for model in models]
    traces = [_bar(looks[model], [found[model].mean for found in series.values() if model in found]) for model in models]
    for (name, found), symbol in zip(series.items(), SYMBOLS, strict=False):
        traces.append(_dot_row(looks, name, found, symbol if len(series) > 1 else "circle"))
        if len(series) > 1:
            traces.append(_legend_entry(name, symbol))
    rows = [["model", *series]] + [
        [looks[model].label, *(measured(found[model]) if model in found else "" for found in series.values())]
        for model in models
    ]
    layout: dict[str, Any] = {
        "xaxis": log_axis(title, [x for found in series.values() for values in found.values() for x in values.values]),
        "yaxis": {"type": "category", "categoryorder": "array", "categoryarray": labels[::-1], "automargin": True},
    }
    if reference is not None:
        layout |= vertical(*reference)
        rows.append([reference[0], *[number(reference[1])] * len(series)])
    return FigureView(traces, layout, rows)


def line(look: Look, group: str, points: Mapping[float, Spread], has_markers: bool = True) -> list[Trace]:
    """A model's mean and, where there are several seeds, its band."""
    xs = list(points)
    mean: Trace = {
        "type": "scatter",
        "x": xs,
        "y": [points[x].mean for x in xs],
        "name": look.label,
        "legendgroup": group,
        "mode": "lines+markers" if has_markers else "lines",
        "line": {"color": look.colour, "width": 2.5, "dash": look.dash},
        "marker": {"color": look.colour, "symbol": look.symbol, "size": 9},
        "customdata": [[points[x].low, points[x].high, len(points[x])] for x in xs],
        "hovertemplate": "%{y:.3g} (%{customdata[0]:.3g}–%{customdata[1]:.3g}, %{customdata[2]} seeds)",
    }
    if max(map(len, points.values()), default=0) < 2:
        return [mean | {"hovertemplate": "%{y:.3g} (one seed)"}]
    band: Trace = {
        "type": "scatter",
        "x": xs + xs[::-1],
        "y": [points[x].high for x in xs] + [points[x].low for x in xs[::-1]],
        "fill": "toself",
        "fillcolor": look.faded(0.16),
        "line": {"width": 0},
        "mode": "lines",
        "legendgroup": group,
        "showlegend": False,
        "hoverinfo": "skip",
    }
    return [band, mean]


def level(y: float, xs: Sequence[float]) -> Trace:
    """The error without learning, a dashed line from the first to the last place."""
    ends = [xs[0], xs[-1]]
    return {
        "type": "scatter",
        "x": ends,
        "y": [y, y],
        "mode": "lines",
        "name": "no learning",
        "line": {"color": MUTED, "width": 1.5, "dash": "dash"},
        "hovertemplate": "%{y:.3g}",
    }


def vertical(label: str, x: float) -> dict[str, Any]:
    """A dashed vertical line with its name above."""
    shape = {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper"}
    note = {"x": log10(x), "y": 1, "yref": "paper", "yanchor": "bottom", "text": label, "showarrow": False}
    # the name stands above the axes, where otherwise there is no margin
    return {
        "margin": {"l": 12, "r": 12, "t": 28, "b": 12},
        "shapes": [shape | {"line": {"color": MUTED, "width": 1.5, "dash": "dash"}}],
        "annotations": [note],
    }


def log_axis(title: str, values: Sequence[float], at: Sequence[float] | None = None) -> dict[str, Any]:
    """A logarithmic axis labelled in plain numbers: at given places, or at 1, 2, 5 (powers of ten if there are many)."""
    marks = list(at) if at is not None else _ticks(min(values), max(values))
    # over many decades only powers are marked, and then written as such
    are_powers = at is None and all(log10(mark).is_integer() for mark in marks)
    texts = [f"10{superscript(round(log10(mark)))}" if are_powers else f"{mark:,.10g}" for mark in marks]
    ticks = {"tickmode": "array", "tickvals": marks, "ticktext": texts}
    return {"type": "log", "title": {"text": title}, "automargin": True, **ticks}


def _ticks(low: float, high: float) -> list[float]:
    """Beyond the values too, so that a reader who zooms out still finds labels."""
    first, last = floor(log10(max(low, FLOOR))), ceil(log10(max(high, FLOOR)))
    steps, stride = ((1, 2, 5) if last - first <= 3 else (1,)), (1 if last - first <= 5 else 2)
    return [float(f"{step}e{decade}") for decade in range(first - 2, last + 3, stride) for step in steps]


def _bar(look: Look, means: list[float]) -> Trace:
    return {
        "type": "scatter",
        "x": [min(means), max(means)],
        "y": [look.label] * 2,
        "mode": "lines",
        "line": {"color": look.faded(0.35), "width": 7},
        "showlegend": False,
        "hoverinfo": "skip",
    }


def _dot_row(looks: Mapping[str, Look], name: str, found: Mapping[str, Spread], symbol: str) -> Trace:
    colours = [looks[model].colour for model in found]
    return {
        "type": "scatter",
        "name": name,
        "x": [values.mean for values in found.values()],
        "y": [looks[model].label for model in found],
        "mode": "markers",
        "showlegend": False,
        "legendgroup": name,
        "marker": {
            "symbol": symbol,
            "size": 12,
            "color": colours,
            "line": {"width": 2, "color": colours},
        },
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [values.high - values.mean for values in found.values()],
            "arrayminus": [values.mean - values.low for values in found.values()],
            "color": MUTED,
            "thickness": 1.2,
            "width": 4,
        },
        "customdata": [[measured(values), len(values)] for values in found.values()],
        "hovertemplate": f"%{{y}}, {name}: %{{customdata[0]}}, %{{customdata[1]}} seeds<extra></extra>",
    }


def _legend_entry(name: str, symbol: str) -> Trace:
    """The symbol without a model's colour, drawn nowhere but in the legend."""
    marker = {"symbol": symbol, "size": 12, "color": MUTED, "line": {"width": 2, "color": MUTED}}
    return {
        "type": "scatter",
        "x": [None],
        "y": [None],
        "mode": "markers",
        "name": name,
        "legendgroup": name,
        "marker": marker,
    }
