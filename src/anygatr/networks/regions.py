"""torch.compile for networks: each block a region of its own, with sizes left open."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from anygatr.ops.stream import Stream


def compile_regions(net: nn.Module, blocks: Iterable[nn.Module], **options: Any) -> None:
    """Compile each block by itself, with sizes left open: equal blocks share one compilation, so depth costs nothing."""
    for block in blocks:
        block.compile(**{"dynamic": True, "fullgraph": True, **options})
    if _once_differentiable not in net._forward_hooks.values():
        net.register_forward_hook(_once_differentiable)


def _once_differentiable(net: nn.Module, inputs: Any, outputs: Stream) -> Stream:
    """Refuse second derivatives while blocks are compiled; those of a copy are not."""
    compiled = any(module._compiled_call_impl is not None for module in net.modules())
    return _Once.apply(*outputs) if compiled and torch.is_grad_enabled() else outputs


class _Once(torch.autograd.Function):
    """The identity, whose gradient has none."""

    @staticmethod
    def forward(ctx: Any, *outputs: Tensor) -> tuple[Tensor, ...]:
        return tuple(y.view_as(y) for y in outputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "create_graph=True: a compiled network cannot be differentiated twice; copy.deepcopy(net) is eager and can"
            )
        return grads
