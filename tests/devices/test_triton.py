"""The Triton backend on a machine without a GPU: its kernels interpreted, compiled ahead of time, and missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import anygatr
from anygatr.execution.triton import backend

INTERPRETED = Path(__file__).with_name("interpreted.py")
triton = pytest.mark.skipif(backend._missing(True) is not None, reason="triton is not installed")


def interpret(*options: str) -> None:
    """The tests of interpreted.py in a process of their own."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(INTERPRETED), *options],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


@triton
def test_kernels_give_what_torch_gives():
    interpret()


@triton
@pytest.mark.slow
def test_kernels_of_every_preset_give_what_torch_gives():
    interpret("-m", "slow")


def test_without_a_device_the_backend_says_why():
    assert dict(anygatr.backends())["triton"] == "torch finds no CUDA device"
    with pytest.raises(ValueError, match="backend='triton' is not available here: torch finds no CUDA device; use 'auto'"):
        anygatr.backend("triton")


def test_without_triton_there_is_one_warning(monkeypatch):
    monkeypatch.setattr(backend.importlib.util, "find_spec", lambda name: None)
    backend._missing.cache_clear()
    backend._warn_once.cache_clear()
    try:
        assert backend.TritonBackend().available() == "triton is not installed; pip install triton"
        pretended = torch.empty(4, 2, 3)
        monkeypatch.setattr(backend, "_interpreted", lambda: True)
        with pytest.warns(
            RuntimeWarning, match="triton is not installed; pip install triton; blocks on CUDA devices run by"
        ):
            assert not backend.TritonBackend().accepts(None, [pretended], [])
        assert not backend.TritonBackend().accepts(None, [pretended], [])  # a second warning would be an error
    finally:
        backend._missing.cache_clear()
