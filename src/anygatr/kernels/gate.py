"""Multivectors gated by the GELU of their own scalar part, saving nothing but the input."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor


def gated_gelu(x: Float[Tensor, "k *tokens c"]) -> Float[Tensor, "k *tokens c"]:
    """y = gelu(x_0) x, with the tanh form of GELU."""
    return _GatedGelu.apply(x)


class _GatedGelu(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x * torch.nn.functional.gelu(x[0], approximate="tanh")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (x,), (grad,) = ctx.saved_tensors, grads
        dot = torch.zeros_like(x[0])
        for x_b, grad_b in zip(x.unbind(), grad.unbind(), strict=True):
            dot = dot.addcmul_(x_b, grad_b)
        out = grad * torch.nn.functional.gelu(x[0], approximate="tanh")
        out[0] += torch.ops.aten.gelu_backward(dot, x[0], approximate="tanh")
        return out
