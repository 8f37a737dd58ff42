"""Calls of the product kernels: a plan and its derivative."""

import triton
from torch import Tensor

from anygatr.execution.triton.generated import kernel_of
from anygatr.execution.triton.launch import LANGUAGE, call, sum_type
from anygatr.execution.triton.product_source import NUMBERS, product_source
from anygatr.ops.precision import lengthened
from anygatr.ops.product import ProductPlan


def forward(plan: ProductPlan, h: Tensor, reference: Tensor) -> Tensor:
    """All products of a stack of factors."""
    (h,) = lengthened(h)
    return _product(plan, h, h, reference)


def backward(plan: ProductPlan, grad: Tensor, h: Tensor, reference: Tensor) -> Tensor:
    """The gradient of the factors."""
    (right,) = lengthened(h)
    return _product(plan.wrt_both, grad, right, reference).to(h.dtype)


def _product(plan: ProductPlan, left: Tensor, right: Tensor, reference: Tensor) -> Tensor:
    left, right, tokens = left.contiguous(), right.contiguous(), left.shape[1:-1]
    channels = left.shape[-1] // plan.sizes[1]
    out = left.new_empty(len(left), *tokens, plan.sizes[0] * channels)
    if any(term.odd for term in plan.terms):  # one number for each token
        reference = reference.detach().to(left.dtype).expand(*tokens, 1).contiguous()
    call(
        kernel_of(product_source(plan, len(left)), "product"),
        (triton.cdiv(tokens.numel() * channels, NUMBERS),),
        *(left, right, reference, out, tokens.numel(), channels),
        REAL=LANGUAGE[sum_type(left)],
        NUMBERS=NUMBERS,
    )
    return out
