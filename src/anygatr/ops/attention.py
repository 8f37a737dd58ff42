"""Multi-head attention between channels: invariant features of multivectors and scalars compared, all blades mixed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt

import torch
from jaxtyping import Float
from torch import Tensor

from anygatr.ops import sdpa
from anygatr.ops.batch import Batch
from anygatr.ops.near import near_attention
from anygatr.ops.op import Op, Tensors
from anygatr.ops.pairs import TokenPairs, pair_attention
from anygatr.ops.precision import autocast_type, lengthened, without_autocast
from anygatr.ops.ragged import packed_attention
from anygatr.ops.rope import rotate
from anygatr.spaces.features import Feature, Inner, TableFeature

# axes: k blades, n query tokens, m key tokens, h heads, g key heads, c channels of a head, f and v numbers of a row


@dataclass(frozen=True)
class Attention(Op):
    """softmax over keys of scale * (sum over features of query . key + scalars . scalars), applied to the values.

    (x, s) -> (x, s): the channels of all query heads, then of all key heads, then of all value heads. With `cross`,
    (x, s, keys_x, keys_s) -> (x, s): those of keys and values come from the tokens of a condition. There is one key head
    (multi-query) or as many as query heads; channels are head-major. Parameters are the logarithms of the learned features'
    weights, (h, c) each. `scale` = 1 / sqrt(compared), the numbers of a row; of all blades, those in `mixed` are mixed.
    With `sparse` = (neighbours, anchors) the keys of a token are those that the batch says; (0, 0) stands for all. With
    `paired`, pairs of tokens have keys and values of their own, added to those of the sender, and a bias.
    """

    features: tuple[Feature, ...]
    heads: int
    key_heads: int
    head: tuple[int, int]  # multivector and scalar channels of a head
    blades: int
    mixed: tuple[int, ...]
    compared: int
    cross: bool = False
    sparse: tuple[int, int] = (0, 0)
    paired: bool = False

    @classmethod
    def of(
        cls, features: tuple[Feature, ...], heads: int, key_heads: int, head: tuple[int, int], blades: int, cross: bool
    ) -> "Attention":
        """All blades mixed."""
        compared = sum(f.size for f in features) * head[0] + head[1]
        return cls(features, heads, key_heads, head, blades, tuple(range(blades)), compared, cross)

    @property
    def scale(self) -> float:
        """What logits are multiplied by."""
        return 1 / sqrt(max(self.compared, 1))

    @property
    def is_plain(self) -> bool:
        """Whether every token attends to all others by their channels alone, as kernels compute it."""
        return not any(self.sparse) and not self.paired

    @property
    def precise(self) -> bool:
        """Whether 16-bit numbers would destroy what is compared."""
        return any(f.precise for f in self.features)

    def narrowed(self, compared: tuple[int, ...], mixed: tuple[int, ...]) -> "Attention":
        """The same where blades outside `compared` are zero in queries or keys and those outside `mixed` are not read."""
        features = tuple(f.within(compared) if isinstance(f, Inner) else f for f in self.features)
        return replace(self, features=features if all(f.size for f in features) else self.features, mixed=mixed)

    def tables(self) -> dict[str, Tensor]:
        """The blades of all features that are picked by a table, so that one gather serves them, and their factors."""
        picked = [feature for feature in self.features if isinstance(feature, TableFeature)]
        sides = {"blades": [f.blades for f in picked], "key_blades": [f.key_blades for f in picked]}
        tables = {name: torch.tensor(sum(blades, ()), dtype=torch.int64) for name, blades in sides.items()}
        for i, feature in enumerate(picked):
            tables[f"factors_{i}"] = torch.tensor(feature.factors, dtype=torch.float64).view(-1, 1, 1)
        return tables

    def run(self, values: Sequence[Tensor], parameters: Tensors, batch: Batch | None = None) -> tuple[Tensor, Tensor]:
        """Rows of features, softmax and mixture; in float32 under autocast where a feature asks for it."""
        return self.mixture(*self.rows(values, parameters), values, batch)

    def rows(self, values: Sequence[Tensor], parameters: Tensors) -> tuple[Tensor, Tensor, Tensor]:
        """(n, h, f) of queries, (m, g, f) of keys and (m, g, v) of values, in float32 under autocast."""
        learned = sum(f.learned for f in self.features)
        log_weights, tables = parameters[:learned], parameters[learned:]
        with without_autocast(values[0]):
            streams = [t.flatten(1 - i % 2, -2) for i, t in enumerate(lengthened(*values))]
            return self._rows(streams, feature_weights(log_weights, self, streams[0]), tables)

    def mixture(
        self, q: Tensor, k: Tensor, v: Tensor, values: Sequence[Tensor], batch: Batch | None
    ) -> tuple[Tensor, Tensor]:
        """Softmax over the rows of keys, applied to those of values, as channels of the queries' tokens."""
        assert batch is not None
        short, tokens = autocast_type(values[0]), values[1].shape[:-1]
        with without_autocast(values[0]):
            if self.paired:
                pass  # few numbers a pair, in full precision
            elif short is not None and not self.precise:
                q, k, v = q.to(short), k.to(short), v.to(short)
            elif short is torch.bfloat16 and q.device.type != "cpu":  # CPUs are as fast in float32; float16 may overflow
                q, k, v = self.halved(q, short, False), self.halved(k, short, True), v.to(short)
            if self.paired:
                assert batch.pairs is not None
                out = self._with_pairs(q, k, v, batch.pairs)
            elif any(self.sparse):
                assert batch.near is not None
                out = near_attention(q, k, v, batch.near, self.scale)
            elif batch.packed is not None and not self.cross:
                out = packed_attention(q, k, v, batch.packed, self.scale)
            else:
                mask = batch.condition_mask if self.cross else batch.mask
                q, k, v = (
                    t.unflatten(0, (-1, n)) for t, n in zip((q, k, v), (tokens[-1], *_key_counts(values)), strict=True)
                )
                mask = None if mask is None else mask.reshape(-1, mask.shape[-1])
                if batch.shard is not None:
                    k, v, mask = batch.shard.keys(k, v, mask)
                out = sdpa.attention(q, k, v, self.scale, mask).flatten(0, 1)
            x, s = self._channels(out)
            return x.unflatten(1, tokens), s.unflatten(0, tokens)

    def _with_pairs(
        self, q: Float[Tensor, "n h f"], k: Float[Tensor, "n g f"], v: Float[Tensor, "n g v"], pairs: TokenPairs
    ) -> Float[Tensor, "n h v"]:
        """Attention where a pair adds <q, key> + scalars . scalars + bias to its logit and has a value of its own.

        Of the features only the inner product counts: it is linear, so that a pair of zeros adds nothing.
        """
        (mv, scalars), g = self.head, self.key_heads
        x, s = lengthened(pairs.x, pairs.s)
        (x_key, x_value), (s_key, s_value) = x.split([g * mv] * 2, -1), s.split([g * scalars] * 2, -1)
        columns = q.split([*(f.size * mv for f in self.features), scalars], -1)
        compared = [(f, part) for f, part in zip(self.features, columns, strict=False) if isinstance(f, Inner)]
        keys = torch.cat([*(_by_head(f.key(x_key), g) for f, _ in compared), s_key.unflatten(-1, (g, scalars))], -1)
        queries = torch.cat([*(part for _, part in compared), columns[-1]], -1)[pairs.receiver]
        logits = self.scale * torch.einsum("egrf,egf->egr", queries.unflatten(1, (g, -1)), keys).flatten(1)
        if pairs.bias is not None:
            logits = logits + pairs.bias
        values = torch.cat([_by_head(_mixed_blades(x_value, self), g), s_value.unflatten(-1, (g, scalars))], -1)
        return pair_attention(q, k, v, logits.to(q), values.to(q), pairs.buckets, self.scale)

    def halved(self, rows: Float[Tensor, "n h f"], short: torch.dtype, key: bool) -> Float[Tensor, "n h f_short"]:
        """Rows in 16 bits whose products are those of 32: precise numbers as high + low, three products for each.

        q k = q_high k_high + q_high k_low + q_low k_high to 16 bits, so that the kernels for 16 bits take all of it.
        """
        sizes = [feature.size * self.head[0] for feature in self.features]
        parts = list[Tensor]()
        for part, precise in zip(
            rows.split([*sizes, self.head[1]], -1), [*(f.precise for f in self.features), False], strict=True
        ):
            high = part.to(short)
            parts.append(high)
            if precise:
                low = (part - high.float()).to(short)
                parts += [low, high] if key else [high, low]
        return torch.cat(parts, -1)

    def _rows(
        self, streams: Sequence[Tensor], weights: Float[Tensor, "w h c"], tables: Tensors
    ) -> tuple[Float[Tensor, "n h f"], Float[Tensor, "m g f"], Float[Tensor, "m g v"]]:
        """Each feature for all channels of a head, then its scalars, of queries and keys; every mixed blade, of values."""
        counts, (mv, scalars) = [self.heads, self.key_heads, self.key_heads], self.head
        if self.cross:
            xs = streams[0], *streams[2].split([n * mv for n in counts[1:]], -1)
            ss = streams[1], *streams[3].split([n * scalars for n in counts[1:]], -1)
        else:
            xs = streams[0].split([n * mv for n in counts], -1)
            ss = streams[1].split([n * scalars for n in counts], -1)
        query = self._features(xs[0], self.heads, weights, tables)
        key = self._features(xs[1], self.key_heads, None, tables)
        value = [_by_head(_mixed_blades(xs[2], self), self.key_heads)]
        parts = zip((query, key, value), ss, counts, strict=True)
        q, k, v = (torch.cat([*row, t.unflatten(-1, (n, scalars))], -1) for row, t, n in parts)
        return q, k, v

    def _features(self, x: Tensor, heads: int, weights: Tensor | None, tables: Tensors) -> list[Float[Tensor, "n h f"]]:
        """Of queries, whose learned features have weights, or of keys."""
        of_query, of_key, *factors = tables
        sizes = [len(feature.blades) for feature in self.features if isinstance(feature, TableFeature)]
        picked = x.index_select(0, of_key if weights is None else of_query).split(sizes)  # type: ignore[arg-type]
        parts, learned, given = [], 0, zip(picked, factors, strict=True)
        for feature in self.features:
            if isinstance(feature, TableFeature):
                blades, factor = next(given)
                of = feature.key_of if weights is None else feature.query_of
                part = _by_head(of(blades, factor.to(x.dtype)), heads)  # type: ignore[union-attr]
            else:
                part = _by_head(feature.key(x) if weights is None else feature.query(x), heads)
            if feature.learned and weights is not None:
                part = part * weights[learned].repeat(1, feature.size)
                learned += 1
            parts.append(part)
        return parts

    def _channels(self, out: Float[Tensor, "n h v"]) -> tuple[Float[Tensor, "k n h*c"], Float[Tensor, "n h*s"]]:
        """The inverse of the rows of values, zero where they have no blade."""
        count, (mv, scalars) = len(self.mixed), self.head
        x, s = out.split([count * mv, scalars], -1)
        x, s = x.unflatten(-1, (count, mv)).movedim(-2, 0).flatten(-2), s.flatten(-2)
        if count == self.blades:
            return x, s
        parts, zero = dict(zip(self.mixed, x.unbind(), strict=True)), torch.zeros_like(x[0]) if count else x.sum(0)
        return torch.stack([parts.get(blade, zero) for blade in range(self.blades)]), s


