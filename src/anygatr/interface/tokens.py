"""Named tensors checked and brought to one shape: tokens in front, columns last, padding harmless."""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

import torch
from torch import Tensor

from anygatr.interface.fields import Field, Inputs
from anygatr.ops.shard import Shard
from anygatr.spaces.coordinates import finite, read_back, require
from anygatr.spaces.embeddings.points import (
    mean_of_samples,
    require_offsets,
    require_packed,
    samples,
    samples_unseen,
)


@dataclass(eq=False)
class Tokens:
    """The fields of a batch, each (*tokens, columns), with what tells its samples apart.

    Dense batches have tokens (..., n) and perhaps a mask; packed ones have tokens (N,), the sample of each token and the
    offsets, which are on the CPU once the checks have been read back. Padding holds a copy of a real token of its sample, so
    that nothing computed from it is undefined.
    """

    values: dict[str, Tensor]
    mask: Tensor | None = None
    offsets: Tensor | None = None
    sample: Tensor | None = None

    @classmethod
    def check(cls, inputs: Inputs, values: Mapping[str, Tensor], mask: Tensor | None, offsets: Tensor | None) -> "Tokens":
        """The tokens made of keyword arguments; a field with one row per sample is repeated for its tokens."""
        _check_names(inputs, values)
        if mask is not None and offsets is not None:
            raise ValueError("mask and offsets were both given; packed tokens have no padding, so leave out the mask")
        shaped = _with_columns(inputs, values)
        if offsets is not None and torch.compiler.is_exporting():
            raise ValueError("offsets cannot be exported: how tokens are grouped depends on the data; export with a mask")
        if offsets is not None:
            return cls._packed(inputs, shaped, offsets)
        try:
            tokens = torch.broadcast_shapes(*(x.shape[:-1] for x in shaped.values()))
        except RuntimeError:
            shapes = ", ".join(f"{name} {tuple(x.shape)}" for name, x in shaped.items())
            raise ValueError(
                f"the fields do not have the same tokens: {shapes}; use (..., n, columns), n = 1 for one row per sample"
            ) from None
        if not tokens or 0 in tokens:
            raise ValueError(f"the fields have tokens {tuple(tokens)}; a sample needs at least one, in (..., n, columns)")
        expanded = {name: x.expand(*tokens, x.shape[-1]) for name, x in shaped.items()}
        if mask is not None:
            _check_mask(mask, tokens)
            _some_in_each(mask)
            first = mask.to(torch.uint8).argmax(-1, keepdim=True).unsqueeze(-1)
            for name, x in expanded.items():
                copies = x.gather(-2, first.expand(*first.shape[:-1], x.shape[-1]))
                expanded[name] = torch.where(mask.unsqueeze(-1), x, copies)
        return cls(_checked(inputs, expanded), mask)

    @classmethod
    def _packed(cls, inputs: Inputs, shaped: dict[str, Tensor], offsets: Tensor) -> "Tokens":
        count, device = max(x.shape[0] for x in shaped.values()), next(iter(shaped.values())).device
        require_offsets(offsets)
        waits = offsets.device == device != torch.device("cpu") and len(offsets) > 1
        offsets = offsets.detach() if waits else offsets.detach().cpu()
        sample = samples_unseen(offsets, count) if waits else samples(offsets, count).to(device)
        rows = {name: x[sample] if x.shape[0] == len(offsets) - 1 != count else x for name, x in shaped.items()}
        for name, x in rows.items():
            if x.shape[:-1] != (count,):
                raise ValueError(
                    f"{name} has shape {tuple(x.shape)}; packed fields have one row per token ({count}) or per sample "
                    f"({len(offsets) - 1})"
                )
        tokens = cls(_checked(inputs, rows), None, offsets.long(), sample)
        if waits:
            read_back(offsets, tokens._take_offsets)
        return tokens

    def _take_offsets(self, offsets: Tensor) -> None:
        assert self.sample is not None
        require_packed(offsets, len(self.sample))
        self.offsets = offsets

    def origin(self, inputs: Inputs, rule: str | None, shard: Shard | None = None) -> Tensor | None:
        """The origin of every token: "mean" of the first positions, weighted by a scalar field, or mean of a field's own.

        With a `shard`, of the tokens of all processes.
        """
        if rule is None or not inputs.positional:
            return None
        name = rule if rule in inputs.positional else inputs.positional[0]
        points = inputs.positions(name, self.values[name])
        assert points is not None
        real = None if self.mask is None else self.mask.to(points)
        weights = None if rule in (name, "mean") else self.values[rule].squeeze(-1)
        weights = real if weights is None else weights if real is None else weights * real
        if shard is None:
            count = 0 if self.offsets is None else len(self.offsets) - 1
            return mean_of_samples(inputs.geo, points, weights, self.sample, count)
        wide = torch.ones_like(points[..., :1]) if weights is None else weights.unsqueeze(-1)
        total = shard.sum((torch.cat([points, torch.ones_like(wide)], -1).double() * wide).sum(-2, keepdim=True))
        return (total[..., :-1] / total[..., -1:]).to(points)

    def pool(self, x: Tensor, pool: str = "mean", shard: Shard | None = None) -> Tensor:
        """The mean, or the sum, over the real tokens of each sample of x (*tokens, channels, blades)."""
        if shard is not None:
            real = torch.ones_like(x[..., :1, :1]) if self.mask is None else self.mask.to(x)[..., None, None]
            total, count = shard.sum((x * real).sum(-3)), shard.sum(real.sum(-3))
            return total / count if pool == "mean" else total
        if self.sample is not None and self.offsets is not None:
            count = self.offsets.diff().to(x)[:, None, None]
            total = x.new_zeros(len(count), *x.shape[1:]).index_add(0, self.sample, x)
            return total / count if pool == "mean" else total
        if self.mask is None:
            return x.mean(-3) if pool == "mean" else x.sum(-3)
        real = self.mask.to(x)[..., None, None]
        total = (x * real).sum(-3)
        return total / real.sum(-3) if pool == "mean" else total

    def of_samples(self, origin: Tensor | None) -> Tensor | None:
        """The origin of each sample instead of each token."""
        if origin is None:
            return None
        return origin.squeeze(-2) if self.offsets is None else origin[self.offsets[:-1]]


