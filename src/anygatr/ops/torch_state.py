"""The one place that asks torch what has no public question: hooks on all modules, function transforms, tangents.

Checked with torch 2.7 to 2.13. Where one of these names is missing, the answer is the careful one: the module runs itself
through torch operations.
"""

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.modules import module as modules


def global_hooks() -> bool:
    """Whether a hook is registered for all modules."""
    return bool(modules._has_any_global_hook())


def transformed(values: list[Tensor]) -> bool:
    """Whether a functorch transform, forward-mode AD or a jit trace is active: then only torch operations are seen."""
    if torch._C._are_functorch_transforms_active() or torch._C._get_tracing_state() is not None:
        return True
    return any(forward_ad.unpack_dual(t).tangent is not None for t in values) if _in_dual_level() else False


def eager_on_cpu(*values: Tensor) -> bool:
    """Whether many small operations in place pay: on a CPU, and nobody but autograd has to see through them."""
    return values[0].device.type == "cpu" and not torch.compiler.is_compiling() and not transformed(list(values))


def _in_dual_level() -> bool:
    return forward_ad._current_level >= 0
