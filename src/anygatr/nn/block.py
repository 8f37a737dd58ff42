"""Transformer blocks: attention, perhaps to other tokens, then a geometric MLP, each on normalised inputs."""

from jaxtyping import Float
from torch import Tensor, nn

from anygatr.nn.activation import GatedGELU
from anygatr.nn.attention import CrossAttention, SelfAttention
from anygatr.nn.bilinear import GeometricBilinear
from anygatr.nn.dropout import GradeDropout
from anygatr.nn.linear import EquiLinear
from anygatr.nn.norm import LayerNorm
from anygatr.nn.width import Width
from anygatr.ops.batch import Batch
from anygatr.ops.stream import Stream, add
from anygatr.spaces.geometry import Geometry


class MLP(nn.Module):
    """Geometric bilinear to `ratio` times the width, gated GELU, linear back."""

    layout = "blades"

    def __init__(
        self,
        geometry: Geometry,
        width: Width,
        dropout: float = 0.0,
        ratio: int = 2,
        inner_norm: bool = False,
        scalar_gelu: str = "exact",
    ):
        super().__init__()
        if not isinstance(ratio, int) or isinstance(ratio, bool) or ratio < 1:
            raise ValueError(f"mlp_ratio={ratio!r} must be a positive integer; the default is 2")
        self.geometry, self.inputs = geometry, width
        self.bilinear = GeometricBilinear(geometry, width, width * ratio, inner_norm)
        self.activation = GatedGELU(scalar_gelu)
        self.out = EquiLinear(geometry, width * ratio, width)
        self.dropout = GradeDropout(geometry, dropout)

    def forward(
        self, x: Float[Tensor, "k *tokens c"], s: Float[Tensor, "*tokens c_s"], reference: Float[Tensor, "*#tokens 1"]
    ) -> Stream:
        """Each token by itself but for the reference."""
        return self.dropout(*self.out(*self.activation(*self.bilinear(x, s, reference))))


class Block(nn.Module):
    """x += attention(norm(x)); x += mlp(norm(x)). Keyword arguments go to `SelfAttention`."""

    layout = "blades"

    def __init__(
        self,
        geometry: Geometry,
        width: Width,
        heads: int,
        dropout: float = 0.0,
        mlp_ratio: int = 2,
        inner_norm: bool = False,
        scalar_gelu: str = "exact",
        **attention: object,
    ):
        super().__init__()
        self.geometry, self.inputs = geometry, width
        self.norm = LayerNorm(geometry)
        self.attention = SelfAttention(geometry, width, heads, inner_norm=inner_norm, **attention)  # type: ignore[arg-type]
        self.dropout = GradeDropout(geometry, dropout)
        self.mlp = MLP(geometry, width, dropout, mlp_ratio, inner_norm, scalar_gelu)

    def forward(self, x: Float[Tensor, "k *tokens c"], s: Float[Tensor, "*tokens c_s"], batch: Batch) -> Stream:
        """The stream after attention and MLP."""
        x, s = add((x, s), self.dropout(*self.attention(*self.norm(x, s), batch)))
        return add((x, s), self.mlp(*self.norm(x, s), batch.reference))


class ConditionalBlock(nn.Module):
    """Self-attention, attention to the condition, MLP; each on normalised inputs and added to the stream."""

    layout = "blades"

    def __init__(self, geometry: Geometry, width: Width, condition: Width, heads: int, dropout: float, multi_query: bool):
        super().__init__()
        self.geometry, self.inputs, self.condition = geometry, width, condition
        self.norm = LayerNorm(geometry)
        self.attention = SelfAttention(geometry, width, heads, multi_query)
        self.cross = CrossAttention(geometry, width, condition, heads, multi_query)
        self.mlp = MLP(geometry, width, dropout)

    def forward(
        self,
        x: Float[Tensor, "k *batch n c"],
        s: Float[Tensor, "*batch n c_s"],
        cx: Float[Tensor, "k *batch m d"],
        cs: Float[Tensor, "*batch m d_s"],
        batch: Batch,
    ) -> Stream:
        """The stream after all three."""
        x, s = add((x, s), self.attention(*self.norm(x, s), batch))
        x, s = add((x, s), self.cross(*self.norm(x, s), *self.norm(cx, cs), batch))
        return add((x, s), self.mlp(*self.norm(x, s), batch.reference))


class CrossBlock(nn.Module):
    """x += attention(norm(x), norm(condition)); x += mlp(norm(x)): a transformer block whose keys are other tokens."""

    layout = "blades"

    def __init__(self, geometry: Geometry, width: Width, condition: Width, heads: int, dropout: float, multi_query: bool):
        super().__init__()
        self.geometry, self.inputs, self.condition = geometry, width, condition
        self.norm = LayerNorm(geometry)
        self.cross = CrossAttention(geometry, width, condition, heads, multi_query)
        self.dropout = GradeDropout(geometry, dropout)
        self.mlp = MLP(geometry, width, dropout)

    def forward(
        self,
        x: Float[Tensor, "k *batch n c"],
        s: Float[Tensor, "*batch n c_s"],
        cx: Float[Tensor, "k *batch m d"],
        cs: Float[Tensor, "*batch m d_s"],
        batch: Batch,
    ) -> Stream:
        """The stream after both."""
        x, s = add((x, s), self.dropout(*self.cross(*self.norm(x, s), *self.norm(cx, cs), batch)))
        return add((x, s), self.mlp(*self.norm(x, s), batch.reference))
