"""Networks: blocks one behind the other, coordinates-free; the border where users' tensors come in and go out."""

from anygatr.networks.axial import AxialGATr
from anygatr.networks.conditional import ConditionalGATr
from anygatr.networks.gatr import GATr

__all__ = ["AxialGATr", "ConditionalGATr", "GATr"]
