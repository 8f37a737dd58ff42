"""Layers whose work the linear layer behind them does on its way, and sums of streams."""

from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from anygatr.kernels.prologue import NOTHING, Prologue
from anygatr.nn.activation import GatedGELU
from anygatr.nn.norm import LayerNorm

Stream = tuple[Tensor, Tensor]


def ahead(layer: nn.Module, x: Tensor, s: Tensor) -> tuple[Tensor, Tensor, Prologue]:
    """The stream in front of a linear layer and what that has yet to do: the prologue of a norm or of an activation.

    A layer that has hooks, or was put in the place of one of ours, runs by itself.
    """
    if not untouched((layer, LayerNorm)) and not untouched((layer, GatedGELU)):
        return *layer(x, s), NOTHING
    return x, s, layer.prologue  # type: ignore[return-value]


def untouched(*layers: tuple[nn.Module, type[nn.Module]]) -> bool:
    """Whether all layers are of these kinds of ours, without hooks: nobody can tell where their work is done."""
    for layer, kind in layers:
        own = layer.__dict__
        if type(layer) is not kind or "forward" in own or own["_forward_hooks"] or own["_forward_pre_hooks"]:
            return False
        if own["_backward_hooks"] or own["_backward_pre_hooks"]:
            return False
    return not _has_any_global_hook()


def add(onto: Stream | None, stream: Stream) -> Stream:
    """The sum of two streams, where there are two."""
    return stream if onto is None else (onto[0] + stream[0], onto[1] + stream[1])
