"""Pieces of HTML: tables, figures with their views, the ranking. Every word of the data is escaped here."""

import json
from collections.abc import Sequence
from html import escape
from math import isfinite
from typing import Any

from anygatr.lab.report.figure import Figure
from anygatr.lab.report.palette import Look
from anygatr.lab.report.ranking import Criterion, Mark

MOST = 3


def table(rows: Sequence[Sequence[str]], attributes: str = "") -> str:
    """A table whose first row is its head; it scrolls in itself where the screen is narrow."""
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in rows[0])
    body = "".join(f"<tr>{_cells(row)}</tr>" for row in rows[1:])
    return f'<div class="scroll" {attributes}><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def section(name: str, title: str, *body: str) -> str:
    """A titled part of the page that the contents link to."""
    return f'<section id="{name}"><h2>{escape(title)}</h2>{"".join(body)}</section>'


def folded(summary: str, *body: str) -> str:
    """Something that opens on demand."""
    return f"<details><summary>{escape(summary)}</summary>{''.join(body)}</details>"


def figure(drawing: Figure) -> str:
    """A figure's place on the page, with the height it will have; its caption alone where there is nothing to draw."""
    if not drawing.views:
        return section(drawing.name, drawing.title, f'<p class="note">{escape(drawing.caption)}</p>')
    buttons = "".join(
        f'<button type="button" data-figure="{drawing.name}" data-view="{i}" aria-pressed="{str(i == 0).lower()}">'
        f"{escape(label)}</button>"
        for i, label in enumerate(drawing.views)
    )
    numbers = "".join(
        table(view.numbers, f'data-numbers="{i}"{" hidden" if i else ""}') for i, view in enumerate(drawing.views.values())
    )
    label = escape(f"{drawing.title}: {drawing.caption}", quote=True)
    size = f'style="height:{drawing.height}px"'  # reserved, so that nothing jumps when the figure arrives
    plot = f'<div class="plot" id="plot-{drawing.name}" role="img" aria-label="{label}" {size}></div>'
    views = f'<div class="views">{buttons}</div>' if len(drawing.views) > 1 else ""
    caption = f"<figcaption>{escape(drawing.caption)}</figcaption>"
    return section(drawing.name, drawing.title, f"<figure>{caption}{views}{plot}</figure>", folded("The numbers", numbers))


def payload(drawings: Sequence[Figure]) -> str:
    """The figures as JSON that is safe inside a script element."""
    content = {
        drawing.name: {
            "height": drawing.height,
            "views": [{"traces": view.traces, "layout": view.layout} for view in drawing.views.values()],
        }
        for drawing in drawings
        if drawing.views
    }
    text = json.dumps(_strict(content), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def ranking(ranked: Sequence[tuple[Criterion, dict[str, Mark]]], looks: dict[str, Look]) -> str:
    """Our marks, what they rest on, and the paper's marks below them."""
    head = "".join(f'<th scope="col" style="--model:{look.colour}">{escape(look.label)}</th>' for look in looks.values())
    rows, was_measured = [], False
    for criterion, marks in ranked:
        cells = "".join(_ranking_cell(criterion, marks.get(model), model, look) for model, look in looks.items())
        first = ' class="first"' if criterion.is_measured and not was_measured else ""
        was_measured = criterion.is_measured
        rows.append(f'<tr{first}><th scope="row">{escape(criterion.name)}</th>{cells}</tr>')
    start = f'<div class="scroll"><table class="ranking" style="--models:{len(looks)}">'
    return f"{start}<thead><tr><th></th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"


def _ranking_cell(criterion: Criterion, mark: Mark | None, model: str, look: Look) -> str:
    start = f'<td data-label="{escape(look.label, quote=True)}" style="--model:{look.colour}">'
    if mark is None:
        return f'{start}<span class="none" aria-label="does not apply">–</span></td>'
    unsure = '<em title="another seed might change this mark">?</em>' if mark.is_unsure else ""
    ours = f'<span class="marks" role="img" aria-label="{mark.marks} of {MOST}">{_pips(mark.marks)}{unsure}</span>'
    value = escape(mark.value).replace(" (", "<br>(")  # the range on its own line
    theirs = criterion.paper.get(model)
    words = f'role="img" aria-label="paper: {theirs} of {MOST}"'
    paper = f'<span class="marks paper" {words}><span>paper</span>{_pips(theirs)}</span>' if theirs else ""
    return f'{start}{ours}<span class="value">{value}</span>{paper}</td>'


def _pips(marks: int | None) -> str:
    return "".join('<i class="on"></i>' if i < (marks or 0) else "<i></i>" for i in range(MOST))


def _cells(row: Sequence[str]) -> str:
    return "".join([f'<th scope="row">{escape(row[0])}</th>', *(f"<td>{escape(cell)}</td>" for cell in row[1:])])


def _strict(value: Any) -> Any:
    """The same with null for numbers that JSON does not have."""
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value
