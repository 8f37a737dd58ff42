"""Self-check at first use: each kernel once against the torch operations it replaces, on small random numbers.

Verdicts are kept on cache. They hold for a kernel with its plans, types, device, driver, versions, and our own sources.
"""

import warnings
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from anygatr.execution import cache
from anygatr.execution.triton.function import KernelFunction, reference
from anygatr.execution.triton.launch import precision
from anygatr.execution.triton.schedule import Kernel
from anygatr.execution.triton.surroundings import platform
from anygatr.ops.precision import autocast_type

BOUNDS = {torch.float64: 1e-10, torch.float32: 1e-3, torch.float16: 5e-2, torch.bfloat16: 2e-1}
TOKENS = 5
_known: dict[tuple[object, ...], bool] = {}
"""Verdicts that this process has asked for."""


def passes(kernel: Kernel, given: Sequence[Tensor], named: Mapping[str, Tensor]) -> bool:
    """Whether a kernel gives what torch gives, values and gradients; a failure is said once, with the kernel's name."""
    device, short = given[0].device, autocast_type(given[0])
    key = kernel, given[0].dtype, short, tuple(t.shape[-1] for t in given), precision(), platform(device)
    if key not in _known:
        _known[key] = True  # not to be asked again from inside
        try:
            _known[key] = _verdict(kernel, given, named, key)
        except BaseException:
            del _known[key]
            raise
    return _known[key]


def _verdict(kernel: Kernel, given: Sequence[Tensor], named: Mapping[str, Tensor], key: tuple[object, ...]) -> bool:
    """That of an earlier process, or of a check, which is then kept; a failure is a warning either way."""
    kept = cache.recall("check", key)
    if kept is not None and isinstance(kept.get("failure", 0), str | None):
        failure, earlier = kept["failure"], " in an earlier process"
    else:
        failure, earlier = _failure(kernel, given, named), ""
        cache.keep("check", key, {"failure": failure})
    if failure is None:
        return True
    name = f"{kernel.name} kernel in {str(key[2] or key[1]).removeprefix('torch.')} on {given[0].device}"
    warnings.warn(f"the {name} {failure}{earlier}; torch operations run instead", RuntimeWarning, stacklevel=5)
    return False


def _failure(kernel: Kernel, given: Sequence[Tensor], named: Mapping[str, Tensor]) -> str | None:
    """What is wrong with a kernel."""
    try:
        worst = _difference(kernel, given, named)
    except torch.OutOfMemoryError:  # says nothing about the kernel: the next step raises it where it belongs
        raise
    except Exception as error:  # compilers and drivers raise whatever they like
        return f"failed: {error}"
    bound = BOUNDS[autocast_type(given[0]) or given[0].dtype] * (1 if precision() == "ieee" else 10)
    return None if worst <= bound else f"is wrong by {worst:.1e}, more than {bound:.0e}"  # NaN is wrong


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
