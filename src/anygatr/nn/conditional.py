"""ConditionalGATr: a GATr that also attends to the tokens of a condition."""

from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor, nn

from anygatr.nn import border, init
from anygatr.nn.ahead import Stream, ahead
from anygatr.nn.attention import CrossAttention, SelfAttention
from anygatr.nn.batch import Batch, reference
from anygatr.nn.block import MLP, compile_regions
from anygatr.nn.config import arguments
from anygatr.nn.gatr import check_size
from anygatr.nn.linear import EquiLinear
from anygatr.nn.norm import LayerNorm
from anygatr.nn.width import Width
from anygatr.spaces.geometry import Geometry


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
        condition_mask: Bool[Tensor, "*batch m"] | None = None,
    ) -> Stream:
        """The stream after all three."""
        stream = x, s
        x, s, before = ahead(self.norm, *stream)
        stream = self.attention(x, s, batch, before, stream)
        x, s, before = ahead(self.norm, *stream)
        cx, cs, _ = ahead(self.norm, cx, cs)
        stream = self.cross(x, s, cx, cs, condition_mask, before, stream)
        x, s, before = ahead(self.norm, *stream)
        return self.mlp(x, s, batch.reference, before, stream)


class ConditionalGATr(nn.Module):
    """Tokens that attend to each other and to the tokens of a condition of any number."""

    layout = "tokens"
    grades: tuple[int, ...] | None = None  # of x and cx, where the network was narrowed to some
    condition_grades: tuple[int, ...] | None = None

    def __init__(
        self,
        geometry: Geometry,
        inputs: Width,
        condition: Width,
        hidden: Width,
        outputs: Width,
        blocks: int,
        heads: int = 8,
        multi_query: bool = True,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.config = arguments(locals())
        inputs, condition, hidden, outputs = (Width(*w) for w in (inputs, condition, hidden, outputs))
        check_size(hidden, blocks)
        self.geometry, self.inputs, self.condition, self.hidden, self.outputs = geometry, inputs, condition, hidden, outputs
        self.linear_in = EquiLinear(geometry, inputs, hidden, variants=(init.INPUT,))
        self.condition_in = EquiLinear(geometry, condition, hidden, variants=(init.INPUT,))
        self.blocks = nn.ModuleList(
            ConditionalBlock(geometry, hidden, hidden, heads, dropout, multi_query) for _ in range(blocks)
        )
        self.linear_out = EquiLinear(geometry, hidden, outputs)

    def forward(
        self,
        x: Float[Tensor, "*batch n c k"],
        s: Float[Tensor, "*batch n c_s"] | None,
        cx: Float[Tensor, "*batch m d k"],
        cs: Float[Tensor, "*batch m d_s"] | None,
        mask: Bool[Tensor, "*batch n"] | None = None,
        condition_mask: Bool[Tensor, "*batch m"] | None = None,
    ) -> tuple[Float[Tensor, "*batch n c_out k"], Float[Tensor, "*batch n s_out"]]:
        """Masks are True for real tokens. The join reference is the input's, not the condition's."""
        x, s = border.enter(x, s, self.geometry, self.inputs, self.linear_in.weight)
        cx, cs = border.enter(cx, cs, self.geometry, self.condition, self.condition_in.weight, names=("cx", "cs"))
        if cx.shape[1:-2] != x.shape[1:-2]:
            raise ValueError(f"cx has batch {tuple(cx.shape[1:-2])}, but x has {tuple(x.shape[1:-2])}; they must be equal")
        if mask is not None:
            border.check_mask(mask, x.shape[1:-1])
            x, s = border.blank(x, s, mask)
        if condition_mask is not None:
            border.check_mask(condition_mask, cx.shape[1:-1], "condition_mask")
            cx, cs = border.blank(cx, cs, condition_mask)
        border.check_grades(x, self.geometry, self.grades)
        border.check_grades(cx, self.geometry, self.condition_grades, "cx")
        batch = Batch(reference(x, self.geometry, mask), x[..., :0], mask)
        x, s = self.linear_in(x, s)
        cx, cs = self.condition_in(cx, cs)
        for block in self.blocks:
            x, s = block(x, s, cx, cs, batch, condition_mask)
        x, s = self.linear_out(x, s)
        return border.leave(x, s, mask)

    def compile(self, **options: Any) -> None:
        """Compile the blocks as `GATr.compile` does."""
        compile_regions(self, self.blocks, **options)

    def example(self, tokens: int) -> tuple[Tensor, ...]:
        """Random inputs of the right shapes, one sample of `tokens` tokens and a condition of as many."""
        k, like = self.geometry.algebra.dim, self.linear_in.weight
        x, cx = (like.new_empty(tokens, width.mv, k).normal_() for width in (self.inputs, self.condition))
        s, cs = (like.new_empty(tokens, width.s).normal_() for width in (self.inputs, self.condition))
        return x, s, cx, cs
