"""From blade-major channels to the rows that attention compares and mixes, one per token and head, and back."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from anygatr.features import Distance, Feature, Inner
from anygatr.kernels import native
from anygatr.kernels.plans import recall, remember
from anygatr.kernels.second import gradients

# axes: k blades, n tokens, h heads, c channels of a head, f numbers of a row


class Role(NamedTuple):
    """How `heads` heads of the channels become rows: each feature for all channels of the head, then the head's scalars.

    `key` takes the key's side of the features. `learned` features are multiplied by a weight for each head and channel.
    """

    features: tuple[Feature, ...]
    heads: int
    key: bool

    @property
    def size(self) -> int:
        """Numbers per channel."""
        return sum(feature.size for feature in self.features)

    @property
    def learned(self) -> int:
        """How many features have weights."""
        return 0 if self.key else sum(feature.learned for feature in self.features)

    @property
    def native(self) -> bool:
        """Whether all features are ones that C can be generated for."""
        return all(type(feature) in EMITTERS for feature in self.features)


class Roles(NamedTuple):
    """Roles that take their channels one after another."""

    roles: tuple[Role, ...]
    key: str

    @classmethod
    def of(cls, *roles: Role) -> "Roles":
        """Remember them for compiled code."""
        return cls(roles, remember(roles, ("roles", roles)))


def all_blades(blades: int, heads: int) -> Role:
    """The role of values: every blade as it is."""
    return Role((Inner(tuple(range(blades)), (1.0,) * blades),), heads, True)


def rows(
    x: Float[Tensor, "k *tokens c_all"],
    s: Float[Tensor, "*tokens s_all"],
    weights: Float[Tensor, "w h c"],
    roles: Roles,
) -> tuple[Float[Tensor, "*tokens h f"], ...]:
    """The rows of each role; `weights` are those of the learned features of the first."""
    tokens = x.shape[1:-1]
    x, s = x.flatten(1, -2), s.flatten(0, -2)
    known = all(role.native for role in roles.roles)
    if known and torch.compiler.is_compiling() and not torch.compiler.is_exporting():
        out = tuple(_rows(x, s, weights, roles.key))
    elif known and native.applies(x, s, weights):
        out = _Rows.apply(x, s, weights, x[_read(roles.roles)], roles.roles)
    else:
        out = clear(x, s, weights, roles.roles)
    return tuple(t.unflatten(0, tokens) for t in out)


def channels(
    out: Float[Tensor, "*tokens h f"], roles: Roles, blades: int, width: tuple[int, int]
) -> tuple[Float[Tensor, "k *tokens h*c"], Float[Tensor, "*tokens h*s"]]:
    """The inverse of the rows of `all_blades`; `width` has the multivector and scalar channels of a head."""
    tokens = out.shape[:-2]
    out = out.flatten(0, -3)
    if torch.compiler.is_compiling() and not torch.compiler.is_exporting():
        x, s = _channels(out, roles.key, blades, *width)
    elif native.applies(out):
        x, s = _Channels.apply(out, roles, blades, width)
    else:
        x, s = out.split([blades * width[0], width[1]], -1)
        x, s = x.unflatten(-1, (blades, width[0])).movedim(-2, 0).flatten(-2), s.flatten(-2)
    return x.unflatten(1, tokens), s.unflatten(0, tokens)


def clear(x: Tensor, s: Tensor, weights: Tensor, roles: Sequence[Role]) -> tuple[Tensor, ...]:
    """The same from torch operations, for any feature, differentiable any number of times."""
    out = []
    heads = sum(role.heads for role in roles)
    mv, scalars = x.shape[-1] // heads, s.shape[-1] // heads
    xs = x.split([role.heads * mv for role in roles], -1)
    ss = s.split([role.heads * scalars for role in roles], -1)
    for role, x_r, s_r in zip(roles, xs, ss, strict=True):
        parts, learned = [], 0
        for feature in role.features:
            part = feature.key(x_r) if role.key else feature.query(x_r)
            part = part.unflatten(-1, (role.heads, mv)).movedim(0, -2).flatten(-2)
            if feature.learned and not role.key:
                part = part * weights[learned].repeat(1, feature.size)
                learned += 1
            parts.append(part)
        out.append(torch.cat([*parts, s_r.unflatten(-1, (role.heads, scalars))], -1))
    return tuple(out)


class _Rows(torch.autograd.Function):
    """Keeps only the blades that its derivative reads; they come as an input of their own to be differentiated again."""

    @staticmethod
    def forward(x: Tensor, s: Tensor, weights: Tensor, read: Tensor, roles: tuple[Role, ...]) -> tuple[Tensor, ...]:
        return tuple(_forward(x, s, weights, roles))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        x, s, weights, read, ctx.roles = inputs
        ctx.shapes = x.shape, s.shape
        ctx.save_for_backward(weights, read)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (weights, read), roles, (shape, shape_s) = ctx.saved_tensors, ctx.roles, ctx.shapes
        blades = _read(roles)
        if not torch.is_grad_enabled():
            x = read.new_empty(shape)
            x[blades] = read
            return *_backward(grads, x, read.new_empty(shape_s), weights, roles), None, None
        # where the rows are linear in the channels, only the shape of these matters
        x, s = (read.new_zeros(size, requires_grad=True) for size in (shape, shape_s))
        x = x.index_copy(0, torch.tensor(blades, device=x.device, dtype=torch.int64), read)
        found = gradients(lambda x, s, w: clear(x, s, w, roles), (x, s, weights), grads)
        return *(g if needed else None for g, needed in zip(found, ctx.needs_input_grad, strict=False)), None, None


class _Channels(torch.autograd.Function):
    @staticmethod
    def forward(out: Tensor, roles: Roles, blades: int, width: tuple[int, int]) -> tuple[Tensor, Tensor]:
        return _split(out, roles.roles[0], blades, width)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.roles = inputs[1]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, s = grads
        return rows(x, s, x.new_empty(0), ctx.roles)[0], None, None, None


@torch.library.custom_op("anygatr::rows", mutates_args=())
def _rows(x: Tensor, s: Tensor, weights: Tensor, key: str) -> list[Tensor]:
    call = _forward if native.applies(x, s, weights) else clear
    return list(call(x, s, weights, recall(key)))


@_rows.register_fake
def _(x: Tensor, s: Tensor, weights: Tensor, key: str) -> list[Tensor]:
    return _empty_rows(x, s, recall(key))


@torch.library.custom_op("anygatr::rows_backward", mutates_args=())
def _rows_backward(grads: list[Tensor], x: Tensor, s: Tensor, weights: Tensor, key: str) -> tuple[Tensor, Tensor, Tensor]:
    if native.applies(x, s, weights):
        return _backward(grads, x, s, weights, recall(key))
    with torch.enable_grad():
        x, s, weights = (t.detach().requires_grad_() for t in (x, s, weights))
        found = torch.autograd.grad(clear(x, s, weights, recall(key)), (x, s, weights), grads, materialize_grads=True)
    return found[0], found[1], found[2]


@_rows_backward.register_fake
def _(grads: list[Tensor], x: Tensor, s: Tensor, weights: Tensor, key: str) -> tuple[Tensor, Tensor, Tensor]:
    return x.new_empty(x.shape), s.new_empty(s.shape), weights.new_empty(weights.shape)


def _save_rows(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, s, weights, ctx.key = inputs
    ctx.save_for_backward(x, s, weights)


def _differentiate_rows(ctx: Any, grads: list[Tensor]) -> tuple[Tensor | None, ...]:
    return *_rows_backward(grads, *ctx.saved_tensors, ctx.key), None


_rows.register_autograd(_differentiate_rows, setup_context=_save_rows)


@torch.library.custom_op("anygatr::channels", mutates_args=())
def _channels(out: Tensor, key: str, blades: int, mv: int, scalars: int) -> tuple[Tensor, Tensor]:
    if native.applies(out):
        return _split(out, recall(key)[0], blades, (mv, scalars))
    x, s = out.split([blades * mv, scalars], -1)
    x, s = x.unflatten(-1, (blades, mv)).movedim(-2, 0).flatten(-2), s.flatten(-2)
    return x.contiguous(), s.clone(memory_format=torch.contiguous_format)


@_channels.register_fake
def _(out: Tensor, key: str, blades: int, mv: int, scalars: int) -> tuple[Tensor, Tensor]:
    n, heads = out.shape[:2]
    return out.new_empty(blades, n, heads * mv), out.new_empty(n, heads * scalars)


def _save_channels(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.key = inputs[1]


def _differentiate_channels(ctx: Any, x: Tensor, s: Tensor) -> tuple[Tensor | None, ...]:
    return _rows(x, s, x.new_empty(0), ctx.key)[0], None, None, None, None


_channels.register_autograd(_differentiate_channels, setup_context=_save_channels)


def _forward(x: Tensor, s: Tensor, weights: Tensor, roles: tuple[Role, ...]) -> list[Tensor]:
    x, s, weights = x.contiguous(), s.contiguous(), weights.contiguous()
    out = _empty_rows(x, s, roles)
    for place, role, target in zip(_places(roles), roles, out, strict=True):
        _run("rows", (x, s, weights, target), role, place, x, s, _head(x, s, roles))
    return out


def _backward(
    grads: Sequence[Tensor], x: Tensor, s: Tensor, weights: Tensor, roles: tuple[Role, ...]
) -> tuple[Tensor, Tensor, Tensor]:
    x, s, weights = x.contiguous(), s.contiguous(), weights.contiguous()
    grad_x, grad_s = torch.empty_like(x), torch.empty_like(s)
    grad_weights = weights.new_zeros(native.threads(x[0].numel()), *weights.shape)  # a sum for each thread
    for place, role, grad in zip(_places(roles), roles, grads, strict=True):
        pointers = (x, weights, grad.contiguous(), grad_x, grad_s, grad_weights)
        _run("rows_backward", pointers, role, place, x, s, _head(x, s, roles))
    return grad_x, grad_s, grad_weights.sum(0)


def _split(out: Tensor, role: Role, blades: int, width: tuple[int, int]) -> tuple[Tensor, Tensor]:
    x = out.new_empty(blades, len(out), role.heads * width[0])
    s = out.new_empty(len(out), role.heads * width[1])
    _run("rows_backward", (x, x, out.contiguous(), x, s, x), role, 0, x, s, width)  # linear, so it reads no x
    return x, s


def _empty_rows(x: Tensor, s: Tensor, roles: tuple[Role, ...]) -> list[Tensor]:
    mv, scalars = _head(x, s, roles)
    return [x.new_empty(x.shape[1], role.heads, role.size * mv + scalars) for role in roles]


def _read(roles: Sequence[Role]) -> list[int]:
    """The blades whose values the derivative of the rows depends on."""
    return sorted({blade for role in roles for feature in role.features for blade in NONLINEAR[type(feature)](feature)})


def _head(x: Tensor, s: Tensor, roles: Sequence[Role]) -> tuple[int, int]:
    """The channels of a head."""
    heads = sum(role.heads for role in roles)
    return x.shape[-1] // heads, s.shape[-1] // heads


def _places(roles: Sequence[Role]) -> list[int]:
    """How many heads come before each role's."""
    return [sum(role.heads for role in roles[:i]) for i in range(len(roles))]


