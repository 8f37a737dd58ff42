"""What the terminal shows: the ranked table and the advice that end `anygatr compare`, and the report command."""

from pathlib import Path

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from anygatr.lab.config.report import ReportConfig
from anygatr.lab.report.advice import advice
from anygatr.lab.report.headline import caveats, headline
from anygatr.lab.report.page import write_report
from anygatr.lab.report.palette import looks
from anygatr.lab.report.ranking import by_error
from anygatr.lab.report.rows import ComparisonResults, load
from anygatr.lab.report.spread import ratio
from anygatr.lab.report.unseen import unable, unseen
from anygatr.lab.report.wording import measured, number, times
from anygatr.lab.system.outputs import output_path
from anygatr.lab.system.terminal import Terminal


def show_report(config: ReportConfig) -> None:
    """Write the page, print the summary and where the page is."""
    console = Terminal()
    out = None if config.out is None else output_path(config.out, [config.directory / "experiment.json"], config.force)
    path = write_report(config.directory, out)
    console.print(summarise(config.directory))
    console.print(
        Text.assemble("\nReport: ", (str(path), "bold"), "  (open it in a browser; it needs no network)"),
        soft_wrap=True,
    )


def summarise(directory: Path) -> RenderableType:
    """The ranked table, one sentence of advice per criterion, and the caveats."""
    experiment = load(directory)
    answer = headline(experiment)
    parts: list[RenderableType] = [Text.assemble(("Which algebra? ", "bold"), (f"{answer.answer}.", "bold green"))]
    parts += [Text(sentence) for sentence in answer.sentences]
    if experiment.finished:
        parts += [Text(), _table(experiment), _advice(experiment)]
    notes = caveats(experiment)
    if notes:
        parts += [Text(), *(Text(f"! {note}", style="yellow") for note in notes)]
    return Group(*parts)


def _table(experiment: ComparisonResults) -> Table:
    names = looks(experiment.models)
    title = f"{experiment.data.get('name', 'data')}, {experiment.reference:,} training samples"
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
    for column in ("", "model", "error", "against the best", "ms per step", "memory MB", "parameters"):
        table.add_column(column, justify="left" if column == "model" else "right")
    ranked = by_error(experiment)
    for place, (model, error) in enumerate(ranked, 1):
        against = "best" if place == 1 else times(ratio(error, ranked[0][1]))
        costs = [experiment.measure(model, name) for name in ("milliseconds_per_step", "training_memory_mb", "parameters")]
        cells = [measured(cost) if cost else "" for cost in costs]
        label = Text(names[model].label, style=f"bold {names[model].colour}")
        table.add_row(unseen(experiment, model) or str(place), label, measured(error), against, *cells)
    for model in experiment.models:
        if experiment.is_blind(model):
            table.add_row("-", Text(names[model].label), "blind", "not ranked", "", "", "")
    for model in unable(experiment):
        table.add_row("-", Text(model), "cannot learn it", "not trained", "", "", "")
    for name, numbers in experiment.baselines().items():
        table.add_row("", Text(f"({name})", style="dim"), number(numbers["mse"]), "", "", "", "")
    return table


def _advice(experiment: ComparisonResults) -> Table:
    table = Table.grid(padding=(0, 2))
    for criterion, sentence in advice(experiment):
        table.add_row(Text(criterion, style="bold"), Text(sentence))
    return table
