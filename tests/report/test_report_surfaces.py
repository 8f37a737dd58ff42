"""Surfaces in the report: colours are lengths, errors are those of the samples, and three cameras move as one."""

from pathlib import Path

import numpy as np
import pytest
from synthetic import write_comparison
from test_report_browser import visit  # noqa: F401  a fixture

from anygatr.lab.report import write_report
from anygatr.lab.report.rows import load
from anygatr.lab.report.surfaces import surfaces_figure

MODELS = ("iP", "transformer")


@pytest.fixture(scope="module")
def directory(tmp_path_factory) -> Path:
    """A comparison on two tubes with a field along them."""
    data = {
        "name": "tubes",
        "dim": 3,
        "fields": {"position": "point"},
        "targets": {"force": "vector"},
        "units": {"position": "cm", "force": "N"},
    }
    path = write_comparison(tmp_path_factory.mktemp("runs") / "cmp", MODELS, (96,), has_predictions=False, data=data)
    (path / "predictions").mkdir()
    nodes, triangles = tube()
    force = np.stack([1 + nodes[:, 0] ** 2, 0 * nodes[:, 0], 0 * nodes[:, 0]], 1)
    both = {"position": np.concatenate([nodes, nodes + 9]), "offsets": np.array([0, len(nodes), 2 * len(nodes)])}
    both |= {"triangles": np.tile(triangles, (2, 1)), "triangle_offsets": np.array([0, 1, 2]) * len(triangles)}
    both |= {"target/force": np.tile(force, (2, 1)), "scored": np.tile(np.abs(nodes[:, 0]) < 1.5, 2)}
    for i, model in enumerate(MODELS, 1):
        np.savez(
            path / "predictions" / f"{model}.npz", **both, **{"prediction/force": np.tile((1 + 0.1 * i) * force, (2, 1))}
        )
    return path


def tube(rings: int = 20, around: int = 8) -> tuple[np.ndarray, np.ndarray]:
    x, a = np.meshgrid(np.linspace(-2, 2, rings), 2 * np.pi * np.arange(around) / around, indexing="ij")
    nodes = np.stack([x, 0.4 * np.cos(a), 0.4 * np.sin(a)], -1).reshape(-1, 3)
    i = np.arange((rings - 1) * around)
    right = i // around * around + (i + 1) % around
    return nodes, np.concatenate([np.stack([i, right, i + around], 1), np.stack([right, right + around, i + around], 1)])


def test_colours_are_lengths_and_the_menu_names_each_error(directory):
    figure = surfaces_figure(load(directory))
    assert list(figure.views) == ["Surface 1", "Surface 2"]
    view = figure.views["Surface 1"]
    true, predicted, error = (np.array(trace["intensity"]) for trace in view.traces[:3])
    first = 1.1 if "iP" in view.layout["updatemenus"][0]["buttons"][0]["label"] else 1.2
    assert np.allclose(predicted, first * true, rtol=1e-3)
    assert np.allclose(error, (first - 1) * true, rtol=1e-3)
    labels = {button["label"] for button in view.layout["updatemenus"][0]["buttons"]}
    assert labels == {"iP-GATr: 10.0 %", "Transformer: 20.0 %"}
    arrows = [trace for trace in view.traces if "arrows" in trace.get("name", "")]
    assert all(trace["visible"] in ("legendonly", False) for trace in arrows)  # on demand
    assert len(arrows) == 3
    assert "N" in view.layout["coloraxis"]["colorbar"]["title"]["text"]


def test_samples_without_triangles_are_left_to_the_other_figure(tmp_path):
    assert surfaces_figure(load(write_comparison(tmp_path / "cmp"))) is None


def test_cameras_move_together_and_another_model_can_be_chosen(directory, visit):  # noqa: F811
    page = visit(write_report(directory))
    page.wait_for_selector("#plot-systems canvas")
    camera = "document.getElementById('plot-systems')._fullLayout[s]._scene.getCamera().eye.x"
    eyes = f"['scene', 'scene2', 'scene3'].map(s => {camera})"
    before = page.evaluate(eyes)
    assert before[0] == before[1] == before[2]
    page.locator("#plot-systems").scroll_into_view_if_needed()
    box = page.locator("#plot-systems").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + 0.2 * box["height"]
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 120, y + 30, steps=8)
    page.mouse.up()
    moved = f"e => e.every(x => Math.abs(x - {before[0]}) > 0.05 && Math.abs(x - e[0]) < 1e-6)"
    page.wait_for_function(f"({moved})({eyes})", timeout=20_000)
    colours = "document.getElementById('plot-systems').data[2].intensity[0]"
    old = page.evaluate(colours)
    page.locator("#plot-systems .updatemenu-header").click()
    page.locator("#plot-systems .updatemenu-dropdown-button").nth(1).click()
    page.wait_for_function(f"{colours} !== {old}", timeout=20_000)
