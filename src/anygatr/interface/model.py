"""Coordinates in, coordinates out: a network between named fields of R^d."""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, Self

import torch
from torch import Tensor, nn

from anygatr.interface.fields import Field, Inputs, Targets
from anygatr.interface.pairs import checked_pairs, declare_pairs
from anygatr.interface.sight import require_sight
from anygatr.interface.tokens import Tokens
from anygatr.interface.units import DataUnits, Unit, Units
from anygatr.networks.config import arguments
from anygatr.networks.gatr import GATr
from anygatr.networks.pooled import POOLED, PooledGATr
from anygatr.nn.width import Width
from anygatr.ops.precision import without_autocast
from anygatr.ops.shard import Shard
from anygatr.reach import Narrowing, narrow
from anygatr.spaces.coordinates import checked_together, unchecked
from anygatr.spaces.geometry import Geometry
from anygatr.spaces.presets import geometry

LARGE = {"anchors": ("anchors", "neighbours"), "pooled": ("pooled",)}
"""Ways of attention for samples of many tokens, and the options that each has."""
ANCHORS = 256
"""Anchors of a sample where their number is not given."""


def model(
    geo: Geometry | str,
    inputs: Mapping[str, str],
    targets: Mapping[str, str],
    hidden: Width | tuple[int, int] = Width(16, 64),  # noqa: B008  an immutable pair of integers
    blocks: int = 4,
    heads: int = 4,
    per: str | Mapping[str, str] = "token",
    origin: str | None = "mean",
    reinsert: Sequence[str] = (),
    unit: Unit = "data",
    pool: str = "mean",
    invariants: bool = True,
    init: str = "balanced",
    dim: int | None = None,
    large: str | None = None,
    pairs: Mapping[str, str] | None = None,
    **options: Any,
) -> "Model":
    """A network that takes fields such as position="point", mass="scalar" and predicts others, equivariantly.

    `geo` is a geometry, or the name of one in R^`dim`, 3 by default. A field's kind is one of `spaces.kinds.KINDS`, or
    "scalar*5" for five of them side by side. `per` says whether targets belong to each "token" or to each "sample", for all
    or {name: ...}.
    What belongs to a sample is the "mean" of what its tokens say, or with `pool="sum"` their sum: for targets that grow with
    the number of tokens, such as an energy. Positions are means either way.
    `origin` is the point subtracted before embedding and added to what is read: the "mean" of the positions, their mean
    weighted by a scalar field of that name, the mean of another field of positions, or None. `reinsert` names fields fed
    again to every query and key. `unit` is the length that is 1 for the network: a number, None for 1, or "data": the power
    of two nearest to the size of the first batch, or of one that is given to `fit_unit`; it is part of checkpoints and state
    dicts. `options` go to `GATr`: multi_query, dropout, rope, checkpoint.

    `large="anchors"` is for samples of many tokens: each attends to itself, its `neighbours` (16) nearest tokens and
    `anchors` (256) tokens of its sample that are far from each other, by distances of the first field of points.
    `large="pooled"`: so do `blocks` between `pooled` (512) tokens of a sample, or a fifth of them, which see all others once
    before and are seen by them once after.

    `pairs` declares what belongs to pairs of tokens, such as {"bond": "category*4", "shift": "vector"}: scalars, categories,
    pseudoscalars and vectors. They add to the logits of attention and send messages from one token to the other; a call
    takes them as `pairs={name: tensor}`, all pairs or those of `edges`.

    `invariants` adds to the scalar channels what is invariant in a token's own fields seen from the origin: distances,
    lengths, inner products and, without mirrors, signed volumes; without them networks of P cannot see positions in a scalar
    at all, and those of iP hardly. `init` is how weights start: "balanced", "near" (heads of attention begin with near
    tokens), or "paper" as published. For the network of the paper pass invariants=False and init="paper".

    Predictions follow rotations and translations in every geometry, mirrors in E and C. The points of P and iP change sign
    under mirrors, which a network sees and coordinates do not: there mirrored data may give other predictions. A target
    that no weights can fit raises ValueError: P, without the join, makes vectors of planes, lines and rotations, but none of
    points.
    `anygatr.sight` says for each target which inputs it can depend on.
    """
    geo = _in_dimension(geo, dim)
    made = Model(
        geo,
        inputs,
        targets,
        hidden,
        blocks,
        heads,
        per,
        origin,
        reinsert,
        unit,
        pool,
        invariants,
        large,
        pairs,
        init=init,
        **options,
    )
    require_sight(geo, {**inputs, **(pairs or {})}, targets, invariants, origin, blocks)
    return made


