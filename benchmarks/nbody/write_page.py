"""Write docs/reproduction.md and its figures from the committed rows under results/.

python -m benchmarks.nbody.write_page
"""

from benchmarks.harness.files import PICTURES, ROOT, put
from benchmarks.memory.rows import complete, complete_paper_size
from benchmarks.nbody.reproduction.ablations import VARIANTS
from benchmarks.nbody.reproduction.experiments import EXPERIMENTS
from benchmarks.nbody.reproduction.figures import ablations, error_against_data
from benchmarks.nbody.reproduction.page import FIGURE, page
from benchmarks.nbody.reproduction.results import PAPER_SIZE, Results, keep_rows


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
    ablations(results.rows["variants"], EXPERIMENTS["variants"].models, docs / VARIANTS)
    put(docs / "reproduction.md", page(results))
    print(docs / "reproduction.md")


if __name__ == "__main__":
    main()
