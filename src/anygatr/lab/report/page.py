"""The page: one HTML file with everything in it, plotly included, that asks no network for anything."""

from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

from plotly.offline import get_plotlyjs

from anygatr.files.whole import write_text
from anygatr.lab.report import markup
from anygatr.lab.report.advice import advice
from anygatr.lab.report.figure import Figure
from anygatr.lab.report.figures import (
    cost_figure,
    equivariance_figure,
    error_figure,
    gap_figure,
    learning_figure,
    shift_figure,
)
from anygatr.lab.report.headline import Headline, caveats, headline
from anygatr.lab.report.numbers import numbers_table
from anygatr.lab.report.palette import Look, looks
from anygatr.lab.report.ranking import Criterion, Mark, rank
from anygatr.lab.report.rows import ComparisonResults, load
from anygatr.lab.report.settings import differing_settings, environment, shared_settings
from anygatr.lab.report.surfaces import surfaces_figure
from anygatr.lab.report.systems import systems_figure
from anygatr.lab.report.wording import count, listing, number

PAGE = Template("""<!doctype html>
<html lang="en" data-theme="light">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; \
style-src 'unsafe-inline'; img-src data: blob:">
<meta name="generator" content="anygatr">
<title>$title</title>
<script>if (matchMedia("(prefers-color-scheme: dark)").matches) document.documentElement.dataset.theme = "dark";</script>
<style>$style</style>
</head>
<body>
<header>$top</header>
<nav class="screen" aria-label="Contents"><div>$contents<button type="button" id="theme">Dark</button></div></nav>
<main>$sections</main>
<footer>$foot</footer>
<script type="application/json" id="figures">$figures</script>
<script>$plotly</script>
<script>$script</script>
</body>
</html>
""")


def write_report(directory: Path, out: Path | None = None) -> Path:
    """Write the report of a comparison and return where it is: `report.html` in the directory, or `out`."""
    experiment = load(directory)
    path = Path(out) if out is not None else Path(directory) / "report.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, _page(experiment))
    return path


def _page(experiment: ComparisonResults) -> str:
    drawings = _figures(experiment) if experiment.finished else []
    parts = {drawing.name: (drawing.title, markup.figure(drawing)) for drawing in drawings}
    if experiment.finished:
        ranking = ("Ranking", markup.section("ranking", "Measured ranking", *_ranking(experiment)))
        first, *rest = parts.items()
        parts = dict([first, *_numbers(experiment), ("ranking", ranking), *rest])
    parts["repeat"] = ("Repeat it", markup.section("repeat", "Repeat it", *_repeat(experiment)))
    answer, assets = headline(experiment), files("anygatr.lab.report")
    name = str(experiment.data.get("name", "data"))
    return PAGE.substitute(
        title=escape(f"Which algebra? {answer.answer}: {name}"),
        style=assets.joinpath("page.css").read_text(encoding="utf-8"),
        top=_top(experiment, answer),
        contents="".join(f'<a href="#{key}">{escape(NAVIGATION.get(key, title))}</a>' for key, (title, _) in parts.items()),
        sections="".join(body for _, body in parts.values()),
        foot="Written by <code>anygatr report</code>. Everything is in this file; it works without a network.",
        figures=markup.payload(drawings),
        plotly=get_plotlyjs(),
        script=assets.joinpath("page.js").read_text(encoding="utf-8"),
    )


def _numbers(experiment: ComparisonResults) -> list[tuple[str, tuple[str, str]]]:
    """The section with errors of every target beside what they must beat, where they were recorded."""
    table = numbers_table(experiment)
    if not table:
        return []
    note = "On the evaluation set, in the units of the data, means over seeds. In brackets: predictors without training."
    body = markup.section("numbers", "What an error must beat", f'<p class="note">{escape(note)}</p>', markup.table(table))
    return [("numbers", ("Numbers", body))]


NAVIGATION = {
    "error": "Error",
    "gap": "Gap",
    "learning": "Learning",
    "cost": "Cost",
    "shift": "Shift",
    "systems": "Systems",
}


def _figures(experiment: ComparisonResults) -> list[Figure]:
    seen = surfaces_figure(experiment) or systems_figure(experiment)
    numbers = [make(experiment) for make in (error_figure, cost_figure, gap_figure, learning_figure, shift_figure)]
    return [*numbers, seen, equivariance_figure(experiment)]


