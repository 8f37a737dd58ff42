"""One node of autograd for each kernel; differentiated twice, it is the torch operations of its steps."""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from anygatr.execution.triton import attention, linear, product
from anygatr.execution.triton.schedule import AttentionKernel, Kernel, LinearKernel, ProductKernel
from anygatr.ops.batch import Batch
from anygatr.ops.precision import autocast_type, lengthened


class KernelFunction(torch.autograd.Function):
    """Runs a kernel on the values it reads, then the parameters it takes; `named` has all tensors that its steps name."""

    @staticmethod
    def forward(ctx: Any, kernel: Kernel, named: Mapping[str, Tensor], batch: Batch | None, *given: Tensor) -> Any:
        """The values that its steps write."""
        ctx.kernel, ctx.named, ctx.batch, ctx.short = kernel, named, batch, autocast_type(given[0])
        ctx.set_materialize_grads(False)
        made, saved = _forward(kernel, given)
        ctx.save_for_backward(*given, *saved)
        return made

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """The gradients of values and parameters."""
        kernel, tensors = ctx.kernel, ctx.saved_tensors
        count = len(kernel.inputs) + len(kernel.parameters)
        given, saved = tensors[:count], tensors[count:]
        if torch.is_grad_enabled():
            found = _differentiable(kernel, ctx.named, ctx.batch, given, grads, ctx.short)
        else:
            found = _backward(kernel, grads, given, saved, ctx.short)
        return None, None, None, *found


def reference(
    kernel: Kernel, named: Mapping[str, Tensor], batch: Batch | None, given: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """What a kernel computes, by torch operations, from the same values and parameters."""
    if isinstance(kernel, AttentionKernel):
        count = len(kernel.inputs)
        return kernel.op.rows(given[:count], [*given[count:], *(named[name] for name in kernel.tables)])
    known = dict(zip(kernel.inputs, given, strict=False))
    own = {**named, **dict(zip(kernel.parameters, given[len(kernel.inputs) :], strict=True))}
    for step in kernel.steps:
        # of a norm whose multivectors and scalars come from different streams the kernel may read one half alone
        present = next(known[i] for i in step.inputs if i in known)
        values = [known[i] if i in known else _absent(place, present) for place, i in enumerate(step.inputs)]
        made = step.op.run(values, [name and own[name] for name in step.parameters], batch)  # type: ignore[misc]
        known.update(zip(step.outputs, made, strict=True))
    return tuple(known[i] for i in kernel.outputs)


def _absent(place: int, like: Tensor) -> Tensor:
    """A stream without channels in the place of one that the kernel does not read."""
    return like.new_empty(1, *like.shape[:-1], 0) if place == 0 else like.new_empty(*like.shape[1:-1], 0)


def _forward(kernel: Kernel, given: Sequence[Tensor]) -> tuple[Any, Sequence[Tensor]]:
    if isinstance(kernel, LinearKernel):
        return linear.forward(kernel, given)
    if isinstance(kernel, AttentionKernel):
        return attention.forward(kernel.op, _lengthened(given)), ()
    assert isinstance(kernel, ProductKernel)
    return (product.forward(kernel.plan, *given),), ()


def _backward(
    kernel: Kernel, grads: tuple[Tensor | None, ...], given: Sequence[Tensor], saved: Any, short: torch.dtype | None
) -> list[Tensor | None]:
    if isinstance(kernel, LinearKernel):
        return linear.backward(kernel, grads, given, linear.Saved(*saved), short)
    if isinstance(kernel, AttentionKernel):
        found = attention.backward(kernel.op, grads, _lengthened(given))
        return [None if g is None else g.to(t.dtype) for g, t in zip(found, given, strict=True)]
    assert isinstance(kernel, ProductKernel)
    (grad,) = grads
    return [None if grad is None else product.backward(kernel.plan, grad, *given), None]


def _lengthened(given: Sequence[Tensor]) -> list[Tensor]:
    """16-bit streams in float32; streams of different types in the wider one."""
    wide = reduce(torch.promote_types, (t.dtype for t in lengthened(*given)))
    return [t.to(wide) for t in given]


def _differentiable(
    kernel: Kernel,
    named: Mapping[str, Tensor],
    batch: Batch | None,
    given: Sequence[Tensor],
    grads: Sequence[Tensor | None],
    short: torch.dtype | None,
) -> list[Tensor | None]:
    """The gradients as functions that can be differentiated again."""
    # new nodes: where one input was computed from another, a gradient in the latter would run through the former as well
    nodes = [t.view_as(t) for t in given]
    device = given[0].device.type
    with torch.autocast(device, short, enabled=short is not None):
        made = reference(kernel, named, batch, nodes)
    asked = [t for t in nodes if t.requires_grad]
    pairs = [(y, g) for y, g in zip(made, grads, strict=True) if g is not None and y.requires_grad]
    if not pairs:  # a narrowed plan may leave a result zero whatever goes in
        return [torch.zeros_like(t) if t.requires_grad else None for t in nodes]
    outputs, cotangents = zip(*pairs, strict=True)
    found = iter(torch.autograd.grad(outputs, asked, cotangents, create_graph=True, materialize_grads=True))
    return [next(found) if t.requires_grad else None for t in nodes]
