"""The site without its API reference, which takes long, built once; pages of it in a browser that has no network."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DESK, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Path:
    build = pytest.importorskip("mkdocs.commands.build").build
    from mkdocs.config import load_config

    out = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(out), plugins=[]))
    return out


@pytest.fixture
def visit(browser, site) -> Iterator[Callable]:
    """Open a page by its address in the site; errors and requests to a network fail the test in the end."""
    contexts, complaints = [], []

    def open_page(name: str, viewport: dict = DESK, **options):
        context = browser.new_context(viewport=viewport, offline=True, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda asked: complaints.append(asked.url) if asked.url.startswith(("http", "ws")) else None)
        page.goto((site / name / "index.html").as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
