"""One thread, and every pseudo-random number from a fixed seed: a failure seen once is seen again."""

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Weights, too, are drawn from a fixed seed."""
    torch.manual_seed(20260)


@pytest.fixture
def rng() -> torch.Generator:
    return torch.Generator().manual_seed(20260)
