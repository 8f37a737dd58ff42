"""The border of the networks: check what the user passes, and turn `(..., n, c, k)` into `(k, ..., n, c)` and back."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from anygatr.nn.width import Width
from anygatr.ops.precision import without_autocast
from anygatr.spaces.coordinates import require
from anygatr.spaces.geometry import Geometry


def enter(
    x: Float[Tensor, "*tokens c k"],
    s: Float[Tensor, "*tokens c_s"] | None,
    geometry: Geometry,
    width: Width,
    weight: Tensor,
    axes: int = 1,
    names: tuple[str, str] = ("x", "s"),
) -> tuple[Float[Tensor, "k *tokens c"], Float[Tensor, "*tokens c_s"]]:
    """Check shapes and type, that of the network's `weight`, and go blade-major; missing scalars become zeros."""
    label, label_s = names
    if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
        short = str(weight.dtype).removeprefix("torch.")
        raise ValueError(
            f"{label} has dtype {x.dtype}, the network's weights {weight.dtype}; pass {label}.to(torch.{short})"
        )
    alg = geometry.algebra
    if x.dim() < 2 + axes or x.shape[-1] != alg.dim:
        raise ValueError(
            f"{label} has shape {tuple(x.shape)}; {alg} has {alg.dim} blades, so pass (..., tokens, channels, {alg.dim}), "
            f"e.g. geo.embed_point(points).unsqueeze(-2)"
        )
    if x.shape[-2] != width.mv:
        raise ValueError(
            f"{label} has {x.shape[-2]} multivector channels (shape {tuple(x.shape)}); the network has {width.mv}"
        )
    if s is None:
        s = x.new_zeros(*x.shape[:-2], width.s)
    if s.shape[:-1] != x.shape[:-2]:
        raise ValueError(
            f"{label_s} has shape {tuple(s.shape)}, but {label} has tokens {tuple(x.shape[:-2])}; pass {label_s} as "
            f"{(*x.shape[:-2], width.s)}"
        )
    if s.shape[-1] != width.s:
        raise ValueError(f"{label_s} has {s.shape[-1]} scalar channels (shape {tuple(s.shape)}); the network has {width.s}")
    return x.movedim(-1, 0).contiguous(), s.to(x.dtype)


def leave(
    x: Float[Tensor, "k *tokens c"], s: Float[Tensor, "*tokens c_s"], mask: Bool[Tensor, "*tokens"] | None = None
) -> tuple[Float[Tensor, "*tokens c k"], Float[Tensor, "*tokens c_s"]]:
    """Go blades-last; padding comes out zero."""
    if mask is not None:
        x, s = blank(x, s, mask)
    return x.movedim(0, -1), s


class ChangeOfBasis(nn.Module):
    """From the algebra's blades, on which users see multivectors, to those of the stream, and back.

    With `stored`, what comes in and goes out is on the blades of the stream already.
    """

    to_stream: Tensor | None
    to_algebra: Tensor | None

    def __init__(self, geometry: Geometry, stored: bool = False):
        super().__init__()
        basis = geometry.basis
        trivial = stored or basis.is_algebra
        self.register_buffer("to_stream", None if trivial else basis.enter, persistent=False)
        self.register_buffer("to_algebra", None if trivial else basis.leave, persistent=False)

    def enter(self, x: Float[Tensor, "k *tokens c"]) -> Float[Tensor, "k *tokens c"]:
        """On the blades of the stream."""
        return _changed(x, self.to_stream)

    def leave(self, x: Float[Tensor, "k *tokens c"]) -> Float[Tensor, "k *tokens c"]:
        """On the algebra's blades."""
        return _changed(x, self.to_algebra)


def _changed(x: Float[Tensor, "k *tokens c"], matrix: Tensor | None) -> Float[Tensor, "k *tokens c"]:
    if matrix is None:
        return x
    with without_autocast(x):
        return torch.tensordot(matrix.to(x), x, 1)


def blank(
    x: Float[Tensor, "k *tokens c"], s: Float[Tensor, "*tokens c_s"], mask: Bool[Tensor, "*tokens"]
) -> tuple[Float[Tensor, "k *tokens c"], Float[Tensor, "*tokens c_s"]]:
    """Zeros at the padding, whatever was there, NaN included."""
    return torch.where(mask.unsqueeze(-1), x, 0), torch.where(mask.unsqueeze(-1), s, 0)