def _run(
    name: str, tensors: tuple[Tensor, ...], role: Role, place: int, x: Tensor, s: Tensor, width: tuple[int, int]
) -> None:
    source = _source(role.features, role.key, len(x), width[0], native.REALS[x.dtype])
    run = native.function(source, name, len(tensors), 8)
    sizes = (x.shape[1], x.shape[2], place * width[0], role.heads, s.shape[1], place * width[1], width[1])
    run(*(t.data_ptr() for t in tensors), *sizes, native.threads(x[0].numel()))


@lru_cache(maxsize=64)
def _source(features: tuple[Feature, ...], key: bool, blades: int, width: int, real: str) -> str:
    """C for both directions, head by head."""
    forward = backward = ""
    place = learned = 0
    begun: set[int] = set()
    for feature in features:
        weight = f"w[({learned} * heads + h) * C + i]" if feature.learned and not key else "1"
        there, back = EMITTERS[type(feature)](feature, key, place, weight, begun, real)
        forward, backward = forward + there, backward + back
        place += feature.size
        learned += feature.learned
    backward = "".join(f"gx[{b} * K + i] = 0;\n" for b in range(blades) if b not in begun) + backward
    sizes = "long n, long X, long first, long heads, long S, long first_s, long scalars, long threads"
    return f"""
#include <omp.h>
#define C {width}
#define EACH for (int i = 0; i < C; i++)
static inline void row(const {real} *restrict x, const {real} *restrict w, {real} *restrict o, long K, long heads, long h) {{
    EACH {{ {forward} }}
}}
static inline void row_backward(const {real} *restrict x, const {real} *restrict w, const {real} *restrict g,
                                {real} *restrict gx, {real} *restrict gw, long K, long heads, long h) {{
    EACH {{ {backward} }}
}}
void rows(const {real} *x, const {real} *s, const {real} *w, {real} *o, {sizes}) {{
    long F = {place} * C + scalars;
    #pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (long t = 0; t < n; t++) for (long h = 0; h < heads; h++) {{
        {real} *out = o + (t * heads + h) * F;
        row(x + t * X + first + h * C, w, out, n * X, heads, h);
        const {real} *from = s + t * S + first_s + h * scalars;
        for (long j = 0; j < scalars; j++) out[{place} * C + j] = from[j];
    }}
}}
void rows_backward(const {real} *x, const {real} *w, const {real} *g, {real} *gx, {real} *gs, {real} *gw, {sizes}) {{
    long F = {place} * C + scalars;
    #pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (long t = 0; t < n; t++) for (long h = 0; h < heads; h++) {{
        const {real} *in = g + (t * heads + h) * F;
        long at = t * X + first + h * C;
        row_backward(x + at, w, in, gx + at, gw + omp_get_thread_num() * {learned} * heads * C, n * X, heads, h);
        {real} *to = gs + t * S + first_s + h * scalars;
        for (long j = 0; j < scalars; j++) to[j] = in[{place} * C + j];
    }}
}}
"""