class Model(nn.Module):
    """A GATr between named fields; see `model`.

    Call it with one keyword per input field, (..., n, columns), and perhaps `mask` (..., n), True for real tokens, or
    `offsets` (0, n1, n1 + n2, ..., N) with packed fields (N, columns). A field with n = 1 (packed: one row per sample)
    holds for all tokens of its sample. `pairs` holds a tensor of each field of pairs, (..., n, n, columns) with the token
    that receives before the one that sends, or (E, columns) with `edges` (2, E), the tokens that send above those that
    receive, numbered through all samples of the batch. Pairs that are not among the edges, of zeros or of category -1 say
    nothing; those with the same ends add up. Numbers such as a mass may omit the last axis, and are predicted without it.
    The weights may be float32 while coordinates are float64: the origin is subtracted and added in float64.

    With a torch.distributed process group as the first argument, each of its processes passes its part of the tokens of the
    same samples and gets their predictions; those of samples are the same on all. Gradients are those of the sum of what all
    processes differentiate: add up the parameters' gradients before a step, and count what belongs to a sample once.
    """

    layout = "fields"

    def __init__(
        self,
        geo: Geometry | str,
        inputs: Mapping[str, str],
        targets: Mapping[str, str],
        hidden: Width | tuple[int, int],
        blocks: int,
        heads: int,
        per: str | Mapping[str, str] = "token",
        origin: str | None = "mean",
        reinsert: Sequence[str] = (),
        unit: Unit = None,
        pool: str = "mean",
        invariants: bool = False,  # as in checkpoints that do not say
        large: str | None = None,
        pairs: Mapping[str, str] | None = None,
        **options: Any,
    ):
        super().__init__()
        unit = float(unit) if type(unit) is int else unit  # integers in a checkpoint are taken for sizes
        self.config = arguments(locals())
        if not isinstance(invariants, bool):
            raise ValueError(f"invariants={invariants!r} must be True or False")
        self.geo = geometry(geo) if isinstance(geo, str) else geo
        self.inputs = Inputs(self.geo, inputs, invariants, anchored=origin is not None)
        self.targets = Targets(self.geo, targets, signed=invariants and self.inputs.have_points)
        self.pairs = None if pairs is None else declare_pairs(self.geo, pairs, self.inputs)
        self.per = _per(per, list(targets))
        self.pool = _checked_pool(pool)
        self.origin = self._checked_origin(origin)
        self.near_field = self._checked_large(large, options)
        fields = self.geo, self.inputs, self.targets
        self.units = DataUnits(*fields, self.pairs) if unit == "data" else Units(*fields, unit, self.pairs)
        self.reinsert = (reinsert,) if isinstance(reinsert, str) else tuple(reinsert)
        channels = sorted({channel for name in self.reinsert for channel in self.inputs.channels(name)})
        kind = PooledGATr if large == "pooled" else GATr
        self.net = kind(
            self.geo,
            inputs=self.inputs.width,
            hidden=Width(*hidden),
            outputs=self.targets.width,
            blocks=blocks,
            heads=heads,
            reinsert=tuple(channels),
            stored=True,
            **({"anchors": ANCHORS} if large == "anchors" else {})
            | ({} if self.pairs is None else {"pairs": self.pairs.width})
            | options,
        )

    def forward(
        self,
        group: Any = None,
        /,
        *,
        mask: Tensor | None = None,
        offsets: Tensor | None = None,
        pairs: Mapping[str, Tensor] | None = None,
        edges: Tensor | None = None,
        **fields: Tensor,
    ) -> dict[str, Tensor]:
        """The predicted fields by name."""
        weights = next(self.parameters()).dtype
        with checked_together():
            tokens = Tokens.check(self.inputs, fields, mask, offsets)
            joined = checked_pairs(self.pairs, pairs, edges, tokens)
            first = next(iter(tokens.values.values()))
            shard = None if group is None else self._shard(group, tokens)
            # reduced precision is for the network alone: coordinates far from the origin would lose their digits
            with without_autocast(first):
                origin = tokens.origin(self.inputs, self.origin, shard)
        if isinstance(self.units, DataUnits) and self.units.values is None:
            self.units.take_first(tokens, origin, shard, joined)
        with without_autocast(first), unchecked():  # the fields have been looked at
            origin = self.units.position(origin)
            x, s = self.inputs.embed(self.units.enter(tokens.values), origin)
            told = {} if self.pairs is None else self._embedded_pairs(joined, edges, weights)
        with unchecked():  # fields fill the grades that the network was narrowed to, and no others
            points = None if self.near_field is None else tokens.values[self.near_field]
            others = told if shard is None else {**told, "group": shard}
            y, _ = self.net(x.to(weights), s.to(weights), mask=mask, offsets=tokens.offsets, points=points, **others)
        with without_autocast(first), unchecked():
            y = y.to(torch.promote_types(y.dtype, weights))
            out = self.targets.read(y, origin)
            if "sample" in self.per.values():
                out |= self._pooled(y, tokens, origin, shard)
            out = self.units.leave(out)
        self.units.check_range(x, out.values())
        return {field.name: self._finished(field, out[field.name], tokens) for field in self.targets.fields}

    def fit_unit(
        self,
        group: Any = None,
        /,
        *,
        mask: Tensor | None = None,
        offsets: Tensor | None = None,
        pairs: Mapping[str, Tensor] | None = None,
        edges: Tensor | None = None,
        **fields: Tensor,
    ) -> dict[str, float]:
        """Take the units from a batch of data, of a model with unit="data"; returns them by name."""
        if not isinstance(self.units, DataUnits):
            raise ValueError(f"unit={self.config['unit']!r} is given; build the model with unit='data' to take it from data")
        tokens = Tokens.check(self.inputs, fields, mask, offsets)
        shard = None if group is None else self._shard(group, tokens)
        joined = checked_pairs(self.pairs, pairs, edges, tokens)
        self.units.fit(tokens, tokens.origin(self.inputs, self.origin, shard), shard, joined)
        return dict(self.units.values or {})

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        # the constants of the embeddings follow the weights, so that a call copies none
        self.inputs.geo = self.targets.geo = self.geo.on(next(self.parameters()).device)
        if self.pairs is not None:
            self.pairs.geo = self.inputs.geo
        return self

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile the network's regions; embedding and reading stay eager."""
        self.net.compile(*args, **kwargs)

    def narrow(self, tokens: int = 16) -> Narrowing:
        """From now on skip what the declared fields cannot reach, as `anygatr.reach.narrow` says; what that saves.

        Predictions do not change. `tokens` is the length of samples that attention is counted for.
        """
        return narrow(self.net, self.inputs.grades, self.targets.grades, tokens=tokens)

    def extra_repr(self) -> str:
        """The declaration, for print(model)."""
        described = {
            "geometry": self.geo.name,
            "inputs": {field.name: field.kind for field in self.inputs.fields},
            "targets": {field.name: field.kind for field in self.targets.fields},
            "origin": self.origin,
            "invariants": self.inputs.invariants,
        }
        return ", ".join(f"{key}={value}" for key, value in described.items())

    def _shard(self, group: Any, tokens: Tokens) -> Shard:
        """What the processes of a group have of the same samples."""
        if tokens.offsets is not None or self.near_field is not None:
            given = "offsets" if tokens.offsets is not None else f"large={self.config['large']!r}"
            raise ValueError(f"group divides the tokens of dense samples with exact attention; leave out {given}")
        if self.pairs is not None:
            raise ValueError("group divides samples, whose pairs would be on several processes; leave out group")
        first = next(iter(tokens.values.values()))
        return Shard.of(group, first.shape[:-1], tokens.mask, first)

    def _embedded_pairs(self, values: Mapping[str, Tensor], edges: Tensor | None, dtype: torch.dtype) -> dict[str, Any]:
        """What the network is told of pairs."""
        assert self.pairs is not None
        px, ps = self.pairs.embed(self.units.enter(values))
        return {"px": px.to(dtype), "ps": ps.to(dtype), "edges": edges}

    def _pooled(self, y: Tensor, tokens: Tokens, origin: Tensor | None, shard: Shard | None) -> dict[str, Tensor]:
        """The targets that belong to samples; those with a position are means, however the others are pooled."""
        centre, found = tokens.of_samples(origin), {}
        means = [
            name
            for name, per in self.per.items()
            if per == "sample" and (self.pool == "mean" or name in self.targets.positional)
        ]
        if means:
            mean = self.targets.read(tokens.pool(y, shard=shard), centre)
            found = {name: mean[name] for name in means}
        if others := [name for name, per in self.per.items() if per == "sample" and name not in means]:
            total = self.targets.read(tokens.pool(y, self.pool, shard), centre)
            found |= {name: total[name] for name in others}
        return found

    def _finished(self, field: Field, value: Tensor, tokens: Tokens) -> Tensor:
        """Zero at the padding, without the axis of a single number, in a dtype as wide as the coordinates'."""
        if tokens.mask is not None and self.per[field.name] == "token":
            value = value.masked_fill(~tokens.mask.unsqueeze(-1), 0.0)
        value = value.squeeze(-1) if field.columns(self.geo) == 1 else value
        return value.to(reduce(torch.promote_types, (x.dtype for x in tokens.values.values()), value.dtype))

    def _checked_large(self, large: str | None, options: Mapping[str, Any]) -> str | None:
        """The field of points by whose distances keys are chosen."""
        check_large(large, options)
        if large is None:
            return None
        if self.pairs is not None:
            raise ValueError(f"large={large!r} and pairs: sparse attention has no pairs; leave one out")
        found = next((f.name for f in self.inputs.fields if (f.kind, f.count) == ("point", 1)), None)
        if found is None:
            raise ValueError(
                f"large={large!r} chooses tokens by distances, but no input is one 'point'; add one, or large=None"
            )
        return found

    def _checked_origin(self, origin: str | None) -> str | None:
        if self.targets.positional and not self.inputs.positional:
            raise ValueError(
                f"target {self.targets.positional[0]!r} is a position, but no input is: nothing says where it would be. "
                "Predict a vector, or add an input of kind 'point'"
            )
        if origin in (None, "mean"):
            return origin
        field = self.inputs[str(origin)]
        if field.name not in self.inputs.positional and (field.kind, field.count) != ("scalar", 1):
            raise ValueError(f"origin={origin!r} has kind {field.kind!r}; use 'mean', None, a scalar field or a position")
        return field.name


