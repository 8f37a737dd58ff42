"""Multi-head and multi-query attention: invariant features of multivectors and scalars compared, all blades mixed."""

from math import sqrt

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from anygatr.geometry import Geometry
from anygatr.kernels.attention import attention
from anygatr.kernels.packed import Packed
from anygatr.kernels.precision import lengthened, shortened, without_autocast
from anygatr.nn import init
from anygatr.nn.batch import Batch
from anygatr.nn.linear import EquiLinear
from anygatr.nn.norm import LayerNorm
from anygatr.nn.rope import rotate
from anygatr.nn.width import Width

# axes: k blades, f features, h heads, g key heads, c channels of a head


def head_width(hidden: Width, heads: int) -> Width:
    """The channels of a head: together the heads have twice the hidden channels."""
    if not isinstance(heads, int) or isinstance(heads, bool) or heads < 1:
        raise ValueError(f"heads={heads!r} must be a positive integer")
    for label, channels in (("mv", hidden.mv), ("s", hidden.s)):
        if 2 * channels % heads:
            fitting = [h for h in range(1, 2 * max(hidden) + 1) if not (2 * hidden.mv % h or 2 * hidden.s % h)]
            nearest = min(fitting, key=lambda h: abs(h - heads))
            raise ValueError(f"heads={heads} must divide hidden.{label} * 2 = {2 * channels}; try heads={nearest}")
    return Width(2 * hidden.mv // heads, 2 * hidden.s // heads)


class Attend(nn.Module):
    """softmax over keys of scale * (sum over features of query . key + scalars . scalars), applied to the values.

    scale = 1 / sqrt(numbers compared). Learned features have a weight exp(log_weights) for each head and channel.
    """

    layout = "blades"

    def __init__(self, geometry: Geometry, heads: int, key_heads: int, head: Width, rope: bool = False):
        super().__init__()
        self.heads, self.key_heads, self.head, self.rope = heads, key_heads, head, rope
        self.features = geometry.features
        self.blades = geometry.algebra.dim
        learned = [f for f in self.features if f.learned]
        self.log_weights = nn.ParameterList([nn.Parameter(torch.zeros(heads, head.mv)) for _ in learned])
        self.size = sum(f.size for f in self.features) * head.mv + head.s
        self.precise = any(f.precise for f in self.features)
        if rope and head.s < 2:
            raise ValueError(
                f"rope=True turns pairs of scalars, but each head has {head.s}; give hidden.s >= heads or rope=False"
            )

    def forward(
        self,
        q: tuple[Float[Tensor, "k *queries h*c"], Float[Tensor, "*queries h*s"]],
        k: tuple[Float[Tensor, "k *keys g*c"], Float[Tensor, "*keys g*s"]],
        v: tuple[Float[Tensor, "k *keys g*c"], Float[Tensor, "*keys g*s"]],
        mask: Bool[Tensor, "*keys"] | None = None,
        packed: Packed | None = None,
    ) -> tuple[Float[Tensor, "k *queries h*c"], Float[Tensor, "*queries h*s"]]:
        """Queries head-major; keys and values of one head (multi-query) or as many as the queries."""
        with without_autocast(q[0]):
            query = self._compared(lengthened(*q), packed, key=False)
            key = self._compared(lengthened(*k), packed, key=True)
        value = torch.cat([_by_head(v[0], self.key_heads), v[1].unflatten(-1, (self.key_heads, -1))], -1)
        query, key, value = (lengthened if self.precise else shortened)(query, key, value)
        with without_autocast(query):
            out = attention(query, key, value, 1 / sqrt(max(self.size, 1)), mask, packed)
        x, s = out.split([self.blades * self.head.mv, self.head.s], -1)
        return x.unflatten(-1, (self.blades, self.head.mv)).movedim(-2, 0).flatten(-2), s.flatten(-2)

    def flops(self, tokens: int) -> int:
        """FLOPs per query of comparing and mixing `tokens` keys."""
        return 2 * tokens * self.heads * (self.size + self.blades * self.head.mv + self.head.s)

    def _compared(self, channels: tuple[Tensor, ...], packed: Packed | None, key: bool) -> Tensor:
        """(*tokens, heads, numbers compared)."""
        x, s = channels
        heads = self.key_heads if key else self.heads
        parts, weights = [], iter(self.log_weights)
        for feature in self.features:
            part = _by_head(feature.key(x) if key else feature.query(x), heads)
            if feature.learned and not key:
                part = part * next(weights).exp().repeat(1, feature.size)
            parts.append(part)
        s = s.unflatten(-1, (heads, -1))
        if self.rope:
            position = torch.arange(s.shape[-3], device=s.device) if packed is None else packed.position
            s = rotate(s, position)
        return torch.cat([*parts, s], -1)


class SelfAttention(nn.Module):
    """Queries, keys and values from one linear layer; the network's input channels may be seen again by q and k.

    `head` overrides the width of a head; `values_see_inputs` lets the values, too, see the input channels again;
    `inner_norm` normalises the queries, keys and values of each head.
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
    ):
        super().__init__()
        self.geometry, self.inputs = geometry, width
        head = head_width(width, heads) if head is None else head
        groups = (heads, 1, 1) if multi_query else (heads,) * 3
        self.splits = tuple(head * n for n in groups)
        self.qkv = EquiLinear(geometry, width, head * sum(groups))
        seeing = sum(groups) if values_see_inputs else groups[0] + groups[1]
        again = Width(reinsert, reinsert_s)
        self.again = EquiLinear(geometry, again, head * seeing, bias=False) if any(again) else None
        self.norm = LayerNorm(geometry) if inner_norm else None
        self.attend = Attend(geometry, heads, groups[1], head, rope)
        self.out = EquiLinear(geometry, head * heads, width, variants=(init.SMALL,))

    def forward(
        self, x: Float[Tensor, "k *tokens c"], s: Float[Tensor, "*tokens c_s"], batch: Batch
    ) -> tuple[Float[Tensor, "k *tokens c"], Float[Tensor, "*tokens c_s"]]:
        """Every token attends to all real tokens of its sample."""
        x, s = self.qkv(x, s)
        if self.again is not None:
            scalars = s[..., :0] if batch.scalars is None else batch.scalars
            x, s = _add_first((x, s), self.again(batch.inputs, scalars))
        if self.norm is not None:
            every = self.attend.heads + 2 * self.attend.key_heads
            x, s = self.norm(x.unflatten(-1, (every, -1)), s.unflatten(-1, (every, -1)))
            x, s = x.flatten(-2), s.flatten(-2)
        q, k, v = zip(x.split([w.mv for w in self.splits], -1), s.split([w.s for w in self.splits], -1), strict=True)
        return self.out(*self.attend(q, k, v, batch.mask, batch.packed))


class CrossAttention(nn.Module):
    """Queries from one set of tokens, keys and values from another."""

    layout = "blades"

    def __init__(self, geometry: Geometry, width: Width, condition: Width, heads: int, multi_query: bool = True):
        super().__init__()
        self.geometry, self.inputs, self.condition = geometry, width, condition
        head = head_width(width, heads)
        key_heads = 1 if multi_query else heads
        self.shared = head * key_heads
        self.q = EquiLinear(geometry, width, head * heads)
        self.kv = EquiLinear(geometry, condition, self.shared * 2)
        self.attend = Attend(geometry, heads, key_heads, head)
        self.out = EquiLinear(geometry, head * heads, width, variants=(init.SMALL,))

    def forward(
        self,
        x: Float[Tensor, "k *batch n c"],
        s: Float[Tensor, "*batch n c_s"],
        cx: Float[Tensor, "k *batch m d"],
        cs: Float[Tensor, "*batch m d_s"],
        mask: Bool[Tensor, "*batch m"] | None = None,
    ) -> tuple[Float[Tensor, "k *batch n c"], Float[Tensor, "*batch n c_s"]]:
        """Every token attends to all real tokens of the condition."""
        cx, cs = self.kv(cx, cs)
        k, v = zip(cx.split(self.shared.mv, -1), cs.split(self.shared.s, -1), strict=True)
        return self.out(*self.attend(self.q(x, s), k, v, mask))


def _by_head(x: Float[Tensor, "f *tokens h*c"], heads: int) -> Float[Tensor, "*tokens h f*c"]:
    return x.unflatten(-1, (heads, -1)).movedim(0, -2).flatten(-2)


def _add_first(xs: tuple[Tensor, Tensor], more: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    """Add to the first channels of each."""
    return tuple(a + nn.functional.pad(b, (0, a.shape[-1] - b.shape[-1])) for a, b in zip(xs, more, strict=True))
