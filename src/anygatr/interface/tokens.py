"""Named tensors checked and brought to one shape: tokens in front, columns last, padding harmless."""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

import torch
from torch import Tensor

from anygatr.interface.fields import Field, Inputs
from anygatr.spaces.coordinates import finite
from anygatr.spaces.embeddings.points import samples


@dataclass(frozen=True, eq=False)
class Tokens:
    """The fields of a batch, each (*tokens, columns), with what tells its samples apart.

    Dense batches have tokens (..., n) and perhaps a mask; packed ones have tokens (N,), the sample of each token and the
    offsets. Padding holds a copy of a real token of its sample, so that nothing computed from it is undefined.
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
            return cls._packed(shaped, offsets)
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
            first = mask.to(torch.uint8).argmax(-1, keepdim=True).unsqueeze(-1)
            for name, x in expanded.items():
                copies = x.gather(-2, first.expand(*first.shape[:-1], x.shape[-1]))
                expanded[name] = torch.where(mask.unsqueeze(-1), x, copies)
        return cls({name: finite(x, name) for name, x in expanded.items()}, mask)

    @classmethod
    def _packed(cls, shaped: dict[str, Tensor], offsets: Tensor) -> "Tokens":
        count = max(x.shape[0] for x in shaped.values())
        sample = samples(offsets, count)
        rows = {name: x[sample.to(x.device)] if x.shape[0] == len(offsets) - 1 != count else x for name, x in shaped.items()}
        for name, x in rows.items():
            if x.shape[:-1] != (count,):
                raise ValueError(
                    f"{name} has shape {tuple(x.shape)}; packed fields have one row per token ({count}) or per sample "
                    f"({len(offsets) - 1})"
                )
        return cls({name: finite(x, name) for name, x in rows.items()}, None, offsets.long(), sample)

    def origin(self, inputs: Inputs, rule: str | None) -> Tensor | None:
        """The origin of every token: "mean" of the first positions, weighted by a scalar field, or mean of a field's own."""
        if rule is None or not inputs.positional:
            return None
        name = rule if rule in inputs.positional else inputs.positional[0]
        points = inputs.positions(name, self.values[name])
        assert points is not None
        real = None if self.mask is None else self.mask.to(points)
        if rule in (name, "mean"):
            return inputs.geo.origin(points, real, self.offsets)
        weights = self.values[rule].squeeze(-1)
        return inputs.geo.origin(points, weights if real is None else weights * real, self.offsets)

    def pool(self, x: Tensor) -> Tensor:
        """The mean over the real tokens of each sample of x (*tokens, channels, blades)."""
        if self.sample is not None:
            count = torch.bincount(self.sample).to(x)[:, None, None]
            return x.new_zeros(len(count), *x.shape[1:]).index_add(0, self.sample.to(x.device), x) / count
        if self.mask is None:
            return x.mean(-3)
        real = self.mask.to(x)[..., None, None]
        return (x * real).sum(-3) / real.sum(-3)

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
    if not torch.compiler.is_compiling() and not bool(mask.any(-1).all()):
        empty = tuple(int(i) for i in (~mask.any(-1)).nonzero()[0])
        raise ValueError(f"mask leaves sample {empty} without a real token; drop that sample")
