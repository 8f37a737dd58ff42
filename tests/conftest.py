"""One thread, and every pseudo-random number from a fixed seed: a failure seen once is seen again."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

CHROMIUM = Path("/usr/bin/chromium")
# swiftshader: WebGL without a graphics card
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Weights, too, are drawn from a fixed seed."""
    torch.manual_seed(20260)


@pytest.fixture
def rng() -> torch.Generator:
    return torch.Generator().manual_seed(20260)


@pytest.fixture(scope="module")
def browser() -> Iterator:
    """Debian's Chromium, headless."""
    sync_api = pytest.importorskip("playwright.sync_api")
    if not CHROMIUM.exists() and not os.environ.get("CI"):
        pytest.skip(f"{CHROMIUM} is not installed; `make browser` installs it")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield chromium
        chromium.close()
