"""The page in a real browser: drawn without complaint on a desk and on a phone, in the dark and on paper, offline."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from synthetic import failed, write_comparison, write_row

from anygatr.lab.report import write_report

DESK, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
CASES: dict[str, dict] = {
    "full": {},
    "one seed, one size": {"seeds": (0,), "sizes": (300,)},
    "planar": {"dim": 2, "sizes": (100, 1000)},
    "scalar": {"target": "scalar", "has_shift": False, "sizes": (100,)},
    "bare": {"seeds": ()},
    "crowd": {
        "models": ("E", "P", "iP", "C", "transformer", "se3_transformer", "segnn", "pointnet2", "gem_cnn", "a_long_name")
    },
}
SHIFTS = """() => new Promise(done => {
  let sum = 0;
  new PerformanceObserver(list => list.getEntries().forEach(e => { if (!e.hadRecentInput) sum += e.value; }))
    .observe({ type: "layout-shift", buffered: true });
  setTimeout(() => done(sum), 300);
})"""
EMPTY = """() => [...document.querySelectorAll(".plot")].filter(plot => {
  const drawn = plot.querySelectorAll(".trace, canvas, .scatterlayer path").length;
  return !drawn || !plot.querySelector("svg.main-svg") || plot.textContent.includes("WebGL");
}).map(plot => plot.id)"""


@pytest.fixture
def visit(browser) -> Iterator[Callable]:
    """Open a page and collect what it complains about and what it asks the network for."""
    contexts, complaints = [], []

    def open_page(path: Path, viewport: dict = DESK, **options):
        context = browser.new_context(viewport=viewport, offline=True, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda asked: complaints.append(asked.url) if asked.url.startswith(("http", "ws")) else None)
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-drawn]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture(scope="module")
def report(directory) -> Path:
    return write_report(directory)


@pytest.mark.parametrize("case", CASES)
def test_draws_everything_on_desk_and_phone(tmp_path, visit, case):
    directory = write_comparison(tmp_path / "cmp", **CASES[case])
    write_row(directory, failed("C", 300, 7, "a_word_without_a_place_to_break_" * 8))
    page = visit(write_report(directory))
    for viewport in (DESK, PHONE):
        page.set_viewport_size(viewport)
        assert page.locator(".plot").count() >= (0 if case == "bare" else 5)
        page.wait_for_function(f"({EMPTY})().length === 0", timeout=20_000)
        page.wait_for_function(f"document.documentElement.scrollWidth <= {viewport['width']}", timeout=5_000)
        wide = "[...document.querySelectorAll('.plot svg.main-svg')].filter(svg => svg.clientWidth > innerWidth).length"
        page.wait_for_function(f"{wide} === 0", timeout=5_000)


def test_every_view_can_be_chosen_and_brings_its_numbers(visit, report):
    page = visit(report)
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    for button in page.locator(".views button").all():
        button.click()
        figure, view = button.get_attribute("data-figure"), button.get_attribute("data-view")
        assert button.get_attribute("aria-pressed") == "true"
        assert page.locator(f"#{figure} [data-numbers]:visible").get_attribute("data-numbers") == view
    assert page.evaluate(EMPTY) == []


def test_nothing_jumps_or_overflows_on_a_phone(visit, report):
    page = visit(report, PHONE, has_touch=True, is_mobile=True)
    assert page.evaluate(SHIFTS) < 0.01
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    assert page.evaluate("document.getElementById('plot-error')._fullLayout.dragmode") is False  # a finger scrolls the page


def test_dark_and_light(visit, report):
    page = visit(report, color_scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    label = "getComputedStyle(document.querySelector('#plot-error .xtitle')).fill"
    dark = page.evaluate(ground), page.evaluate(label)
    page.locator("#theme").click()
    light = page.evaluate(ground), page.evaluate(label)
    assert dark == ("rgb(21, 24, 29)", "rgb(236, 239, 244)")
    assert light == ("rgb(255, 255, 255)", "rgb(20, 24, 31)")


def test_prints_in_light_colours_with_its_footnotes(visit, report):
    page = visit(report, color_scheme="dark")
    page.evaluate("""addEventListener("beforeprint", () => { window.printed = {
        theme: document.documentElement.dataset.theme, notes: document.querySelector("#ranking details").open,
        width: document.querySelector("#plot-error svg").clientWidth }; })""")
    assert page.pdf(format="A4", print_background=True)[:5] == b"%PDF-"
    assert page.evaluate("window.printed") == {"theme": "light", "notes": True, "width": 680}
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_a_system_can_be_turned(visit, report):
    page = visit(report)
    page.wait_for_selector("#plot-systems canvas")
    camera = "document.getElementById('plot-systems')._fullLayout.scene._scene.getCamera().eye.x"
    before = page.evaluate(camera)
    page.locator("#plot-systems").scroll_into_view_if_needed()
    box = page.locator("#plot-systems").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 150, y + 40, steps=8)
    page.mouse.up()
    page.wait_for_function(f"Math.abs({camera} - {before}) > 0.05", timeout=10_000)


def test_the_checks_notice_an_empty_plot(visit, report):
    page = visit(report)
    page.evaluate("document.querySelector('#plot-cost').replaceChildren()")
    assert page.evaluate(EMPTY) == ["plot-cost"]