def _top(experiment: ComparisonResults, answer: Headline) -> str:
    data = experiment.data
    about = [str(data.get("name", "")), f"{data['dim']}D" if "dim" in data else "", _tokens(data.get("tokens"))]
    lines = [" · ".join(filter(None, ["AnyGATr comparison", *about])), str(data.get("description", ""))]
    kicker = f'<p class="kicker">{"<br>".join(map(escape, lines))}</p>'
    title = f"<h1><small>Which algebra?</small>{_answer(answer, looks(experiment.models))}</h1>"
    lead = "".join(f'<p class="lead">{escape(sentence)}</p>' for sentence in answer.sentences)
    notes = "".join(f"<li>{escape(note)}</li>" for note in caveats(experiment))
    warned = f'<ul class="caveats" aria-label="Caveats">{notes}</ul>' if notes else ""
    facts = "".join(
        f"<div><dt>{escape(key)}</dt><dd>{escape(value)}</dd></div>" for key, value in _facts(experiment).items()
    )
    return kicker + title + lead + warned + f'<dl class="facts">{facts}</dl>'


def _answer(answer: Headline, names: dict[str, Look]) -> str:
    """The answer with each algebra in its colour."""
    if not answer.winners:
        return escape(answer.answer)
    coloured = [f'<b style="--model:{names[model].colour}">{escape(model)}</b>' for model in answer.winners]
    return listing(coloured, "<i>or</i>")


def _facts(experiment: ComparisonResults) -> dict[str, str]:
    asked = experiment.asked
    total = len(experiment.rows) + experiment.pending
    facts = {
        "Models": str(len(experiment.models) or ""),
        "Training samples": " · ".join(f"{size:,}" for size in experiment.sizes),
        "Seeds": str(experiment.seeds or ""),
        "Runs finished": f"{len(experiment.finished)} of {total}",
        "Error without learning": number(experiment.trivial) if experiment.trivial is not None else "",
        "Origin": str(asked.get("origin") or "none"),
        "Preset": str(asked.get("preset") or ""),
    }
    return {key: value for key, value in facts.items() if value}


def _tokens(tokens: object) -> str:
    return (
        count(tokens, "token") + " per sample"
        if isinstance(tokens, int)
        else f"{tokens} tokens per sample"
        if tokens
        else ""
    )


def _ranking(experiment: ComparisonResults) -> list[str]:
    ranked = rank(experiment)
    how = [["criterion", "how our marks are given"], *([criterion.name, criterion.how] for criterion, _ in ranked)]
    sentences = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in advice(experiment))
    intro = (
        "One to three marks, three is best; small and grey, the paper's. The first three rows are counted and solved for, "
    )
    intro += "the others measured here. A question mark: another seed might change the mark."
    return [
        f"<p>{escape(intro)} {escape(_agreement(ranked))}</p>",
        markup.ranking(ranked, looks(experiment.models)),
        markup.folded("How the marks are given", markup.table(how)),
        f'<h3>Advice</h3><dl class="advice">{sentences}</dl>',
    ]


def _agreement(ranked: list[tuple[Criterion, dict[str, Mark]]]) -> str:
    pairs = [
        (mark.marks, criterion.paper[model])
        for criterion, marks in ranked
        for model, mark in marks.items()
        if model in criterion.paper
    ]
    same = sum(ours == theirs for ours, theirs in pairs)
    return f"We agree with the paper on {same} of {count(len(pairs), 'mark')}." if pairs else ""


def _repeat(experiment: ComparisonResults) -> list[str]:
    command = str(experiment.asked.get("command") or "")
    body = []
    if command:
        body.append(f'<pre id="command">{escape(command)}</pre>')
        body.append('<button type="button" id="copy" class="screen" hidden>Copy the command</button>')
    else:
        body.append('<p class="note">The command was not recorded.</p>')
    if experiment.failed:
        rows = [[row.model, f"{row.size:,}", str(row.seed), row.error or "no message"] for row in experiment.failed]
        body.append("<h3>Failed runs</h3>" + markup.table([["model", "samples", "seed", "error"], *rows]))
    differing = differing_settings(experiment)
    if differing:
        body.append("<h3>Settings that differ</h3>" + markup.table(differing))
    shared = shared_settings(experiment)
    if shared:
        body.append(markup.folded("Settings all runs share", markup.table([["setting", "value"], *shared])))
    if environment(experiment):
        body.append(markup.folded("Machine and versions", markup.table([["", ""], *environment(experiment)])))
    return body
