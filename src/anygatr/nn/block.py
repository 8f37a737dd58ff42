"""A transformer block: attention, then a geometric MLP, each on normalised inputs and added to the stream."""

from jaxtyping import Float
from torch import Tensor, nn

from anygatr.geometry import Geometry
from anygatr.nn.activation import GatedGELU
from anygatr.nn.attention import SelfAttention
from anygatr.nn.batch import Batch
from anygatr.nn.bilinear import GeometricBilinear
from anygatr.nn.dropout import GradeDropout
from anygatr.nn.linear import EquiLinear
from anygatr.nn.norm import LayerNorm
from anygatr.nn.width import Width

Stream = tuple[Float[Tensor, "k *tokens c"], Float[Tensor, "*tokens c_s"]]


class MLP(nn.Module):
    """Geometric bilinear to twice the width, gated GELU, linear back."""

    layout = "blades"

    def __init__(self, geometry: Geometry, width: Width, dropout: float = 0.0):
        super().__init__()
        self.geometry, self.inputs = geometry, width
        self.bilinear = GeometricBilinear(geometry, width, width * 2)
        self.activation = GatedGELU()
        self.out = EquiLinear(geometry, width * 2, width)
        self.dropout = GradeDropout(geometry, dropout)

    def forward(
        self, x: Float[Tensor, "k *tokens c"], s: Float[Tensor, "*tokens c_s"], reference: Float[Tensor, "*#tokens 1"]
    ) -> Stream:
        """Each token by itself, but for the reference."""
        return self.dropout(*self.out(*self.activation(*self.bilinear(x, s, reference))))


class Block(nn.Module):
    """x += attention(norm(x)); x += mlp(norm(x)). Keyword arguments go to `SelfAttention`."""

    layout = "blades"

    def __init__(self, geometry: Geometry, width: Width, heads: int, dropout: float = 0.0, **attention: object):
        super().__init__()
        self.geometry, self.inputs = geometry, width
        self.norm = LayerNorm(geometry)
        self.attention = SelfAttention(geometry, width, heads, **attention)  # type: ignore[arg-type]
        self.dropout = GradeDropout(geometry, dropout)
        self.mlp = MLP(geometry, width, dropout)

    def forward(self, x: Float[Tensor, "k *tokens c"], s: Float[Tensor, "*tokens c_s"], batch: Batch) -> Stream:
        """The stream after attention and MLP."""
        x, s = add((x, s), self.dropout(*self.attention(*self.norm(x, s), batch)))
        return add((x, s), self.mlp(*self.norm(x, s), batch.reference))


def add(a: Stream, b: Stream) -> Stream:
    """The sum of two streams."""
    return a[0] + b[0], a[1] + b[1]