def check_large(large: str | None, options: Mapping[str, Any]) -> None:
    """Refuse unknown ways of attention, and options of a way that was not chosen."""
    if large is not None and large not in LARGE:
        raise ValueError(f"large={large!r} is unknown; choose {', '.join(map(repr, LARGE))}, or None for exact attention")
    for way, names in LARGE.items():
        for name in names:
            if name in options and way != large:
                raise ValueError(f"{name}={options[name]!r} is an option of large={way!r}, but large={large!r}")
    for name, usual in (("anchors", ANCHORS), ("pooled", POOLED)):
        if name in options and (type(options[name]) is not int or options[name] < 1):
            raise ValueError(f"{name}={options[name]!r} must be a positive integer, such as {usual}")


def _checked_pool(pool: str) -> str:
    if pool not in ("mean", "sum"):
        raise ValueError(f"pool={pool!r} must be 'mean', or 'sum' for targets that grow with the number of tokens")
    return pool


def _in_dimension(geo: Geometry | str, dim: int | None) -> Geometry:
    if isinstance(geo, str):
        return geometry(geo, 3 if dim is None else dim)
    if dim not in (None, geo.dim):
        raise ValueError(f"dim={dim!r} is not the dimension of the geometry that was given, {geo.dim}; leave dim out")
    return geo


def _per(per: str | Mapping[str, str], targets: list[str]) -> dict[str, str]:
    each = dict.fromkeys(targets, per) if isinstance(per, str) else dict(per)
    if set(each) != set(targets) or not set(each.values()) <= {"token", "sample"}:
        raise ValueError(f"per={per!r} must be 'token' or 'sample', for all targets or as {{name: ...}} for {targets}")
    return each
