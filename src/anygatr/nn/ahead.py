"""Layers whose work the linear layer behind them does on its way, and sums of streams."""

from torch import Tensor, nn

from anygatr.kernels.prologue import NOTHING, Prologue

Stream = tuple[Tensor, Tensor]


def ahead(layer: nn.Module, x: Tensor, s: Tensor) -> tuple[Tensor, Tensor, Prologue]:
    """The stream in front of a linear layer and what that has yet to do: the `prologue` of `layer`, if nobody watches it.

    A layer with hooks runs by itself.
    """
    watched = layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks
    return (*layer(x, s), NOTHING) if watched else (x, s, layer.prologue)


def add(onto: Stream | None, stream: Stream) -> Stream:
    """The sum of two streams, where there are two."""
    return stream if onto is None else (onto[0] + stream[0], onto[1] + stream[1])
