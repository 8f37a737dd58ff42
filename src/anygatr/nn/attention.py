"""Multi-head and multi-query attention: invariant features of multivectors and scalars compared, all blades mixed."""

from math import sqrt

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from anygatr.kernels.attend import AttendPlan, Layout, attend
from anygatr.kernels.attend_native import Comparison, Streams, feature_weights
from anygatr.kernels.chain import chain, chainable, chains
from anygatr.kernels.packed import Packed
from anygatr.kernels.precision import autocast_type, lengthened, without_autocast
from anygatr.kernels.prologue import NOTHING, Prologue
from anygatr.kernels.steps import Step, mixed
from anygatr.nn import init
from anygatr.nn.ahead import untouched
from anygatr.nn.batch import Batch
from anygatr.nn.linear import EquiLinear
from anygatr.nn.norm import LayerNorm
from anygatr.nn.rope import rotate
from anygatr.nn.width import Width
from anygatr.spaces.features import Inner
from anygatr.spaces.geometry import Geometry

# axes: k blades, f features, h heads, g key heads, c channels of a head


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


class Attend(nn.Module):
    """softmax over keys of scale * (sum over features of query . key + scalars . scalars), applied to the values.

    scale = 1 / sqrt(numbers compared). Learned features have a weight exp(log_weights) for each head and channel.
    """

    layout = "blades"
    plan: AttendPlan

    def __init__(self, geometry: Geometry, heads: int, key_heads: int, head: Width, rope: bool = False):
        super().__init__()
        self.heads, self.key_heads, self.head, self.rope = heads, key_heads, head, rope
        self.features = geometry.features
        self.blades = geometry.algebra.dim
        learned = [f for f in self.features if f.learned]
        self.log_weights = nn.ParameterList([nn.Parameter(torch.zeros(heads, head.mv)) for _ in learned])
        self.size = sum(f.size for f in self.features) * head.mv + head.s
        self.precise = any(f.precise for f in self.features)
        self.widen()
        if rope and head.s < 2:
            raise ValueError(
                f"rope=True turns pairs of scalars, but each head has {head.s}; give hidden.s >= heads or rope=False"
            )

    def forward(
        self,
        queries: tuple[Float[Tensor, "k *queries c_q"], Float[Tensor, "*queries s_q"]],
        keys: tuple[Float[Tensor, "k *keys c_k"], Float[Tensor, "*keys s_k"]] | None = None,
        mask: Bool[Tensor, "*keys"] | None = None,
        packed: Packed | None = None,
    ) -> tuple[Float[Tensor, "k *queries h*c"], Float[Tensor, "*queries h*s"]]:
        """`keys` holds the channels of all key heads, then of all value heads; by default they follow the queries'.

        There is one key head (multi-query) or as many as query heads; channels are head-major.
        """
        short = None if self.precise else autocast_type(queries[0])
        with without_autocast(queries[0]):
            x, s = self._turned(queries, packed, of_keys=keys is None)
            kx, ks = (None, None) if keys is None else self._turned(keys, packed, of_keys=True)
            layout = Layout(s.shape[-2], s.shape[-2] if ks is None else ks.shape[-2], mask, packed)
            weights = feature_weights(tuple(self.log_weights), self.heads, self.head.mv, x)
            return attend(Streams(x, s, kx, ks), weights, layout, self.scale, self.plan, short)

    def step(
        self,
        x: Float[Tensor, "k *tokens _"],
        mask: Bool[Tensor, "*tokens"] | None,
        packed: Packed | None,
    ) -> Step:
        """Attention of a stream to itself, without positions, as a part of a chain whose tokens are those of x."""
        layout = Layout(x.shape[-2], x.shape[-2], mask, packed)
        return mixed(tuple(self.log_weights._parameters.values()), layout, self.scale, self.plan.comparison)  # type: ignore[arg-type]

    @property
    def scale(self) -> float:
        """What logits are multiplied by."""
        return 1 / sqrt(max(self.size, 1))

    def flops(self, tokens: int) -> int:
        """FLOPs per query of comparing and mixing `tokens` keys."""
        compared, mixed = sum(f.size for f in self.plan.comparison.features), len(self.plan.comparison.mixed)
        return 2 * tokens * self.heads * ((compared + mixed) * self.head.mv + 2 * self.head.s)

    def narrow(self, compared: tuple[int, ...], mixed: tuple[int, ...]) -> None:
        """From now on take blades outside `compared` of queries or of keys for zero and leave those outside `mixed` zero."""
        features = tuple(f.within(compared) if isinstance(f, Inner) else f for f in self.features)
        features = features if all(f.size for f in features) else self.features
        self.plan = AttendPlan.of(Comparison(features, self.heads, self.key_heads, self.blades, mixed))

    def widen(self) -> None:
        """Undo `narrow`."""
        self.narrow(tuple(range(self.blades)), tuple(range(self.blades)))

    def _turned(
        self, stream: tuple[Tensor, Tensor], packed: Packed | None, of_keys: bool
    ) -> tuple[Float[Tensor, "k *tokens c"], Float[Tensor, "*tokens c_s"]]:
        """A stream in at least float32, the scalars of its queries and keys, not of values, turned by their positions."""
        x, s = lengthened(*stream)
        if not self.rope:
            return x, s
        position = torch.arange(s.shape[-2], device=s.device) if packed is None else packed.position
        last = s.shape[-1] - (self.key_heads * self.head.s if of_keys else 0)
        by_head = s[..., :last].unflatten(-1, (-1, self.head.s))
        return x, torch.cat([rotate(by_head, position).flatten(-2), s[..., last:]], -1)


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
        self.qkv = EquiLinear(geometry, width, head * sum(groups))
        seeing = sum(groups) if values_see_inputs else groups[0] + groups[1]
        again = Width(reinsert, reinsert_s)
        self.again = EquiLinear(geometry, again, head * seeing, bias=False) if any(again) else None
        self.norm = LayerNorm(geometry) if inner_norm else None
        self.attend = Attend(geometry, heads, groups[1], head, rope)
        self.out = EquiLinear(geometry, head * heads, width, variants=(init.SMALL,))

    def forward(
        self,
        x: Float[Tensor, "k *tokens c"],
        s: Float[Tensor, "*tokens c_s"],
        batch: Batch,
        before: Prologue = NOTHING,
        onto: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Float[Tensor, "k *tokens c"], Float[Tensor, "*tokens c_s"]]:
        """Every token, as `before` leaves it, attends to all real tokens of its sample; the result is added to `onto`."""
        steps = self._steps(x, batch, before)
        if chains(x, s, steps, onto):
            return chain(x, s, steps, onto)
        x, s = self.qkv(x, s, before)
        if self.again is not None:
            scalars = s[..., :0] if batch.scalars is None else batch.scalars
            x, s = _add_first((x, s), self.again(batch.inputs, scalars))
        if self.norm is not None:
            every = self.attend.heads + 2 * self.attend.key_heads
            x, s = self.norm(x.unflatten(-1, (every, -1)), s.unflatten(-1, (every, -1)))
            x, s = x.flatten(-2), s.flatten(-2)
        return self.out(*self.attend((x, s), None, batch.mask, batch.packed), onto=onto)

    def _steps(self, x: Tensor, batch: Batch, before: Prologue) -> tuple[Step, ...]:
        """What can run as one; nothing where something is between or may be looked at."""
        qkv, mixture, out = self.qkv, self.attend, self.out
        between = self.again is not None or self.norm is not None or mixture.rope
        if between or not chainable(x) or not untouched((qkv, EquiLinear), (mixture, Attend), (out, EquiLinear)):
            return ()
        return qkv.step(x, before), mixture.step(x, batch.mask, batch.packed), out.step(x)


