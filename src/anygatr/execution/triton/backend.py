"""The Triton backend: kernels on CUDA devices, one node of autograd each; torch operations where there is no kernel."""

import importlib.util
import os
import warnings
from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor

from anygatr.execution.triton.schedule import AttentionKernel, Kernel, ProductKernel, schedule
from anygatr.ops.batch import Batch
from anygatr.ops.torch_state import transformed
from anygatr.program.program import Program, Step

PLAIN = (Tensor, torch.nn.Parameter)
REALS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


class TritonBackend:
    """Plain tensors on a CUDA device, outside function transforms; on the CPU where Triton's interpreter is switched on."""

    name = "triton"

    def available(self) -> str | None:
        """None, or what is missing."""
        return _missing(_interpreted())

    def accepts(self, program: Program, values: Sequence[Tensor], parameters: Sequence[Tensor]) -> bool:
        """Whether kernels can read these tensors; there must be tokens."""
        device = values[0].device
        if device.type != ("cpu" if _interpreted() else "cuda") or values[0].dtype not in REALS:
            return False
        if (missing := self.available()) is not None:
            _warn_once(missing)
            return False
        every = [*values, *parameters]
        if not all(type(t) in PLAIN and t.device == device for t in every) or any(0 in t.shape[:-1] for t in values):
            return False
        return not transformed(every)

    def run(
        self,
        program: Program,
        values: Sequence[Tensor],
        parameters: Sequence[Tensor],
        batch: Batch | None,
        watch: Callable[[Step, Sequence[Tensor]], None] | None = None,
    ) -> tuple[Tensor, ...]:
        """The outputs; steps that have no kernel, or one that failed its self-check, run as torch operations."""
        from anygatr.execution.triton.function import KernelFunction, reference
        from anygatr.execution.triton.selfcheck import passes

        known, named = dict(enumerate(values)), dict(zip(program.parameters, parameters, strict=True))
        for item in schedule(program):
            if isinstance(item, Kernel):
                given = [*(known[i] for i in item.inputs), *(named[name] for name in item.parameters)]
                if _fits(item, given) and passes(item, given, named):
                    made = KernelFunction.apply(item, named, batch, *given)
                else:
                    made = reference(item, named, batch, given)
                if isinstance(item, AttentionKernel):
                    q, k, v = made
                    made = item.op.mixture(q, k, v, given[: len(item.inputs)], batch)
                step = item.step
            else:
                given = [known[i] for i in item.inputs]
                made = item.op.run(given, [name and named[name] for name in item.parameters], batch)  # type: ignore[misc]
                step = item
            if watch is not None:
                watch(step, made)
            known.update(zip(item.outputs, made, strict=True))
        return tuple(known[i] for i in program.outputs)


def _fits(kernel: Kernel, given: Sequence[Tensor]) -> bool:
    """Whether a kernel computes all that is asked for: products give the join reference no gradient."""
    return not (isinstance(kernel, ProductKernel) and torch.is_grad_enabled() and given[1].requires_grad)


def _interpreted() -> bool:
    """Whether kernels are interpreted on the CPU, which is for tests: thousands of times slower than a device."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@cache
def _missing(interpreted: bool) -> str | None:
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed; pip install triton"
    if not interpreted and not torch.cuda.is_available():
        return "torch finds no CUDA device"
    try:
        import triton  # noqa: F401
    except Exception as error:  # a broken installation raises whatever it likes
        return f"triton cannot be imported: {error}"
    return None


@cache
def _warn_once(reason: str) -> None:
    warnings.warn(f"{reason}; blocks on CUDA devices run by torch operations, slower", RuntimeWarning, stacklevel=4)
