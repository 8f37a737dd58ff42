"""Softmax attention of dense batches: logits in memory where they are few, else torch's kernels without N^2 memory."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from anygatr.ops.torch_state import transformed

# axes: b batch, h heads, g key heads, n queries, m keys, f features
aten = torch.ops.aten
SUBNORMAL = 1e-30
VECTOR = 8  # 16-bit numbers in the 16 bytes that a GPU's kernels load at once


def attention(
    q: Float[Tensor, "*batch n h f"],
    k: Float[Tensor, "*batch m g f"],
    v: Float[Tensor, "*batch m g w"],
    scale: float,
    mask: Bool[Tensor, "*batch m"] | None = None,
) -> Float[Tensor, "*batch n h w"]:
    """softmax over keys of (scale q.k) applied to v; one key head (g = 1) serves all query heads, else g = h.

    `mask` is True for real keys.
    """
    batch, (n, heads), width = q.shape[:-3], q.shape[-3:-1], v.shape[-1]
    q, k, v = (t.reshape(-1, *t.shape[-3:]) for t in (q, k, v))
    added = None if mask is None else additive(mask.reshape(-1, 1, 1, k.shape[1]), q)
    return unfold(folded_attention(*fold(q, k, v), scale, added), heads).reshape(*batch, n, heads, width)


def folded_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Tensor | None) -> Float[Tensor, "b h n w"]:
    """Attention of (b, h, n, f) with an additive mask, by whichever way is fastest for its size."""
    if torch.compiler.is_compiling():  # a branch on the number of tokens would be a guard on it
        return _by_torch(q, k, v, scale, mask)
    if k.shape[-2] <= k.shape[-1]:  # the logits are no larger than the queries
        return explicit(q, k, v, scale, mask)
    return flash(q, k, v, scale, mask)


def explicit(q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Tensor | None) -> Float[Tensor, "b h n w"]:
    """Attention with its logits in memory; differentiable any number of times."""
    weights = _logits(q, k, scale, mask).softmax(-1)
    # far keys have subnormal weights, on which matrix products are slow
    return functional.threshold(weights, SUBNORMAL, 0.0) @ v


def flash(q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Tensor | None) -> Tensor:
    """The same in memory linear in tokens. Differentiating twice falls back to `explicit`."""
    if q.device.type != "cpu":
        fast, slow = (lambda q, k, v, way=way: way(q, k, v, scale, mask) for way in (_by_torch, explicit))
        return twice_differentiable(fast, slow, q, k, v)
    width = v.shape[-1]
    return _Flash.apply(*equal_widths(q, k, v), mask, scale)[0][..., :width]


def gradients(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v in `folded_attention`, for operators inside which autograd does not record."""
    if k.shape[-2] > k.shape[-1] and q.device.type == "cpu":
        f, w = q.shape[-1], v.shape[-1]
        q, k, v, grad = equal_widths(q, k, v, grad)
        out, total = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, attn_mask=mask, scale=scale)
        gq, gk, gv = aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad, q, k, v, out, total, 0.0, False, attn_mask=mask, scale=scale
        )
        return gq[..., :f], gk[..., :f], gv[..., :w]
    p = functional.threshold(_logits(q, k, scale, mask).softmax(-1), SUBNORMAL, 0.0)
    dp = grad @ v.transpose(-2, -1)
    ds = p * (dp - (p * dp).sum(-1, keepdim=True)) * scale
    return ds @ k, ds.transpose(-2, -1) @ q, p.transpose(-2, -1) @ grad


def fold(
    q: Float[Tensor, "b n h f"], k: Float[Tensor, "b m g f"], v: Float[Tensor, "b m g w"]
) -> tuple[Float[Tensor, "b g _ f"], Float[Tensor, "b g m f"], Float[Tensor, "b g m w"]]:
    """Heads before tokens. Heads that share keys become more queries: one matrix product instead of one per head."""
    q = q.flatten(1, 2).unsqueeze(1) if k.shape[2] == 1 else q.transpose(1, 2)
    return q, k.transpose(1, 2), v.transpose(1, 2)


