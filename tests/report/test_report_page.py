"""The page as text: complete, valid for plotly, safe, self-contained, and graceful where something is missing."""

import json
import re

import numpy as np
import plotly.graph_objects as go
import pytest
from synthetic import MODELS, failed, row, write_comparison, write_row

from anygatr.lab.report import load, write_report
from anygatr.lab.report.page import PAGE
from anygatr.lab.report.systems import systems_figure

FIGURES = ("error", "cost", "gap", "learning", "shift", "systems", "equivariance")


def figures(page: str) -> dict:
    return json.loads(re.search(r'id="figures">(.*?)</script>', page, re.DOTALL)[1])


def visible(page: str) -> str:
    """The page without its scripts and styles."""
    return re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL)


@pytest.fixture(scope="module")
def page(directory) -> str:
    return write_report(directory).read_text(encoding="utf-8")


def test_every_figure_is_valid_plotly_and_has_its_numbers(page):
    found = figures(page)
    assert tuple(found) == FIGURES
    for name, figure in found.items():
        for view in figure["views"]:
            go.Figure({"data": view["traces"], "layout": view["layout"]})  # raises on any property plotly does not know
        assert page.count(f'data-figure="{name}"') == (len(figure["views"]) if len(figure["views"]) > 1 else 0)
    with pytest.raises(ValueError, match="markerr"):
        go.Figure({"data": [{"type": "scatter", "markerr": {}}]})


def test_the_figure_shows_the_rows(page, experiment):
    """Means, bands and the dashed line are those of the files."""
    traces = {trace.get("name"): trace for trace in figures(page)["error"]["views"][0]["traces"]}
    for label, model in (("C-GATr", "C"), ("Transformer", "transformer")):
        means = [experiment.error(model, size).mean for size in experiment.sizes]
        assert traces[label]["y"] == pytest.approx(means)
    assert set(traces["no learning"]["y"]) == {experiment.trivial}
    band = figures(page)["error"]["views"][0]["traces"][0]
    assert band["fill"] == "toself"
    assert max(band["y"]) == pytest.approx(experiment.error("E", 100).high)


def test_colours_are_the_same_in_every_figure(page):
    for name in ("error", "learning", "cost", "systems"):
        traces = figures(page)[name]["views"][0]["traces"]
        colours = {trace["name"]: trace["marker"]["color"] for trace in traces if trace.get("name", "").endswith("-GATr")}
        assert colours == {"E-GATr": "#C77700", "P-GATr": "#D4373E", "iP-GATr": "#2B7BD9", "C-GATr": "#14915B"}


def test_the_page_says_what_it_rests_on(page, experiment):
    text = visible(page)
    for part in (
        "Which algebra?",
        "Preliminary",
        "How the marks are given",
        experiment.asked["command"],
        "width.mv",
        "2.13.0",
    ):
        assert part in text
    for criterion in ("Simplicity", "Richness", "Expressivity", "Memory", "Speed", "Stability", "Performance"):
        assert f'<th scope="row">{criterion}</th>' in text
    assert text.count('aria-label="paper: ') == 24


def test_nothing_comes_from_outside(page):
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!#)""", visible(page))
    assert "default-src 'none'" in page
    assert "connect-src" not in page
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)[1]
    assert "url(" not in style
    assert "@import" not in style


@pytest.mark.parametrize(
    ("changes", "empty", "sentence"),
    [
        ({"seeds": (0,)}, set(), "One seed, hence no bands."),
        ({"sizes": (300,)}, set(), "the only size that was run"),
        ({"has_predictions": False}, {"systems"}, "No predictions were stored"),
        ({"has_shift": False}, {"shift"}, "have no set under shift"),
        ({"dim": 2}, set(), "double-click to go back"),
        ({"target": "vector"}, set(), "scaled to be seen"),
        ({"target": "scalar"}, set(), "Predicted against true final"),
        ({"target": "motor"}, set(), "Predicted against true final"),
        ({"models": ("mine", "yours")}, set(), "No algebra took part"),
        ({"seeds": ()}, set(FIGURES), "No run has finished."),
    ],
)
def test_missing_pieces_are_said_not_drawn(tmp_path, changes, empty, sentence):
    page = write_report(write_comparison(tmp_path / "cmp", **changes)).read_text(encoding="utf-8")
    assert set(figures(page)) == set(FIGURES) - empty
    assert sentence in visible(page)
    assert all(trace["x"] for figure in figures(page).values() for view in figure["views"] for trace in view["traces"])