class CrossAttention(nn.Module):
    """Queries from one set of tokens, keys and values from another."""

    layout = "blades"

    def __init__(self, geometry: Geometry, width: Width, condition: Width, heads: int, multi_query: bool = True):
        super().__init__()
        self.geometry, self.inputs, self.condition = geometry, width, condition
        head = head_width(width, heads)
        key_heads = 1 if multi_query else heads
        self.q = EquiLinear(geometry, width, head * heads)
        self.kv = EquiLinear(geometry, condition, head * (2 * key_heads))
        self.attend = Attend(geometry, heads, key_heads, head)
        self.out = EquiLinear(geometry, head * heads, width, variants=(init.SMALL,))

    def forward(
        self,
        x: Float[Tensor, "k *batch n c"],
        s: Float[Tensor, "*batch n c_s"],
        cx: Float[Tensor, "k *batch m d"],
        cs: Float[Tensor, "*batch m d_s"],
        mask: Bool[Tensor, "*batch m"] | None = None,
        before: Prologue = NOTHING,
        onto: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Float[Tensor, "k *batch n c"], Float[Tensor, "*batch n c_s"]]:
        """Every token attends to all real tokens of the condition, both as `before` leaves them; added to `onto`."""
        return self.out(*self.attend(self.q(x, s, before), self.kv(cx, cs, before), mask), onto=onto)


def _add_first(xs: tuple[Tensor, Tensor], more: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    """Add to the first channels of each."""
    return tuple(a + nn.functional.pad(b, (0, a.shape[-1] - b.shape[-1])) for a, b in zip(xs, more, strict=True))
