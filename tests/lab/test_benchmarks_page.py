"""docs/benchmarks.md: written from the committed rows alone, and where we are behind it says so."""

from copy import deepcopy
from pathlib import Path

from benchmarks.peers.published import PUBLISHED
from benchmarks.peers.run import TASKS
from benchmarks.peers.write_page import PAGE, page, read, sentence

ROOT = Path(__file__).parents[2]


def test_the_page_is_what_the_committed_rows_say():
    rows = read(ROOT)
    shown = (ROOT / PAGE).read_text()
    assert page(rows) == shown, "run: python -m benchmarks.peers.write_page"
    changed = deepcopy(rows)
    changed[0][PUBLISHED[changed[0]["task"]].split]["mse"] *= 3
    assert page(changed) != shown


def test_published_sizes_are_those_that_we_train_with():
    for task, published in PUBLISHED.items():
        assert set(published.errors) == set(TASKS[task].budgets)


def test_behind_is_said_with_its_reason():
    published = PUBLISHED["hulls"]  # the best at 256 samples: GLGENN with 16.94, on validation samples

    def says(error: float, training: float) -> str:
        row = {"validation": {"mse": error}, "evaluation": {"mse": 0.0}, "curve": [[10, training, error]]}
        return sentence(published, "E", 256, [row])

    assert "2.0 times below GLGENN" in says(8.47, 1.0)
    assert "**2.0 times above GLGENN**; it fits its training samples (1.00)" in says(33.88, 1.0)
    assert "not finished learning" in says(33.88, 30.0)
    assert sentence(published, "E", 256, []) == ""