def _inner(feature: Inner, key: bool, place: int, weight: str, begun: set[int], real: str) -> tuple[str, str]:
    forward = backward = ""
    for j, (blade, sign) in enumerate(zip(feature.blades, feature.signs, strict=True)):
        factor = sign if key else 1.0
        forward += f"o[{place + j} * C + i] = {factor} * x[{blade} * K + i];\n"
        backward += f"gx[{blade} * K + i] {_assign(blade, begun)} {factor} * g[{place + j} * C + i];\n"
    return forward, backward


def _distance(feature: Distance, key: bool, place: int, weight: str, begun: set[int], real: str) -> tuple[str, str]:
    """With u = w / (w^2 + eps), W = w u and P = p u: (|P|^2, W^2, W P) of a query, (-W^2, -|P|^2, 2 W P) of a key."""
    axes = range(len(feature.coordinates))
    o = [f"o[{place + j} * C + i]" for j in range(feature.size)]
    g = [f"(m * g[{place + j} * C + i])" for j in range(feature.size)]
    common = f"{real} m = {weight}, v = x[{feature.weight} * K + i], u = v / (v * v + ({real}){feature.eps}), W = v * u;\n"
    for j, (blade, sign) in enumerate(zip(feature.coordinates, feature.signs, strict=True)):
        common += f"{real} p{j} = {sign} * x[{blade} * K + i], P{j} = p{j} * u;\n"
    common += f"{real} PP = {' + '.join(f'P{j} * P{j}' for j in axes)};\n"
    values = ["-W * W", "-PP", *(f"2 * W * P{j}" for j in axes)] if key else ["PP", "W * W", *(f"W * P{j}" for j in axes)]
    forward = "".join(f"{target} = m * ({value});\n" for target, value in zip(o, values, strict=True))
    cross = " + ".join(f"P{j} * {g[2 + j]}" for j in axes)
    if key:
        slopes = [f"-2 * W * {g[0]} + 2 * ({cross})"] + [f"-2 * P{j} * {g[1]} + 2 * W * {g[2 + j]}" for j in axes]
    else:
        slopes = [f"2 * W * {g[1]} + {cross}"] + [f"2 * P{j} * {g[0]} + W * {g[2 + j]}" for j in axes]
    backward = f"{real} dW = {slopes[0]}, du = v * dW;\n"
    for j, slope in enumerate(slopes[1:]):
        backward += f"{real} d{j} = {slope}; du += p{j} * d{j};\n"
    down = f"(v * v + ({real}){feature.eps})"
    bend = f"(({real}){feature.eps} - v * v) / ({down} * {down})"
    backward += f"gx[{feature.weight} * K + i] {_assign(feature.weight, begun)} u * dW + {bend} * du;\n"
    for j, (blade, sign) in enumerate(zip(feature.coordinates, feature.signs, strict=True)):
        backward += f"gx[{blade} * K + i] {_assign(blade, begun)} {sign} * u * d{j};\n"
    if weight != "1":
        total = " + ".join(f"g[{place + j} * C + i] * ({value})" for j, value in enumerate(values))
        backward += f"{weight.replace('w[', 'gw[')} += {total};\n"
    return f"{{ {common}{forward} }}\n", f"{{ {common}{backward} }}\n"


def _assign(blade: int, begun: set[int]) -> str:
    """Write a blade's gradient the first time, add to it later."""
    operator = "+=" if blade in begun else "="
    begun.add(blade)
    return operator


EMITTERS: dict[type, Any] = {Inner: _inner, Distance: _distance}
NONLINEAR: dict[type, Any] = {Inner: lambda feature: (), Distance: lambda feature: (feature.weight, *feature.coordinates)}
