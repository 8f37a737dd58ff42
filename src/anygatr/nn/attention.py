"""Self- and cross-attention: queries, keys and values from linear layers, heads compared and mixed, a linear layer out."""

from dataclasses import replace
from math import sqrt

import torch
from jaxtyping import Float
from torch import Tensor, nn

from anygatr.nn import init
from anygatr.nn.layer import Layer
from anygatr.nn.linear import EquiLinear
from anygatr.nn.norm import LayerNorm
from anygatr.nn.width import Width
from anygatr.ops.attention import Attention, Rope
from anygatr.ops.batch import Batch
from anygatr.ops.stream import Stream, add
from anygatr.spaces.features import stored
from anygatr.spaces.geometry import Geometry


def head_width(hidden: Width, heads: int) -> Width:
    """The channels of a head: together the heads have twice the hidden channels."""
    if not isinstance(heads, int) or isinstance(heads, bool) or heads < 1:
        raise ValueError(f"heads={heads!r} must be a positive integer")
    for label, count in (("mv", hidden.mv), ("s", hidden.s)):
        if 2 * count % heads:
            fitting = [h for h in range(1, 2 * max(hidden) + 1) if not (2 * hidden.mv % h or 2 * hidden.s % h)]
            nearest = min(fitting, key=lambda h: abs(h - heads))
            raise ValueError(f"heads={heads} must divide hidden.{label} * 2 = {2 * count}; try heads={nearest}")
    return Width(2 * hidden.mv // heads, 2 * hidden.s // heads)


class Attend(Layer):
    """Attention between the channels of heads, with a weight exp(log_weights) for each learned feature, head and channel."""

    op: Attention

    def __init__(
        self,
        geometry: Geometry,
        heads: int,
        key_heads: int,
        head: Width,
        rope: bool = False,
        cross: bool = False,
        sparse: tuple[int, int] = (0, 0),
        paired: bool = False,
    ):
        if rope and head.s < 2:
            raise ValueError(
                f"rope=True turns pairs of scalars, but each head has {head.s}; give hidden.s >= heads or rope=False"
            )
        features = tuple(stored(feature, geometry.basis) for feature in geometry.features)
        op = Attention.of(features, heads, key_heads, tuple(head), geometry.algebra.dim, cross)  # type: ignore[arg-type]
        super().__init__(replace(op, sparse=sparse, paired=paired))
        self.heads, self.key_heads, self.head = heads, key_heads, head
        self.rope = Rope(heads + key_heads, head.s) if rope else None
        learned = [f for f in op.features if f.learned]
        self.log_weights = nn.ParameterList([nn.Parameter(torch.zeros(heads, head.mv)) for _ in learned])

    def forward(
        self,
        x: Float[Tensor, "k *queries c_q"],
        s: Float[Tensor, "*queries s_q"],
        batch: Batch,
        *keys: Tensor,
    ) -> tuple[Float[Tensor, "k *queries h*c"], Float[Tensor, "*queries h*s"]]:
        """The channels of queries, keys and values side by side, or those of keys and values apart."""
        if self.rope is not None:
            (s,) = self.rope(s, batch=batch)
        return self.op(x, s, *keys, parameters=(*self.log_weights, *self.tables), batch=batch)


class SelfAttention(nn.Module):
    """Queries, keys and values from one linear layer; the network's input channels may be seen again by q and k.

    `head` overrides the width of a head; `values_see_inputs` lets the values, too, see the input channels again;
    `inner_norm` normalises the queries, keys and values of each head; `sparse` = (neighbours, anchors) leaves the keys to
    the batch, (0, 0) takes all; `paired` adds what pairs of tokens bring.
    """

    layout = "blades"

    def __init__(
        self,
        geometry: Geometry,
        width: Width,
        heads: int,
        multi_query: bool = True,
        reinsert: int = 0,
        rope: bool = False,
        head: Width | None = None,
        values_see_inputs: bool = False,
        inner_norm: bool = False,
        reinsert_s: int = 0,
        sparse: tuple[int, int] = (0, 0),
        paired: bool = False,
    ):
        super().__init__()
        self.geometry, self.inputs = geometry, width
        head = head_width(width, heads) if head is None else head
        groups = (heads, 1, 1) if multi_query else (heads,) * 3
        self.qkv = EquiLinear(geometry, width, head * sum(groups), delicate=False)
        seeing = sum(groups) if values_see_inputs else groups[0] + groups[1]
        again = Width(reinsert, reinsert_s)
        self.again = EquiLinear(geometry, again, head * seeing, False, delicate=False) if any(again) else None
        self.norm = LayerNorm(geometry, sum(groups)) if inner_norm else None
        self.attend = Attend(geometry, heads, groups[1], head, rope, sparse=sparse, paired=paired)
        self.out = EquiLinear(geometry, head * heads, width, variants=(init.SMALL,), delicate=False)

    @torch.no_grad()
    def start_near(self, near: init.NearStart = init.NEAR) -> None:
        """Make the queries of a new layer alike to its keys, so that every head begins with near tokens."""
        heads, channels = self.attend.heads, self.attend.head.mv
        sizes = heads * channels, self.attend.key_heads * channels
        queries, keys = self.qkv.weight[: sum(sizes)].split(sizes)
        own, theirs = near.gain * sqrt(1 - near.share), near.gain * sqrt(near.share)
        queries.mul_(own).add_(keys.repeat(heads // self.attend.key_heads, 1, 1), alpha=theirs)

    def forward(self, x: Float[Tensor, "k *tokens c"], s: Float[Tensor, "*tokens c_s"], batch: Batch) -> Stream:
        """Every token attends to all real tokens of its sample, or to those that the batch says."""
        x, s = self.qkv(x, s)
        if self.again is not None:
            x, s = add((x, s), self.again(batch.inputs, batch.scalars))
        if self.norm is not None:
            x, s = self.norm(x, s)
        return self.out(*self.attend(x, s, batch))


class CrossAttention(nn.Module):
    """Queries from one set of tokens, keys and values from another."""

    layout = "blades"

    def __init__(self, geometry: Geometry, width: Width, condition: Width, heads: int, multi_query: bool = True):
        super().__init__()
        self.geometry, self.inputs, self.condition = geometry, width, condition
        head = head_width(width, heads)
        key_heads = 1 if multi_query else heads
        self.q = EquiLinear(geometry, width, head * heads, delicate=False)
        self.kv = EquiLinear(geometry, condition, head * (2 * key_heads), delicate=False)
        self.attend = Attend(geometry, heads, key_heads, head, cross=True)
        self.out = EquiLinear(geometry, head * heads, width, variants=(init.SMALL,), delicate=False)

    def forward(
        self,
        x: Float[Tensor, "k *batch n c"],
        s: Float[Tensor, "*batch n c_s"],
        cx: Float[Tensor, "k *batch m d"],
        cs: Float[Tensor, "*batch m d_s"],
        batch: Batch,
    ) -> Stream:
        """Every token attends to all real tokens of the condition."""
        return self.out(*self.attend(*self.q(x, s), batch, *self.kv(cx, cs)))
