"""The Triton backend on a machine without a GPU: its kernels interpreted, compiled ahead of time, and missing."""

import os
import re
import subprocess
import sys
from pathlib import Path
from unittest import mock

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


@triton
@pytest.mark.slow
@pytest.mark.parametrize("architecture", [80, 90])
@pytest.mark.parametrize("preset", ["any", "E", "P", "iP", "C"])
def test_no_kernel_spills(preset, architecture):
    """Compiled for two cards that are not there, in float32 and with bfloat16 products."""
    from benchmarks.gpu.registers import of_geometry, of_tables, table

    found = table(of_tables() if preset == "any" else of_geometry(preset), architecture)
    assert len(found) >= 4
    assert not {name: one for name, one in found.items() if one.spilled}
    assert max(one.registers for one in found.values()) <= 128


@triton
def test_registers_are_counted():
    """The smallest kernel, and one that must spill: the negative control of the test above."""
    from benchmarks.gpu.ahead_of_time import usage
    from benchmarks.gpu.registers import of_geometry

    _, kernel, constants, _ = next(of_geometry("E"))
    assert usage(kernel, constants, 80).spilled == 0
    assert usage(kernel, constants, 80, maxnreg=16).spilled > 0


@triton
@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_matrix_units_sum_sixteen_bits_in_float32(name):
    """By the instructions for sm_80: the result and the sum so far are float32."""
    import triton.language as tl

    from benchmarks.gpu.ahead_of_time import compiled
    from benchmarks.gpu.registers import of_tables

    dot = {"bf16": tl.bfloat16, "fp16": tl.float16}[name]
    _, kernel, constants, options = next(one for one in of_tables() if one[0].startswith("linear"))
    found = re.findall(r"mma\.sync\.\S+", compiled(kernel, constants | {"DOT": dot}, 80, **options).asm["ptx"])
    assert found
    assert {one.split(".", 6)[-1] for one in found} == {f"f32.{name.replace('fp', 'f')}.{name.replace('fp', 'f')}.f32"}


@triton
@pytest.mark.slow
def test_a_first_step_compiles_within_half_a_minute():
    """Of C, which has the most terms; the negative control is its product unrolled."""
    from anygatr.execution.triton import product
    from benchmarks.gpu.compile_time import seconds
    from benchmarks.gpu.launches import block_step

    assert seconds(block_step("C", "a", "triton").specialisations) < 30
    with mock.patch.object(product, "UNROLLED", 10**6):
        assert seconds(block_step("C", "a", "triton").specialisations) > 30


@triton
@pytest.mark.parametrize(("preset", "most"), [("iP", 75), ("C", 75)])
def test_a_training_step_needs_few_launches(preset, most):
    """One block at configuration a, counted as the torch backend's are; kernels are counted and not run."""
    from benchmarks.gpu.launches import block_step

    counted = block_step(preset, "a", "triton").counts
    assert sum(counted.values()) <= most, counted
    assert counted["triton linear_kernel"] == 10
    assert not {"nonzero", "_local_scalar_dense"} & set(counted)


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["iP", "C"])
def test_a_compiled_block_has_few_kernels(preset):
    """One region without graph breaks, counted in the code that inductor writes for CPUs."""
    from benchmarks.gpu.compiled import kernels

    torch.compiler.reset()
    fused, called = kernels(preset)
    assert min(fused, called) > 10
    assert fused + called <= 130
