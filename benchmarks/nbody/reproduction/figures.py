"""The pictures of docs/reproduction.md, drawn from rows."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from anygatr.lab.report.palette import looks
from anygatr.lab.report.spread import Spread, spread
from benchmarks.nbody.reproduction.claims import Rows, name, of

MARKERS = {
    "circle": "o", "x": "X", "square": "s", "diamond": "D", "triangle-up": "^", "triangle-down": "v", "pentagon": "p",
}  # fmt: skip
DASHES = (":", "--", "-.")
TITLES = {"mse": "mean", "trimmed": "mean of the best 99 % of samples", "median": "median"}


WIDE = 20
"""From this quotient of its ends on, an axis has room for a few ticks in a decade only."""


def error_against_data(
    rows: Rows, models: Sequence[str], path: Path, lines: Callable[[str], Mapping[str, float]] = lambda metric: {}
) -> None:
    """Evaluation error against training samples, as in the paper's figure; bars span the seeds, `lines` are across.

    lines  errors of other predictors by name, given the metric
    """
    figure, axes = _figure(12.5, 4.2, columns=len(TITLES))
    axes[1].sharey(axes[0])
    for ax, (metric, title) in zip(axes, TITLES.items(), strict=True):
        for model, look in looks(models).items():
            sizes = sorted({row.size for row in of(rows, model) if row.is_ok})
            points = [_errors(of(rows, model, (size,)), metric) for size in sizes]
            known = [(size, point) for size, point in zip(sizes, points, strict=True) if point]
            if not known:
                continue
            x, y = [size for size, _ in known], [point.mean for _, point in known]
            # one seed: the mean and the ends differ by rounding alone
            bars = [[max(p.mean - p.low, 0) for _, p in known], [max(p.high - p.mean, 0) for _, p in known]]
            line = ":" if look.dash == "dot" else "-"
            ax.errorbar(x, y, bars, color=look.colour, marker=MARKERS[look.symbol], ls=line, ms=5, lw=1.5, label=look.label)
        for (said, height), dash in zip(lines(metric).items(), DASHES, strict=False):
            ax.axhline(height, color="#777777", ls=dash, lw=1, label=said)
        ax.set(xscale="log", yscale="log", xlabel="training samples", title=title)
        _plain_ticks(ax.yaxis)
    axes[0].set_ylabel("squared error per coordinate")
    if axes[-1].lines:
        axes[-1].legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    _save(figure, path)


def ablations(rows: Rows, models: Sequence[str], path: Path) -> None:
    """Evaluation error of every variant, a dot per seed."""
    figure, (ax,) = _figure(7.5, 0.8 + 0.3 * len(models))
    for place, model in enumerate(models):
        base = model.split(",")[0]
        look = looks([base])[base]
        found = _errors(of(rows, model), "mse")
        if found is not None:
            ax.plot(found.values, [place] * len(found), MARKERS[look.symbol], color=look.colour, ms=6, alpha=0.8)
        if failed := sum(not row.is_ok for row in of(rows, model)):
            said = f"{failed} of {len(of(rows, model))} runs failed"
            ax.text(0.99, place, said, color=look.colour, ha="right", va="center", transform=ax.get_yaxis_transform())
    ax.set_yticks(range(len(models)), [name(model) for model in models])
    ax.set(xscale="log", xlabel="squared error per coordinate, evaluation set")
    _plain_ticks(ax.xaxis)
    ax.invert_yaxis()
    ax.grid(axis="y", alpha=0.25)
    _save(figure, path)


def _plain_ticks(axis: Axis) -> None:
    low, high = sorted(axis.get_view_interval())
    axis.set_major_locator(LogLocator(subs=tuple(range(1, 10)) if high < WIDE * low else (1, 2, 5)))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def _errors(rows: Rows, metric: str) -> Spread | None:
    return spread(row.metric("eval", metric) for row in rows if row.is_ok)


def _figure(width: float, height: float, columns: int = 1) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = [figure.add_subplot(1, columns, i + 1) for i in range(columns)]
    for ax in axes:
        ax.grid(axis="x", alpha=0.25)
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _save(figure: Figure, path: Path) -> None:
    """The same rows give the same bytes: no date, no random identifiers."""
    with mpl.rc_context({"svg.hashsalt": path.stem, "svg.fonttype": "none", "font.family": "sans-serif"}):
        temporary = path.with_name(f".{path.name}")
        figure.savefig(temporary, format="svg", metadata={"Date": None})
        temporary.replace(path)