@dataclass(frozen=True)
class Rope(Op):
    """Turn the scalars of queries and keys, not of values, by the positions of their tokens: (s,) -> (s,)."""

    heads: int  # of queries and keys together
    width: int  # scalars of a head

    def run(self, values: Sequence[Tensor], parameters: Tensors = (), batch: Batch | None = None) -> tuple[Tensor]:
        """In float32 under autocast."""
        (s,) = lengthened(*values)
        packed = None if batch is None else batch.packed
        first = 0 if batch is None or batch.shard is None else batch.shard.start
        position = torch.arange(first, first + s.shape[-2], device=s.device) if packed is None else packed.position
        turned, rest = s.split([self.heads * self.width, s.shape[-1] - self.heads * self.width], -1)
        return (torch.cat([rotate(turned.unflatten(-1, (self.heads, self.width)), position).flatten(-2), rest], -1),)


def feature_weights(log_weights: Tensors, op: Attention, like: Tensor) -> Float[Tensor, "w h c"]:
    """The learned features' weights for each head and channel, from their logarithms."""
    if not log_weights:
        return like.new_empty(0, op.heads, op.head[0])
    together = log_weights[0].unsqueeze(0) if len(log_weights) == 1 else torch.stack(tuple(log_weights))  # type: ignore[arg-type, union-attr]
    return together.exp().to(like.dtype)


def _key_counts(values: Sequence[Tensor]) -> tuple[int, int]:
    keys = values[-1].shape[-2]
    return keys, keys


def _mixed_blades(x: Float[Tensor, "k n c"], op: Attention) -> Float[Tensor, "v n c"]:
    """The blades that are mixed."""
    if len(op.mixed) == op.blades:
        return x
    parts = x.unbind()  # the gradient of a slice would fill all blades with zeros
    return torch.stack([parts[blade] for blade in op.mixed]) if op.mixed else x[:0]


def _by_head(x: Float[Tensor, "f n h*c"], heads: int) -> Float[Tensor, "n h f*c"]:
    return x.unflatten(-1, (heads, -1)).movedim(0, -2).flatten(-2)
