"""Second derivatives: the gradients of an operation as functions that can be differentiated again."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def gradients(
    clear: Callable[..., Tensor | tuple[Tensor, ...]], inputs: Sequence[Tensor | None], grads: Sequence[Tensor]
) -> list[Tensor | None]:
    """The gradients in all inputs that need one, of a form that torch differentiates itself."""
    # new nodes: where one input was computed from another, a gradient in the latter would run through the former as well
    nodes = [None if t is None else t.view_as(t) for t in inputs]
    asked = [t for t in nodes if t is not None and t.requires_grad]
    results = clear(*nodes)
    made = (results,) if isinstance(results, Tensor) else results
    # a narrowed plan may leave a result zero whatever goes in
    pairs = [(y, grad) for y, grad in zip(made, grads, strict=True) if y.requires_grad]
    outputs, weights = [y for y, _ in pairs], [grad for _, grad in pairs]
    if pairs:
        found = iter(torch.autograd.grad(outputs, asked, weights, create_graph=True, materialize_grads=True))
    else:
        found = iter([torch.zeros_like(t) for t in asked])
    return [next(found) if t is not None and t.requires_grad else None for t in nodes]
