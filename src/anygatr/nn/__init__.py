"""Equivariant layers for any geometry, blade-major `(k, *tokens, c)`: they read like the paper and know no backend."""

from anygatr.nn.activation import GatedGELU
from anygatr.nn.attention import CrossAttention, SelfAttention
from anygatr.nn.bilinear import GeometricBilinear
from anygatr.nn.block import MLP, Block, ConditionalBlock, CrossBlock
from anygatr.nn.dropout import GradeDropout
from anygatr.nn.linear import EquiLinear
from anygatr.nn.norm import LayerNorm
from anygatr.nn.width import Width

__all__ = [
    "MLP",
    "Block",
    "ConditionalBlock",
    "CrossAttention",
    "CrossBlock",
    "EquiLinear",
    "GatedGELU",
    "GeometricBilinear",
    "GradeDropout",
    "LayerNorm",
    "SelfAttention",
    "Width",
]
