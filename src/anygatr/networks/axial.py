"""AxialGATr: tokens on a grid, attention along one axis at a time."""

from collections.abc import Callable
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from anygatr.execution import execute
from anygatr.networks import border
from anygatr.networks.config import arguments
from anygatr.networks.gatr import check_size
from anygatr.networks.regions import compile_regions
from anygatr.nn import init
from anygatr.nn.block import Block
from anygatr.nn.linear import EquiLinear
from anygatr.nn.width import Width
from anygatr.ops.batch import Batch, join_reference
from anygatr.ops.stream import Stream
from anygatr.spaces.geometry import Geometry


class AxialGATr(nn.Module):
    """A GATr over n1 x n2 tokens whose blocks attend along the first and the second axis in turn."""

    layout = "tokens"
    grades: tuple[int, ...] | None = None  # of x, where the network was narrowed to some

    def __init__(
        self,
        geometry: Geometry,
        inputs: Width,
        hidden: Width,
        outputs: Width,
        blocks: int,
        heads: int = 8,
        multi_query: bool = True,
        dropout: float = 0.0,
        rope: bool = False,
    ):
        super().__init__()
        self.config = arguments(locals())
        inputs, hidden, outputs = Width(*inputs), Width(*hidden), Width(*outputs)
        check_size(hidden, blocks)
        self.geometry, self.inputs, self.hidden, self.outputs = geometry, inputs, hidden, outputs
        self.basis = border.ChangeOfBasis(geometry)
        self.linear_in = EquiLinear(geometry, inputs, hidden, variants=(init.INPUT,))
        self.blocks = nn.ModuleList(
            Block(geometry, hidden, heads, dropout, multi_query=multi_query, rope=rope) for _ in range(blocks)
        )
        self.linear_out = EquiLinear(geometry, hidden, outputs)

    def forward(
        self, x: Float[Tensor, "*batch n1 n2 c k"], s: Float[Tensor, "*batch n1 n2 c_s"] | None = None
    ) -> tuple[Float[Tensor, "*batch n1 n2 c_out k"], Float[Tensor, "*batch n1 n2 s_out"]]:
        """A sample's join reference is taken over both axes."""
        x, s = border.enter(x, s, self.geometry, self.inputs, self.linear_in.weight, axes=2)
        x = self.basis.enter(x)
        border.check_grades(x, self.geometry, self.grades)
        batch = Batch(join_reference(x, self.geometry, axes=2), x[..., :0], scalars=s[..., :0])
        x, s = self.stages(x, s, batch, execute)
        return border.leave(self.basis.leave(x), s)

    def stages(self, x: Tensor, s: Tensor, batch: Batch, call: Callable[..., Stream]) -> Stream:
        """The layers in their order, each run by `call(layer, ...)`."""
        x, s = call(self.linear_in, x, s)
        for i, block in enumerate(self.blocks):
            if i % 2 == 0:
                x, s = _swapped(*call(block, *_swapped(x, s), batch))
            else:
                x, s = call(block, x, s, batch)
        return call(self.linear_out, x, s)

    def compile(self, **options: Any) -> None:
        """Compile the blocks as `GATr.compile` does."""
        compile_regions(self, self.blocks, **options)

    def example(self, tokens: int) -> tuple[Tensor, ...]:
        """Random inputs of the right shapes, one sample of `tokens` tokens."""
        return border.example(self.geometry, self.inputs, (1, tokens), self.grades, self.linear_in.weight)


def _swapped(x: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    return x.transpose(-3, -2), s.transpose(-3, -2)
