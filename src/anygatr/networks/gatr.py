"""GATr: the geometric algebra transformer of any geometry."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint as recomputed

from anygatr.execution import execute
from anygatr.networks import border
from anygatr.networks.config import arguments
from anygatr.networks.pairs import enter_pairs
from anygatr.networks.regions import compile_regions
from anygatr.nn.attention import SelfAttention
from anygatr.nn.block import Block, CrossBlock
from anygatr.nn.init import INPUT, STARTS
from anygatr.nn.linear import EquiLinear
from anygatr.nn.pairs import PairTerms
from anygatr.nn.width import Width
from anygatr.ops.batch import Batch, join_reference
from anygatr.ops.chosen import choose_near
from anygatr.ops.near import Near
from anygatr.ops.ragged import pack
from anygatr.ops.shard import Shard
from anygatr.ops.stream import Stream
from anygatr.spaces.geometry import Geometry


class GATr(nn.Module):
    """Linear in, `blocks` transformer blocks, linear out; equivariant under the geometry's group.

    `reinsert` and `reinsert_s` list the input multivector and scalar channels that every query and key sees again;
    `values_see_inputs` reinserts them into the values as well. `rope` gives the scalars of q and k the position of the
    token; `checkpoint` recomputes each block in the backward pass. `head` overrides the width of a head, 2 * hidden /
    heads; `mlp_ratio` is the width inside the MLP over `hidden`; `inner_norm` also normalises queries, keys, values and
    the bilinear layer; `scalar_gelu` is "exact" or "tanh". `init` is how weights start: "paper", as published,
    "balanced", with the same variance behind every layer, or "near", as published but with heads that begin with near
    tokens. With `stored`, x and y are on the blades of the stream (`geometry.basis`), as `model` embeds and reads them,
    not on the algebra's. With `anchors` > 0 a token attends to itself, its `neighbours` nearest tokens and that many
    anchors of its sample, chosen by the distances of `points`: time linear in tokens. `pairs` is the width of what belongs
    to pairs of tokens: bonds, edges. `config` keeps the arguments.
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
        multi_query: bool = True,
        dropout: float = 0.0,
        reinsert: Sequence[int] = (),
        rope: bool = False,
        checkpoint: bool = False,
        head: Width | None = None,
        values_see_inputs: bool = False,
        mlp_ratio: int = 2,
        inner_norm: bool = False,
        scalar_gelu: str = "exact",
        reinsert_s: Sequence[int] = (),
        stored: bool = False,
        init: str = "paper",
        anchors: int = 0,
        neighbours: int = 16,
        pairs: Width | None = None,
    ):
        super().__init__()
        self.config = arguments(locals())
        inputs, hidden, outputs = Width(*inputs), Width(*hidden), Width(*outputs)
        head = None if head is None else Width(*head)
        check_size(hidden, blocks)
        require_channels(inputs, reinsert, reinsert_s)
        self.geometry, self.inputs, self.hidden, self.outputs = geometry, inputs, hidden, outputs
        check_counts(anchors=anchors, neighbours=neighbours)
        self.anchors, self.neighbours = anchors, neighbours
        self.pairs = _checked_pairs(pairs, anchors)
        self.reinsert, self.reinsert_s, self.checkpoint = tuple(reinsert), tuple(reinsert_s), checkpoint
        self.basis = border.ChangeOfBasis(geometry, stored)
        self.linear_in = EquiLinear(geometry, inputs, hidden, variants=(INPUT,))
        self.blocks = nn.ModuleList(
            Block(
                geometry,
                hidden,
                heads,
                dropout,
                multi_query=multi_query,
                reinsert=len(self.reinsert),
                reinsert_s=len(self.reinsert_s),
                rope=rope,
                head=head,
                values_see_inputs=values_see_inputs,
                mlp_ratio=mlp_ratio,
                inner_norm=inner_norm,
                scalar_gelu=scalar_gelu,
                sparse=(neighbours, anchors) if anchors else (0, 0),
                paired=pairs is not None,
            )
            for _ in range(blocks)
        )
        self.linear_out = EquiLinear(geometry, hidden, outputs)
        if self.pairs is not None:
            self.pair_terms = nn.ModuleList(
                PairTerms(geometry, self.pairs, block.attention.attend)  # type: ignore[arg-type, union-attr]
                for block in self.blocks
            )
        start(self, init, blocks)

    def forward(
        self,
        x: Float[Tensor, "*tokens c k"],
        s: Float[Tensor, "*tokens c_s"] | None = None,
        mask: Bool[Tensor, "*tokens"] | None = None,
        offsets: Int[Tensor, " samples+1"] | None = None,
        points: Float[Tensor, "*tokens d"] | None = None,
        group: Any = None,
        px: Float[Tensor, "*pairs p k"] | None = None,
        ps: Float[Tensor, "*pairs p_s"] | None = None,
        edges: Int[Tensor, "2 e"] | None = None,
    ) -> tuple[Float[Tensor, "*tokens c_out k"], Float[Tensor, "*tokens s_out"]]:
        """x is (..., n, c, k), or packed (N, c, k) with `offsets`; `mask` is True for real tokens.

        Padding touches nothing and comes out zero. `points` are the tokens' coordinates, for networks with anchors. px and
        ps belong to pairs: (..., receiver, sender, p, k), or (E, p, k) with `edges`, senders above receivers, which number
        the tokens through all samples. Pairs that are not listed, or zero, change nothing.
        With a torch.distributed `group`, each of its processes passes its part of the same samples, and attends to all.
        """
        x, s = border.enter(x, s, self.geometry, self.inputs, self.linear_in.weight)
        shard = None if group is None else self._shard(group, s.shape[:-1], mask, offsets, s)
        x, s, batch = self._batch(self.basis.enter(x), s, mask, offsets, shard)
        if self.anchors:
            batch = batch._replace(near=self._near(points, s.shape[:-1], batch))
        if (px is not None) != (self.pairs is not None):
            raise ValueError(f"px={'None' if px is None else tuple(px.shape)}, but the network was built with {self.pairs=}")
        if px is not None and self.pairs is not None:
            if shard is not None:
                raise ValueError("group divides samples, whose pairs would be on several processes; leave out group")
            tokens = s.shape[:-1]
            pairs = enter_pairs(px, ps, edges, self.geometry, self.pairs, batch.mask, batch.packed, tokens)
            batch = batch._replace(pairs=pairs._replace(x=self.basis.enter(pairs.x)))
        x, s = self.stages(x, s, batch, recomputing if self.checkpoint and torch.is_grad_enabled() else execute)
        return border.leave(self.basis.leave(x), s, mask)

    def stages(self, x: Tensor, s: Tensor, batch: Batch, call: Callable[..., Stream]) -> Stream:
        """The layers in their order, each run by `call(layer, ...)`."""
        x, s = call(self.linear_in, x, s)
        for number, block in enumerate(self.blocks):
            x, s = call(block, x, s, self._for_block(number, batch))
        return call(self.linear_out, x, s)

    def _for_block(self, number: int, batch: Batch) -> Batch:
        """What a block knows about a batch: of pairs the keys and values that it makes of them."""
        return batch if batch.pairs is None else batch._replace(pairs=self.pair_terms[number](batch.pairs))

    def compile(self, **options: Any) -> None:
        """Compile the blocks, one region that all of them share, for every batch size and layout.

        Arguments are those of `torch.compile`. The compiler cannot differentiate twice: for forces, stay eager.
        """
        if self.anchors:
            raise ValueError(f"anchors={self.anchors}: sparse attention is not compiled; leave out compile()")
        if self.pairs is not None:
            raise ValueError(f"pairs={self.pairs}: attention with pairs is not compiled; leave out compile()")
        compile_regions(self, self.blocks, **options)

    def example(self, tokens: int) -> tuple[Tensor, ...]:
        """Random inputs of the right shapes, one sample of `tokens` tokens."""
        x, s = border.example(self.geometry, self.inputs, (tokens,), self.grades, self.linear_in.weight)
        points = s.new_empty(tokens, self.geometry.dim).normal_()
        if self.pairs is not None:
            example = border.example(self.geometry, self.pairs, (tokens, tokens), None, self.linear_in.weight)
            return (x, s, None, None, None, None, *example)  # type: ignore[return-value]
        return (x, s, None, None, points) if self.anchors else (x, s)  # type: ignore[return-value]

    def _near(self, points: Tensor | None, tokens: torch.Size, batch: Batch) -> Near:
        points = checked_points(points, tokens)
        if batch.packed is not None:
            return choose_near(points, batch.packed.offsets.cpu(), self.neighbours, self.anchors)
        count = tokens[-1]
        offsets = torch.arange(0, tokens.numel() + 1, count)
        real = None if batch.mask is None else batch.mask.flatten()
        return choose_near(points.flatten(0, -2), offsets, self.neighbours, self.anchors, real)

    def _shard(self, group: Any, tokens: torch.Size, mask: Tensor | None, offsets: Tensor | None, like: Tensor) -> Shard:
        compiled = any(block._compiled_call_impl is not None for block in self.blocks)
        for name, given in (("offsets", offsets is not None), ("anchors", self.anchors), ("compile()", compiled)):
            if given:
                raise ValueError(f"group divides tokens of dense samples with exact, eager attention; leave out {name}")
        return Shard.of(group, tokens, mask, like)

    def _batch(
        self, x: Tensor, s: Tensor, mask: Tensor | None, offsets: Tensor | None, shard: Shard | None
    ) -> tuple[Tensor, Tensor, Batch]:
        tokens, packed = x.shape[1:-1], None
        x, s = border.real(x, s, mask, offsets)
        border.check_grades(x, self.geometry, self.grades)
        if offsets is not None:
            packed = pack(border.checked_offsets(offsets, tokens), x.device)
        again, scalars = border.channels(x, self.reinsert), border.channels(s, self.reinsert_s)
        # spread over tokens once, not in every block
        reference = join_reference(x, self.geometry, mask, packed, shard=shard).expand(*tokens, 1).contiguous()
        return x, s, Batch(reference, again, mask, packed, scalars, shard=shard)


