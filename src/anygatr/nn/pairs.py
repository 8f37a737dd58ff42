"""What pairs of tokens bring to the attention of a block: keys and values by an equivariant map, a bias of each head."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from anygatr.nn.attention import Attend
from anygatr.nn.linear import EquiLinear
from anygatr.nn.width import Width
from anygatr.ops.pairs import TokenPairs
from anygatr.ops.precision import without_autocast
from anygatr.spaces.features import Inner
from anygatr.spaces.geometry import Geometry
from anygatr.spaces.invariants import root

HIDDEN = 32
"""Numbers between the invariants of a pair and the biases of the heads."""


class PairTerms(nn.Module):
    """Keys and values y = W p without a bias, and f(i) - f(0) of the pair's invariants i: pairs of zeros bring nothing.

    The invariants are the scalars of a pair and the inner product of each of its multivectors with itself.
    """

    layout = "blades"

    def __init__(self, geometry: Geometry, pairs: Width, attend: Attend):
        super().__init__()
        self.geometry, self.inputs = geometry, pairs
        self.keys_values = EquiLinear(geometry, pairs, attend.head * (2 * attend.key_heads), bias=False)
        self.hidden = nn.Linear(pairs.s + pairs.mv, HIDDEN)
        self.bias = nn.Linear(HIDDEN, attend.heads, bias=False)
        self.inner = tuple(feature for feature in attend.op.features if isinstance(feature, Inner))[:1]

    def forward(self, pairs: TokenPairs) -> TokenPairs:
        """The pairs with the channels of keys and values in place of their own."""
        with without_autocast(pairs.x):
            x, s = self.keys_values(pairs.x, pairs.s)
            hidden = functional.gelu(self.hidden(self._invariants(pairs)))
            return pairs._replace(x=x, s=s, bias=self.bias(hidden - functional.gelu(self.hidden.bias)))

    def _invariants(self, pairs: TokenPairs) -> Tensor:
        squares = [root((feature.query(pairs.x) * feature.key(pairs.x)).sum(0), 2) for feature in self.inner]
        return torch.cat([pairs.s, *(squares or [torch.zeros_like(pairs.x[0])])], -1)
