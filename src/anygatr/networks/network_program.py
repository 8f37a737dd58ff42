"""The program of a whole network, for analyses: cost, reachable grades."""

import torch
from torch import Tensor, nn

from anygatr.networks.axial import AxialGATr
from anygatr.networks.conditional import ConditionalGATr
from anygatr.networks.gatr import GATr
from anygatr.nn.width import Width
from anygatr.ops.batch import Batch
from anygatr.program.program import Program
from anygatr.program.trace import trace

Network = GATr | AxialGATr | ConditionalGATr


def network_program(net: Network) -> Program:
    """All layers of a network in one program; parameters are named as in its state dict."""
    x, s = _empty(net, net.inputs)
    again = Width(len(getattr(net, "reinsert", ())), len(getattr(net, "reinsert_s", ())))
    inputs, scalars = _empty(net, again)
    batch = Batch(s.new_empty(1, 1), inputs, scalars=scalars)
    streams = (x, s, *_empty(net, net.condition)) if isinstance(net, ConditionalGATr) else (x, s)

    def stages(*arguments: object) -> object:
        return net.stages(*arguments, _call)  # type: ignore[call-arg, arg-type]

    names = ("x", "s", "cx", "cs")[: len(streams)]
    return trace(net, (*streams, batch), stages, names=(*names, "batch"))


def _call(layer: nn.Module, *arguments: object) -> object:
    return layer.forward(*arguments)


def _empty(net: Network, width: Width) -> tuple[Tensor, Tensor]:
    """Tensors of one token that have channels but no numbers."""
    blades = net.geometry.algebra.dim
    return torch.empty(blades, 1, width.mv, device="meta"), torch.empty(1, width.s, device="meta")
