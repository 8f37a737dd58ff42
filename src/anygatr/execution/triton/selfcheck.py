"""Self-check at first use: each kernel once against the torch operations it replaces, on small random numbers."""

import warnings
from collections.abc import Mapping, Sequence
from functools import cache

import torch
import triton
from torch import Tensor

from anygatr.execution.triton.function import KernelFunction, reference
from anygatr.execution.triton.schedule import Kernel
from anygatr.ops.precision import autocast_type

BOUNDS = {torch.float64: 1e-10, torch.float32: 1e-3, torch.float16: 5e-2, torch.bfloat16: 2e-1}
TOKENS = 5
_known: dict[tuple[object, ...], bool] = {}
"""Verdicts of this process, by kernel, types, device with its driver, and versions."""


def passes(kernel: Kernel, given: Sequence[Tensor], named: Mapping[str, Tensor]) -> bool:
    """Whether a kernel gives what torch gives, values and gradients; a failure is said once, with the kernel's name."""
    device, short = given[0].device, autocast_type(given[0])
    key = (kernel, given[0].dtype, short, tuple(t.shape[-1] for t in given), _platform(device))
    if key not in _known:
        _known[key] = True  # not to be asked again from inside
        _known[key] = _check(kernel, given, named, short or given[0].dtype)
    return _known[key]


@cache
def _platform(device: torch.device) -> tuple[object, ...]:
    if device.type != "cuda":
        return "interpreter", triton.__version__, torch.__version__
    properties = torch.cuda.get_device_properties(device)
    return properties.name, properties.major, properties.minor, torch.version.cuda, triton.__version__, torch.__version__


def _check(kernel: Kernel, given: Sequence[Tensor], named: Mapping[str, Tensor], real: torch.dtype) -> bool:
    name = f"{kernel.name} kernel in {str(real).removeprefix('torch.')} on {given[0].device}"
    try:
        worst = _difference(kernel, given, named)
    except Exception as error:  # compilers and drivers raise whatever they like
        warnings.warn(f"the {name} failed: {error}; torch operations run instead", RuntimeWarning, stacklevel=5)
        return False
    bound = BOUNDS[real] * (10 if torch.backends.cuda.matmul.allow_tf32 else 1)
    if not worst <= bound:  # NaN is not
        warnings.warn(
            f"the {name} is wrong by {worst:.1e}, more than {bound:.0e}; torch operations run instead",
            RuntimeWarning,
            stacklevel=5,
        )
        return False
    return True


def _difference(kernel: Kernel, given: Sequence[Tensor], named: Mapping[str, Tensor]) -> float:
    """The largest difference of values and gradients, relative to the largest number of each."""
    count, generator = len(kernel.inputs), torch.Generator().manual_seed(0)

    def random(shape: Sequence[int], like: Tensor) -> Tensor:
        return torch.randn(tuple(shape), generator=generator).to(like.device, like.dtype)

    inputs = [random(_small(place, t), t) for place, t in enumerate(given[:count])]
    own = [random(t.shape, t) for t in given[count:]]
    batch = None
    results = []
    for run in (
        lambda tensors: KernelFunction.apply(kernel, named, batch, *tensors),
        lambda tensors: reference(kernel, named, batch, tensors),
    ):
        with torch.enable_grad():
            leaves = [
                t.clone().requires_grad_(g.requires_grad or n < count)
                for n, (t, g) in enumerate(zip((*inputs, *own), given, strict=True))
            ]
            if kernel.name == "product":
                leaves[1].requires_grad_(False)
            made = run(leaves)
            asked = [t for t in leaves if t.requires_grad]
            cotangents = [torch.ones_like(y) for y in made]
            grads = torch.autograd.grad(made, asked, cotangents, allow_unused=True, materialize_grads=True)
        results.append([*made, *grads])
    pairs = [(a.detach().double(), b.detach().double()) for a, b in zip(*results, strict=True) if b.numel()]
    return max((float((a - b).abs().max() / b.abs().max().clamp(min=1e-3)) for a, b in pairs), default=0.0)


def _small(place: int, t: Tensor) -> tuple[int, ...]:
    """The shape of one sample of few tokens: multivectors and scalars, or numbers of tokens, take turns."""
    return (1, TOKENS, t.shape[-1]) if place % 2 else (t.shape[0], 1, TOKENS, t.shape[-1])
