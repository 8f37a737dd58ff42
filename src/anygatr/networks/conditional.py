"""ConditionalGATr: a GATr that also attends to the tokens of a condition."""

from collections.abc import Callable
from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor, nn

from anygatr.execution import execute
from anygatr.networks import border
from anygatr.networks.config import arguments
from anygatr.networks.gatr import check_size
from anygatr.networks.regions import compile_regions
from anygatr.nn import init
from anygatr.nn.block import ConditionalBlock
from anygatr.nn.linear import EquiLinear
from anygatr.nn.width import Width
from anygatr.ops.batch import Batch, join_reference
from anygatr.ops.stream import Stream
from anygatr.spaces.geometry import Geometry


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
        self.basis = border.ChangeOfBasis(geometry)
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
        x, cx = self.basis.enter(x), self.basis.enter(cx)
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
        reference = join_reference(x, self.geometry, mask)
        batch = Batch(reference, x[..., :0], mask, scalars=s[..., :0], condition_mask=condition_mask)
        x, s = self.stages(x, s, cx, cs, batch, execute)
        return border.leave(self.basis.leave(x), s, mask)

    def stages(self, x: Tensor, s: Tensor, cx: Tensor, cs: Tensor, batch: Batch, call: Callable[..., Stream]) -> Stream:
        """The layers in their order, each run by `call(layer, ...)`."""
        x, s = call(self.linear_in, x, s)
        cx, cs = call(self.condition_in, cx, cs)
        for block in self.blocks:
            x, s = call(block, x, s, cx, cs, batch)
        return call(self.linear_out, x, s)

    def compile(self, **options: Any) -> None:
        """Compile the blocks as `GATr.compile` does."""
        compile_regions(self, self.blocks, **options)

    def example(self, tokens: int) -> tuple[Tensor, ...]:
        """Random inputs of the right shapes, one sample of `tokens` tokens and a condition of as many."""
        x, s = border.example(self.geometry, self.inputs, (tokens,), self.grades, self.linear_in.weight)
        return x, s, *border.example(self.geometry, self.condition, (tokens,), self.condition_grades, self.linear_in.weight)