def _check_names(inputs: Inputs, values: Mapping[str, Tensor]) -> None:
    names = [field.name for field in inputs.fields]
    for name in values:
        if name not in names:
            near = get_close_matches(name, names, n=1, cutoff=0.5)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"there is no input field {name!r}{hint} This model takes {', '.join(names)}")
    missing = [name for name in names if values.get(name) is None]
    if missing:
        raise ValueError(f"input field {missing[0]!r} is missing; this model takes {', '.join(names)}")


def _with_columns(inputs: Inputs, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Every field as (*tokens, columns): fields of one number per token may come without the last axis."""
    floats = next((x.dtype for x in values.values() if isinstance(x, Tensor) and x.is_floating_point()), torch.float32)
    values = {field.name: _codes(field, values[field.name], floats) for field in inputs.fields}
    rows = [(field, _floating(field.name, values[field.name]), field.columns(inputs.geo)) for field in inputs.fields]
    wide = [x.dim() for _, x, size in rows if size > 1]
    bare = not wide and not all(x.dim() and x.shape[-1] == 1 for _, x, _ in rows)
    rank = max(wide, default=0) or max(x.dim() for _, x, _ in rows) + bare
    out = {}
    for field, x, size in rows:
        x = x.unsqueeze(-1) if size == 1 and x.dim() == rank - 1 else x
        if x.dim() < 1 or x.shape[-1] != size:
            raise ValueError(_wrong_size(field, x, size))
        if x.dim() != rank:
            raise ValueError(
                f"{field.name} has shape {tuple(x.shape)}; the other fields have {rank} axes: (..., n, columns)"
            )
        out[field.name] = x
    return out


def _codes(field: Field, x: Tensor, dtype: torch.dtype) -> Tensor:
    """Codes, which may be integers, in the floating point of the other fields."""
    return x.to(dtype) if field.is_coded and isinstance(x, Tensor) and not x.is_complex() else x


def _checked(inputs: Inputs, values: dict[str, Tensor]) -> dict[str, Tensor]:
    """The values themselves, once they are known to be finite, and codes to be those of classes."""
    found = {name: finite(x, name) for name, x in values.items()}
    for field in inputs.fields:
        if field.is_coded:
            _check_codes(field, found[field.name])
    return found


def _check_codes(field: Field, x: Tensor) -> None:
    def wrong() -> Tensor:
        return (x != x.round()) | (x < 0) | (x >= field.count)

    def error() -> ValueError:
        return ValueError(
            f"{field.name} has the category {x[wrong()][0].item():g}; it was declared with {field.count} classes, the codes "
            f"0 to {field.count - 1}"
        )

    require(lambda: ~wrong().any(), error)


def _wrong_size(field: Field, x: Tensor, size: int) -> str:
    kind = field.kind if field.count == 1 else f"{field.count} x {field.kind}"
    optional = " (or without that axis)" if size == 1 else ""
    return f"{field.name} has shape {tuple(x.shape)}; {kind} has {size} columns on the last axis{optional}"


def _floating(name: str, x: Tensor) -> Tensor:
    if not isinstance(x, Tensor) or not x.is_floating_point():
        found = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"{name} is {found}; pass a floating point tensor, e.g. torch.as_tensor({name}).double()")
    return x


def _check_mask(mask: Tensor, tokens: torch.Size | tuple[int, ...]) -> None:
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        found = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise ValueError(f"mask is {found}; it must be torch.bool, True for real tokens: use mask.bool()")
    if mask.shape != torch.Size(tokens):
        raise ValueError(f"mask has shape {tuple(mask.shape)}; the tokens have {tuple(tokens)}")


def _some_in_each(mask: Tensor) -> None:
    def error() -> ValueError:
        empty = tuple(int(i) for i in (~mask.any(-1)).nonzero()[0])
        return ValueError(f"mask leaves sample {empty} without a real token; drop that sample")

    require(lambda: mask.any(-1).all(), error)
