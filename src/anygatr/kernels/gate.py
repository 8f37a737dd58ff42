"""Multivectors gated by the GELU of their own scalar part, saving nothing but the input."""

from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from anygatr.kernels import native
from anygatr.kernels.function import Function


def gated_gelu(x: Float[Tensor, "k *tokens c"]) -> Float[Tensor, "k *tokens c"]:
    """y = gelu(x_0) x, with the tanh form of GELU."""
    if torch.compiler.is_compiling():  # the compiler fuses and recomputes by itself
        return x * torch.nn.functional.gelu(x[0], approximate="tanh")
    return _GatedGelu.apply(x)


class _GatedGelu(Function):
    @staticmethod
    def forward(x: Tensor) -> Tensor:
        gate = torch.nn.functional.gelu(x[0], approximate="tanh")
        if not (x.is_contiguous() and native.applies(x)):
            return x * gate
        return _run("gate", (x, gate), x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (x,), (grad,) = ctx.saved_tensors, grads
        gate = torch.nn.functional.gelu(x[0], approximate="tanh")
        if not torch.is_grad_enabled() and native.applies(x, grad):
            slope = torch.ops.aten.gelu_backward(torch.ones_like(gate), x[0], approximate="tanh")
            return _run("gate_backward", (x.contiguous(), grad.contiguous(), gate, slope), x)
        dot = torch.zeros_like(x[0])
        for x_b, grad_b in zip(x.unbind(), grad.unbind(), strict=True):
            dot = dot.addcmul_(x_b, grad_b)
        out = grad * gate
        out[0] += torch.ops.aten.gelu_backward(dot, x[0], approximate="tanh")
        return out


def _run(name: str, inputs: tuple[Tensor, ...], like: Tensor) -> Tensor:
    out, n = torch.empty_like(like, memory_format=torch.contiguous_format), like[0].numel()
    source = _SOURCES[name](len(like), native.REALS[like.dtype])
    run = native.function(source, name, len(inputs) + 1, 2)
    run(*(t.data_ptr() for t in inputs), out.data_ptr(), n, native.threads(n))
    return out


@lru_cache(maxsize=64)
def _forward_source(blades: int, real: str) -> str:
    body = "".join(f"EACH o[{b} * n + l] = g[l] * x[{b} * n + l];\n" for b in range(blades))
    return native.lanes_loop("gate", ("x", "g"), ("o",), body, real)


@lru_cache(maxsize=64)
def _backward_source(blades: int, real: str) -> str:
    dot = "".join(f"dot[l] += x[{b} * n + l] * y[{b} * n + l];\n" for b in range(blades))
    body = f"{real} dot[LANES];\nEACH {{ dot[l] = 0;\n{dot} }}\nEACH o[l] = g[l] * y[l] + dot[l] * d[l];\n"
    body += "".join(f"EACH o[{b} * n + l] = g[l] * y[{b} * n + l];\n" for b in range(1, blades))
    return native.lanes_loop("gate_backward", ("x", "y", "g", "d"), ("o",), body, real)


_SOURCES = {"gate": _forward_source, "gate_backward": _backward_source}
