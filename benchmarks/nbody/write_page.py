"""Write docs/reproduction.md with its figures, docs/what-we-learned.md and tables of other pages, from rows.

python -m benchmarks.nbody.write_page
"""

from benchmarks.harness.files import PICTURES, ROOT, put
from benchmarks.memory.rows import complete, complete_paper_size
from benchmarks.nbody.reproduction.ablations import VARIANTS
from benchmarks.nbody.reproduction.decided import FIGURE as DECIDED_FIGURE
from benchmarks.nbody.reproduction.decided import Decided, algebra_table, with_errors
from benchmarks.nbody.reproduction.experiments import EXPERIMENTS
from benchmarks.nbody.reproduction.figures import ablations, error_against_data
from benchmarks.nbody.reproduction.lessons import lessons_page
from benchmarks.nbody.reproduction.page import FIGURE, page
from benchmarks.nbody.reproduction.results import PAPER_SIZE, Results, keep_rows

START, END = "<!-- decided -->", "<!-- end of decided -->"


def main() -> None:
    """Write the page and draw its figures, once every row is in its file and has its memory."""
    for experiment in EXPERIMENTS.values():
        keep_rows(ROOT / experiment.out)
        complete(ROOT / experiment.out)
    if (ROOT / PAPER_SIZE).exists():
        complete_paper_size(ROOT / PAPER_SIZE)
    results = Results.read(ROOT)
    docs = ROOT / "docs"
    PICTURES.mkdir(exist_ok=True)
    error_against_data(results.rows["figure"], EXPERIMENTS["figure"].models, docs / FIGURE)
    decided = results.decided
    error_against_data(decided.rows, decided.models, docs / DECIDED_FIGURE, decided.lines)
    ablations(results.rows["variants"], EXPERIMENTS["variants"].models, docs / VARIANTS)
    put(docs / "reproduction.md", page(results))
    put(docs / "what-we-learned.md", lessons_page(results))
    put(ROOT / "README.md", with_errors((ROOT / "README.md").read_text(), decided))
    put(docs / "which-algebra.md", with_table((docs / "which-algebra.md").read_text(), decided))
    print(docs / "reproduction.md")


def with_table(page: str, decided: Decided) -> str:
    """The page on which algebra to choose with the table of these rows between its marks."""
    before, rest = page.split(START)
    return f"{before}{START}\n{algebra_table(decided)}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    main()