def unfold(rows: Float[Tensor, "b g _ w"], heads: int) -> Float[Tensor, "b n h w"]:
    """Tokens before heads again."""
    return rows.transpose(1, 2) if rows.shape[1] == heads else rows.squeeze(1).unflatten(1, (-1, heads))


def attended(mask: Bool[Tensor, "*b m"]) -> Bool[Tensor, "*b m"]:
    """The keys that take part: a sample of nothing but padding attends to all of it, not to NaN."""
    return mask | ~mask.any(-1, keepdim=True)


def additive(mask: Bool[Tensor, "b 1 1 m"], like: Tensor) -> Float[Tensor, "b 1 1 m"]:
    """0 for keys that take part, minus infinity for others."""
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill(~attended(mask), -torch.inf)


Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


def twice_differentiable(fast: Attend, slow: Attend, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """fast(q, k, v), whose gradient cannot be differentiated, with the second derivatives of slow(q, k, v)."""
    recorded = torch.is_grad_enabled() and any(t.requires_grad for t in (q, k, v))
    if not recorded or torch.compiler.is_compiling() or transformed([q, k, v]):
        return fast(q, k, v)
    return _Twice.apply(fast, slow, q, k, v)


class _Twice(torch.autograd.Function):
    """Keeps the graph of the fast way, which may be any kernel that torch chooses, and runs it backwards."""

    @staticmethod
    def forward(ctx: Any, fast: Attend, slow: Attend, *tensors: Tensor) -> Tensor:
        with torch.enable_grad():
            ctx.inputs = [t.detach().requires_grad_(t.requires_grad) for t in tensors]
            ctx.output, ctx.slow = fast(*ctx.inputs), slow
        ctx.save_for_backward(*tensors)
        return ctx.output.detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            nodes = [t.view_as(t) for t in ctx.saved_tensors]
            output = ctx.slow(*nodes)
        else:
            nodes, output = ctx.inputs, ctx.output
        asked = [t for t in nodes if t.requires_grad]
        # kept, because who differentiates the outer graph again differentiates this one again
        found = iter(torch.autograd.grad(output, asked, grad, retain_graph=True, create_graph=torch.is_grad_enabled()))
        return None, None, *(next(found) if t.requires_grad else None for t in nodes)


class _Flash(torch.autograd.Function):
    """torch's CPU kernel, which has no second derivative, with that of `explicit`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> tuple[Tensor, Tensor]:
        return aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, attn_mask=mask, scale=scale)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        q, k, v, mask, ctx.scale = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(q, k, v, mask, *output)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, mask, out, total = ctx.saved_tensors
        if torch.is_grad_enabled():
            q, k, v = (t.view_as(t) for t in (q, k, v))
            again = explicit(q, k, v, ctx.scale, mask)
            return *torch.autograd.grad(again, (q, k, v), grads[0], create_graph=True, materialize_grads=True), None, None
        found = aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grads[0].contiguous(), q, k, v, out, total, 0.0, False, attn_mask=mask, scale=ctx.scale
        )
        return *found, None, None


def _by_torch(q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Tensor | None) -> Tensor:
    width = v.shape[-1]
    q, k, v = equal_widths(q, k, v)
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)[..., :width]


def _logits(q: Tensor, k: Tensor, scale: float, mask: Tensor | None) -> Tensor:
    logits = q @ (k * scale).transpose(-2, -1)
    return logits if mask is None else logits + mask


def equal_widths(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Pad the last axes with zeros to one width: the kernels without N^2 memory ask for it, on GPUs for whole vectors."""
    width = max(t.shape[-1] for t in tensors)
    width += 0 if tensors[0].device.type == "cpu" else -width % VECTOR
    return tuple(functional.pad(t, (0, width - t.shape[-1])) if t.shape[-1] < width else t for t in tensors)
