"""Calls of the product kernels, for a plan and its derivative: unrolled where terms are few, by table where many."""

from torch import Tensor

from anygatr.execution.triton import product_kernels
from anygatr.execution.triton.generated import kernel_of
from anygatr.execution.triton.launch import LANGUAGE, call, programs, sum_type
from anygatr.execution.triton.product_source import NUMBERS, product_source
from anygatr.execution.triton.product_tables import product_tables
from anygatr.ops.precision import lengthened
from anygatr.ops.product import ProductPlan

UNROLLED = 600
"""Terms at most: Triton takes time with their square, 4 s for 550 of them and half a minute for 2000."""


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
    odd, numbers = any(term.odd for term in plan.terms), tokens.numel() * channels
    if odd:  # one number for each token
        reference = reference.detach().to(left.dtype).expand(*tokens, 1).contiguous()
    grid, constants = (programs(numbers, NUMBERS),), {"REAL": LANGUAGE[sum_type(left)], "NUMBERS": NUMBERS}
    if is_unrolled(plan):
        kernel = kernel_of(product_source(plan, len(left)), "product")
        call(kernel, grid, left, right, reference, out, tokens.numel(), channels, **constants)
        return out
    tables = product_tables(plan, len(left), left.device)
    call(
        product_kernels.product_table_kernel,
        grid,
        *(left, right, reference, *tables, out, tokens.numel(), channels, len(left) * plan.sizes[0], *plan.sizes),
        ODD=odd,
        **constants,
    )
    return out


def is_unrolled(plan: ProductPlan) -> bool:
    """Whether a plan has source of its own."""
    return plan.multiply_adds <= UNROLLED