MOST = 2**20
"""Anchors, neighbours and pooled tokens at most."""


def start(net: nn.Module, init: str, blocks: int) -> None:
    """How the weights of a network begin: as published, with the same variance behind every layer, or with near tokens.

    The stream of a balanced one, to which each of so many blocks adds as much, is divided by their number at the end.
    """
    if init not in STARTS:
        raise ValueError(f"init={init!r} is unknown; choose from {', '.join(map(repr, STARTS))}")
    for layer in net.modules():
        if init == "balanced" and isinstance(layer, EquiLinear):
            layer.balance(1 / max(blocks, 1) if layer is net.linear_out else 1.0)
        if init == "near" and isinstance(layer, SelfAttention):
            layer.start_near()


def recomputing(layer: nn.Module, *arguments: Any) -> Stream:
    """Run a layer; blocks are run again in the backward pass instead of keeping what they need for it."""
    if isinstance(layer, Block | CrossBlock):
        return recomputed(execute, layer, *arguments, use_reentrant=False)
    return execute(layer, *arguments)


def require_channels(inputs: Width, reinsert: Sequence[int], reinsert_s: Sequence[int]) -> None:
    """Channels that are seen again have to be channels of the input."""
    for label, chosen, count in (("reinsert", reinsert, inputs.mv), ("reinsert_s", reinsert_s, inputs.s)):
        for channel in chosen:
            if not 0 <= channel < count:
                raise ValueError(f"{label}={tuple(chosen)}: {channel} is not an input channel; use 0 to {count - 1}")


