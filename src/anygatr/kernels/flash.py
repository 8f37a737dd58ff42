"""Attention of dense batches without storing all logits, with a derivative of any order."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from anygatr.kernels.function import Function
from anygatr.kernels.second import gradients

# axes: b batch, h heads, n queries, m keys, f features
aten = torch.ops.aten
SUBNORMAL = 1e-30


def explicit(
    q: Float[Tensor, "b h n f"],
    k: Float[Tensor, "b h m f"],
    v: Float[Tensor, "b h m w"],
    scale: float,
    mask: Float[Tensor, "b 1 1 m"] | None,
) -> Float[Tensor, "b h n w"]:
    """Attention with its logits in memory; differentiable any number of times."""
    return weights(_logits(q, k, scale, mask)) @ v


def weights(logits: Float[Tensor, "b h n m"]) -> Float[Tensor, "b h n m"]:
    """softmax over keys; zero where it is subnormal, as for far keys: matrix products are slow on such numbers."""
    if torch.compiler.is_compiling():
        return functional.threshold(logits.softmax(-1), SUBNORMAL, 0.0)
    return _Weights.apply(logits)


def fits(k: Float[Tensor, "b h m f"]) -> bool:
    """Whether the logits are no larger than the queries: then storing them is cheap and fastest."""
    return k.shape[-2] <= k.shape[-1]


def fold(
    q: Float[Tensor, "b n h f"], k: Float[Tensor, "b m g f"], v: Float[Tensor, "b m g w"]
) -> tuple[Float[Tensor, "b g _ f"], Float[Tensor, "b g m f"], Float[Tensor, "b g m w"]]:
    """Heads before tokens. Heads that share keys become more queries: one matrix product instead of one per head."""
    q = q.flatten(1, 2).unsqueeze(1) if k.shape[2] == 1 else q.transpose(1, 2)
    return q, k.transpose(1, 2), v.transpose(1, 2)


def unfold(rows: Float[Tensor, "b g _ w"], heads: int) -> Float[Tensor, "b n h w"]:
    """Tokens before heads again."""
    return rows.transpose(1, 2) if rows.shape[1] == heads else rows.squeeze(1).unflatten(1, (-1, heads))


def flash(q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Tensor | None) -> Tensor:
    """The same in memory linear in tokens; differentiating twice falls back to `explicit`."""
    width = v.shape[-1]
    q, k, v = _equal_widths(q, k, v)
    if torch.compiler.is_compiling() or q.device.type != "cpu":
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)[..., :width]
    return _Flash.apply(q, k, v, mask, scale)[0][..., :width]


def forward(q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """The output and, of each query, the logarithm of the sum of exponentials, (b, h, n). No autograd."""
    if fits(k):
        logits = _logits(q, k, scale, mask)
        total = logits.logsumexp(-1)
        return functional.threshold((logits - total.unsqueeze(-1)).exp(), SUBNORMAL, 0.0).to(v.dtype) @ v, total
    width = v.shape[-1]
    q, k, v = _equal_widths(q, k, v)
    if q.device.type == "cpu":
        out, total = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, attn_mask=mask, scale=scale)
        return out[..., :width], total
    out = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    return out[..., :width], q.new_empty(q.shape[:-1])


def backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, total: Tensor, scale: float, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v from what `forward` returned. No autograd."""
    if fits(k):
        p = functional.threshold((_logits(q, k, scale, mask) - total.unsqueeze(-1)).exp(), SUBNORMAL, 0.0).to(v.dtype)
        ds = p * (grad @ v.transpose(-2, -1) - (grad * out).sum(-1, keepdim=True)) * scale
        return ds @ k, ds.transpose(-2, -1) @ q, p.transpose(-2, -1) @ grad
    f, w = q.shape[-1], v.shape[-1]
    q, k, v, grad, out = _equal_widths(q, k, v, grad, out)
    if q.device.type == "cpu":
        gq, gk, gv = aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad, q, k, v, out, total, 0.0, False, attn_mask=mask, scale=scale
        )
    else:
        with torch.enable_grad():
            q, k, v = (t.detach().requires_grad_() for t in (q, k, v))
            again = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
            gq, gk, gv = torch.autograd.grad(again, (q, k, v), grad)
    return gq[..., :f], gk[..., :f], gv[..., :w]


class _Weights(Function):
    """Saves its result alone."""

    @staticmethod
    def forward(logits: Tensor) -> Tensor:
        return functional.threshold(logits.softmax(-1), SUBNORMAL, 0.0, inplace=True)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (p,), (grad,) = ctx.saved_tensors, grads
        if torch.is_grad_enabled():
            return p * (grad - (p * grad).sum(-1, keepdim=True))
        return aten._softmax_backward_data(grad, p, -1, p.dtype)


class _Flash(Function):
    @staticmethod
    def forward(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> tuple[Tensor, Tensor]:
        return forward(q, k, v, scale, mask)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        q, k, v, mask, ctx.scale = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(q, k, v, mask, *output)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, mask, out, total = ctx.saved_tensors
        if torch.is_grad_enabled():
            return *gradients(lambda q, k, v: explicit(q, k, v, ctx.scale, mask), (q, k, v), grads[:1]), None, None
        return *backward(grads[0], q, k, v, out, total, ctx.scale, mask), None, None


def _logits(q: Tensor, k: Tensor, scale: float, mask: Tensor | None) -> Tensor:
    logits = q @ (k * scale).transpose(-2, -1)
    return logits if mask is None else logits + mask


def _equal_widths(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Pad the last axes with zeros to one width: the kernels without N^2 memory ask for it."""
    width = max(t.shape[-1] for t in tensors)
    return tuple(functional.pad(t, (0, width - t.shape[-1])) if t.shape[-1] < width else t for t in tensors)