def test_rows_without_any_extra_measurement(tmp_path):
    """Only what a row must have: the rest becomes sentences."""
    directory = write_comparison(tmp_path / "cmp", models=("E", "C"), sizes=(100,), seeds=(0,), has_predictions=False)
    for model in ("E", "C"):
        bare = {key: row(model, 100, 0)[key] for key in ("model", "size", "seed", "status")}
        write_row(directory, bare | {"metrics": {"eval": {"mse": 0.01}}})
    page = write_report(directory).read_text(encoding="utf-8")
    assert set(figures(page)) == {"error"}
    for sentence in ("so there is no gap to show", "No run recorded its learning curve", "No run recorded what it cost"):
        assert sentence in visible(page)


def test_failed_runs_are_listed_with_their_error(tmp_path):
    directory = write_comparison(tmp_path / "cmp", models=("E", "C"), sizes=(100,))
    write_row(directory, failed("C", 100, 2, "gradient is not finite at step 412", nonfinite=True))
    text = visible(write_report(directory).read_text(encoding="utf-8"))
    assert "<td>gradient is not finite at step 412</td>" in text
    assert "1 run failed" in text


def test_words_of_the_data_are_never_markup(tmp_path):
    evil = "</script><script>alert(1)</script>"
    directory = write_comparison(tmp_path / "cmp", models=(evil, "C"), sizes=(100,), command=evil, preset=evil)
    write_row(directory, failed("C", 100, 2, evil))
    page = write_report(directory).read_text(encoding="utf-8")
    assert evil not in page
    assert page.count("<script") - page.count("<script>alert") >= 4  # our own are still there
    assert "alert(1)" in visible(page)  # shown, as text
    payload = re.search(r'id="figures">(.*?)</script>', page, re.DOTALL)[1]
    assert "alert" in payload
    assert not set("<>&") & set(payload)


def test_ragged_systems_and_strangers_among_predictions(tmp_path):
    directory = write_comparison(tmp_path / "cmp", models=("E", "C"), sizes=(100,), seeds=(0,), has_predictions=False)
    (directory / "predictions").mkdir()
    rng, offsets = np.random.default_rng(0), np.array([0, 5, 12])
    position = rng.standard_normal((12, 3))
    arrays = {"position": position, "offsets": offsets, "target/final": position + 1, "prediction/final": position + 1.1}
    np.savez(directory / "predictions" / "C.npz", **arrays)
    np.savez(directory / "predictions" / "E.npz", **arrays | {"target/final": position + 2})
    figure = systems_figure(load(directory))
    assert len(figure.views) == 2
    for view in figure.views.values():
        assert [line[0] for line in view.numbers] == ["model", "C-GATr"]  # E was asked about other systems
        assert view.numbers[1][1:] == ["0.173", "0.173"]
    assert sorted(len(view.traces[0]["x"]) for view in figure.views.values()) == [5, 7]


def test_scaling_arrows_does_not_scale_the_numbers(tmp_path):
    directory = write_comparison(tmp_path / "cmp", models=("E", "P"), sizes=(100,), seeds=(0,), target="vector")
    arrays = load(directory).predictions["E"]
    away = np.linalg.norm(arrays["prediction/final"] - arrays["target/final"], axis=-1).mean(-1)
    figure = systems_figure(load(directory))
    shown = {float(view.numbers[1][1]) for view in figure.views.values()}
    assert all(min(abs(away / value - 1)) < 0.01 for value in shown)


def test_writes_where_asked_and_leaves_nothing_behind(directory, tmp_path):
    out = write_report(directory, tmp_path / "new" / "page.html")
    assert [path.name for path in out.parent.iterdir()] == ["page.html"]
    assert out.read_text(encoding="utf-8").startswith(PAGE.template[:15])


def test_all_models_of_the_spec_have_names(tmp_path):
    models = (*MODELS, "se3_transformer", "segnn", "pointnet2", "gem_cnn")
    text = visible(write_report(write_comparison(tmp_path / "cmp", models=models, sizes=(100,))).read_text(encoding="utf-8"))
    for label in ("SE(3)-Transformer", "SEGNN", "PointNet++", "GEM-CNN"):
        assert label in text
