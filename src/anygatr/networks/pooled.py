"""PooledGATr: few tokens, chosen far from each other, do the work between attention down to them and up to all."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from anygatr.execution import execute
from anygatr.networks import border
from anygatr.networks.config import arguments
from anygatr.networks.gatr import check_counts, check_size, checked_points, recomputing, require_channels, start
from anygatr.networks.regions import compile_regions
from anygatr.nn.block import Block, CrossBlock
from anygatr.nn.init import INPUT
from anygatr.nn.linear import EquiLinear
from anygatr.nn.width import Width
from anygatr.ops.batch import Batch, join_reference
from anygatr.ops.chosen import choose_few, few_of
from anygatr.ops.ragged import pack
from anygatr.ops.stream import Stream
from anygatr.spaces.geometry import Geometry

POOLED = 512
"""Pooled tokens of a sample where their number is not given."""
SHARE = 5
"""One of so many tokens is pooled, at most."""


class PooledGATr(nn.Module):
    """Attention from few tokens of a sample to all, `blocks` transformer blocks between the few, attention from all to them.

    At most `pooled` tokens of a sample, and at most a fifth of them, are chosen by the distances of `points`. Outside of the
    blocks, time is linear in tokens. What a token knows by itself goes past the blocks in its own residual stream. The other
    arguments are those of `GATr`; the blocks see again what is reinserted.
    """

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
        pooled: int = POOLED,
        multi_query: bool = True,
        dropout: float = 0.0,
        reinsert: Sequence[int] = (),
        checkpoint: bool = False,
        reinsert_s: Sequence[int] = (),
        stored: bool = False,
        init: str = "paper",
    ):
        super().__init__()
        self.config = arguments(locals())
        check_counts(pooled=pooled)
        inputs, hidden, outputs = Width(*inputs), Width(*hidden), Width(*outputs)
        check_size(hidden, blocks)
        require_channels(inputs, reinsert, reinsert_s)
        self.geometry, self.inputs, self.hidden, self.outputs, self.pooled = geometry, inputs, hidden, outputs, pooled
        self.reinsert, self.reinsert_s, self.checkpoint = tuple(reinsert), tuple(reinsert_s), checkpoint
        self.basis = border.ChangeOfBasis(geometry, stored)
        self.linear_in = EquiLinear(geometry, inputs, hidden, variants=(INPUT,))
        self.pooled_in = EquiLinear(geometry, inputs, hidden, variants=(INPUT,))
        self.down = CrossBlock(geometry, hidden, hidden, heads, dropout, multi_query)
        counts = len(self.reinsert), len(self.reinsert_s)
        self.blocks = nn.ModuleList(
            Block(geometry, hidden, heads, dropout, multi_query=multi_query, reinsert=counts[0], reinsert_s=counts[1])
            for _ in range(blocks)
        )
        self.up = CrossBlock(geometry, hidden, hidden, heads, dropout, multi_query)
        self.linear_out = EquiLinear(geometry, hidden, outputs)
        start(self, init, blocks=1)  # one block adds to the stream of all tokens

    def forward(
        self,
        x: Float[Tensor, "*tokens c k"],
        s: Float[Tensor, "*tokens c_s"] | None = None,
        mask: Bool[Tensor, "*tokens"] | None = None,
        offsets: Int[Tensor, " samples+1"] | None = None,
        points: Float[Tensor, "*tokens d"] | None = None,
    ) -> tuple[Float[Tensor, "*tokens c_out k"], Float[Tensor, "*tokens s_out"]]:
        """As of `GATr`; packed samples of similar length are computed together, padded."""
        x, s = border.enter(x, s, self.geometry, self.inputs, self.linear_in.weight)
        points = checked_points(points, s.shape[:-1])
        x, s = border.real(self.basis.enter(x), s, mask, offsets)
        border.check_grades(x, self.geometry, self.grades)
        if offsets is None:
            x, s = self._samples(x, s, points, mask)
        else:
            x, s = self._packed(x, s, points, border.checked_offsets(offsets, s.shape[:-1]))
        return border.leave(self.basis.leave(x), s, mask)

    def stages(
        self, x: Tensor, s: Tensor, px: Tensor, ps: Tensor, every: Batch, few: Batch, call: Callable[..., Stream]
    ) -> Stream:
        """The layers in their order, each run by `call(layer, ...)`; px and ps are the inputs of the few."""
        x, s = call(self.linear_in, x, s)
        px, ps = call(self.pooled_in, px, ps)
        px, ps = call(self.down, px, ps, x, s, few)
        for block in self.blocks:
            px, ps = call(block, px, ps, few)
        x, s = call(self.up, x, s, px, ps, every)
        return call(self.linear_out, x, s)

    def count(self, tokens: int) -> int:
        """How many of so many tokens are pooled."""
        return few_of(tokens, self.pooled, SHARE)

    def compile(self, **options: Any) -> None:
        """Compile the blocks as `GATr.compile` does."""
        compile_regions(self, (self.down, *self.blocks, self.up), **options)

    def example(self, tokens: int) -> tuple[Any, ...]:
        """Random inputs of the right shapes, one sample of `tokens` tokens."""
        x, s = border.example(self.geometry, self.inputs, (tokens,), self.grades, self.linear_in.weight)
        return x, s, None, None, s.new_empty(tokens, self.geometry.dim).normal_()

    def _packed(self, x: Tensor, s: Tensor, points: Tensor, offsets: Tensor) -> Stream:
        """Bucket by bucket, each a dense batch."""
        plan, start, made, order = pack(offsets, x.device), 0, list[Stream](), list[Tensor]()
        for rows, length, _ in plan.buckets.tolist():
            part = slice(start, start + rows * length)
            start += rows * length
            slots = plan.slots[part].view(rows, length)
            real = (plan.places[part] != len(s)).view(rows, length)
            y, t = self._samples(*border.blank(x[:, slots], s[slots], real), points[slots], real)
            made.append((y[:, real], t[real]))
            order.append(slots[real])
        back = torch.cat(order).argsort()
        return torch.cat([y for y, _ in made], 1)[:, back], torch.cat([t for _, t in made])[back]

    def _samples(self, x: Tensor, s: Tensor, points: Tensor, mask: Tensor | None) -> Stream:
        """Samples (*batch, n) of equal length, padded where there is a mask."""
        tokens = s.shape[:-1]
        batch, n = tokens[:-1].numel(), tokens[-1]
        x, s, points = (
            x.reshape(len(x), batch, n, x.shape[-1]),
            s.reshape(batch, n, s.shape[-1]),
            points.reshape(batch, n, points.shape[-1]),
        )
        mask = None if mask is None else mask.reshape(batch, n)
        chosen, real = choose_few(points, mask, self.pooled, SHARE)
        rows = torch.arange(batch, device=s.device).unsqueeze(1)
        px, ps = x[:, rows, chosen], s[rows, chosen]
        px, ps = (px, ps) if real is None else border.blank(px, ps, real)
        reference = join_reference(x, self.geometry, mask)
        again = border.channels(px, self.reinsert), border.channels(ps, self.reinsert_s)
        every = Batch(_on(reference, s), x[..., :0], mask, scalars=s[..., :0], condition_mask=real)
        few = Batch(_on(reference, ps), again[0], real, scalars=again[1], condition_mask=mask)
        x, s = self.stages(x, s, px, ps, every, few, recomputing if self.checkpoint and torch.is_grad_enabled() else execute)
        return x.reshape(len(x), *tokens, x.shape[-1]), s.reshape(*tokens, s.shape[-1])


def _on(reference: Tensor, s: Tensor) -> Tensor:
    """A number of each sample spread over its tokens once, not in every block."""
    return reference.expand(*s.shape[:-1], 1).contiguous()
