"""What docs/portability.md says of number formats: how far they are from float64, and what the origin saves."""

import pytest
import torch

from anygatr.interface.model import model
from benchmarks.numerics.precision import errors

BOUNDS = {"float32": (2e-6, 5e-6), "bfloat16": (0.05, 0.15), "float16": (0.005, 0.02)}  # outputs, gradients
FAR = 220.0


@pytest.mark.parametrize("number", BOUNDS)
@pytest.mark.parametrize("name", ["E", "P", "iP", "C"])
def test_errors_with_an_origin_do_not_grow_with_distance(name, number):
    for shift in (0.0, FAR):
        output, gradient = errors(name, number, shift, "mean", seed=0)
        assert output < BOUNDS[number][0]
        assert gradient < BOUNDS[number][1]


@pytest.mark.parametrize(("name", "least"), [("P", 1e-6), ("iP", 1e-6), ("C", 1e-6)])
def test_errors_without_one_do(name, least):
    output, gradient = errors(name, "float32", FAR, None, seed=0)
    assert output > least
    assert gradient > 10 * errors(name, "float32", FAR, "mean", seed=0)[1]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_coordinates_keep_their_digits_under_autocast(dtype):
    """The origin is subtracted and added in the coordinates' own format, outside of autocast."""
    net = model("E", {"position": "point"}, {"final": "point"}, (4, 8), blocks=1, heads=2)
    x = torch.randn(2, 5, 3).double() + 1e6
    with torch.no_grad(), torch.autocast("cpu", dtype):
        final = net(position=x)["final"]
    assert final.dtype == torch.float64
    assert float((final - x).abs().max()) < 100  # not the 2^-8 of 1e6 that bfloat16 would leave