def channels(x: Float[Tensor, "*any c"], chosen: Sequence[int]) -> Float[Tensor, "*any r"]:
    """Some of the channels; a list as an index would be copied to the device in every call."""
    # not a slice: an empty one keeps the strides of x, on which compiled code would depend
    return torch.stack([x[..., c] for c in chosen], -1) if chosen else x.new_empty(*x.shape[:-1], 0)


def real(
    x: Float[Tensor, "k *tokens c"],
    s: Float[Tensor, "*tokens c_s"],
    mask: Bool[Tensor, "*tokens"] | None,
    offsets: Tensor | None,
) -> tuple[Float[Tensor, "k *tokens c"], Float[Tensor, "*tokens c_s"]]:
    """Zeros at the padding, once it is said in one way which tokens are real."""
    if mask is not None and offsets is not None:
        raise ValueError("mask and offsets are two ways to say which tokens are real; pass one")
    if mask is None:
        return x, s
    check_mask(mask, s.shape[:-1])
    return blank(x, s, mask)


def check_mask(mask: Bool[Tensor, "*tokens"], tokens: torch.Size, name: str = "mask") -> None:
    """A mask has one boolean for each token."""
    if mask.dtype != torch.bool:
        raise ValueError(f"{name} has dtype {mask.dtype}; pass booleans, True for real tokens: {name}.bool()")
    if mask.shape != tokens:
        raise ValueError(f"{name} has shape {tuple(mask.shape)}; pass one entry per token: {tuple(tokens)}")


def example(
    geometry: Geometry, width: Width, tokens: tuple[int, ...], grades: tuple[int, ...] | None, like: Tensor
) -> tuple[Float[Tensor, "*tokens c k"], Float[Tensor, "*tokens c_s"]]:
    """Random inputs of a network, of the grades it was narrowed to."""
    x = like.new_empty(*tokens, width.mv, geometry.algebra.dim).normal_()
    for grade, blades in enumerate(geometry.algebra.slices):
        if grades is not None and grade not in grades:
            x[..., blades] = 0
    return x, like.new_empty(*tokens, width.s).normal_()


def check_grades(
    x: Float[Tensor, "k *tokens c"], geometry: Geometry, grades: tuple[int, ...] | None, name: str = "x"
) -> None:
    """A narrowed network takes all other grades for zero; compiled code cannot look."""
    if grades is None:
        return
    dead = {grade: blades for grade, blades in enumerate(geometry.algebra.slices) if grade not in grades}

    def error() -> ValueError:
        grade = next(grade for grade, blades in dead.items() if bool(x[blades].any()))
        return ValueError(
            f"{name} has coefficients of grade {grade}, but the network was narrowed to inputs of grades {grades}; "
            f"narrow it with {grade} among them, or widen it: anygatr.reach.widen(net)"
        )

    if dead:
        require(lambda: ~torch.cat([x[blades] for blades in dead.values()]).any(), error)


def checked_offsets(offsets: Int[Tensor, " samples+1"], tokens: torch.Size) -> Int[Tensor, " samples+1"]:
    """The offsets on the CPU, where samples are planned, once they are known to cut the tokens into non-empty samples."""
    if torch.compiler.is_exporting():
        raise ValueError("offsets cannot be exported: how tokens are grouped depends on the data; export with a mask")
    if len(tokens) != 1:
        raise ValueError(
            f"offsets pack tokens into one axis, but x has tokens {tuple(tokens)}; pass x (N, c, k), s (N, c_s)"
        )
    if offsets.dim() != 1 or offsets.is_floating_point() or offsets.dtype == torch.bool or len(offsets) < 2:
        raise ValueError(f"offsets has shape {tuple(offsets.shape)} and dtype {offsets.dtype}; pass (B + 1,) integers")
    offsets = offsets.detach().to("cpu", torch.int64)
    ends = offsets.tolist()
    if ends[0] != 0 or ends[-1] != tokens[0]:
        raise ValueError(
            f"offsets run from {ends[0]} to {ends[-1]}; they must run from 0 to the number of tokens, {tokens[0]}"
        )
    for i, (start, stop) in enumerate(pairwise(ends)):
        if stop < start:
            raise ValueError(f"offsets[{i + 1}]={stop} is less than offsets[{i}]={start}; they must increase")
        if stop == start:
            raise ValueError(f"offsets: sample {i} is empty (both its ends are {start}); leave empty samples out")
    return offsets
