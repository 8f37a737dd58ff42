"""Equivariant layers and networks for any geometry, blade-major `(k, *tokens, c)` inside, `(..., n, c, k)` at the border."""

from anygatr.nn.activation import GatedGELU
from anygatr.nn.attention import CrossAttention, SelfAttention
from anygatr.nn.axial import AxialGATr
from anygatr.nn.bilinear import GeometricBilinear
from anygatr.nn.block import MLP, Block
from anygatr.nn.conditional import ConditionalBlock, ConditionalGATr
from anygatr.nn.dropout import GradeDropout
from anygatr.nn.gatr import GATr
from anygatr.nn.linear import EquiLinear
from anygatr.nn.norm import LayerNorm
from anygatr.nn.width import Width

__all__ = [
    "MLP",
    "AxialGATr",
    "Block",
    "ConditionalBlock",
    "ConditionalGATr",
    "CrossAttention",
    "EquiLinear",
    "GATr",
    "GatedGELU",
    "GeometricBilinear",
    "GradeDropout",
    "LayerNorm",
    "SelfAttention",
    "Width",
]