def _checked_pairs(pairs: Width | None, anchors: int) -> Width | None:
    if pairs is None:
        return None
    if anchors:
        raise ValueError(f"anchors={anchors} and pairs={tuple(pairs)}: sparse attention has no pairs; leave one out")
    if not sum(pairs):
        raise ValueError(f"pairs={tuple(pairs)} has no channels; leave pairs out")
    return Width(*pairs)


def check_counts(**counts: int) -> None:
    """Numbers of tokens."""
    for name, count in counts.items():
        if type(count) is not int or not 0 <= count <= MOST:
            raise ValueError(f"{name}={count!r} must be an integer from 0 to {MOST:,}")


def checked_points(points: Tensor | None, tokens: torch.Size) -> Tensor:
    """The coordinates by whose distances tokens are chosen."""
    if torch.compiler.is_exporting():
        raise ValueError("a choice of tokens cannot be exported, it depends on the data; export a model without large")
    if points is None or points.shape[:-1] != tokens:
        found = None if points is None else tuple(points.shape)
        raise ValueError(f"points={found}: a network that chooses tokens takes their coordinates, {(*tokens, 'd')}")
    return points


def check_size(hidden: Width, blocks: int) -> None:
    """A network needs blocks and something for them to work on."""
    if not isinstance(blocks, int) or isinstance(blocks, bool) or blocks < 0:
        raise ValueError(f"blocks={blocks!r} must be a non-negative integer")
    if hidden.mv + hidden.s == 0:
        raise ValueError(f"hidden={hidden} has no channels; try Width(16, 64)")
