"""The layers written once more for clarity alone: dense tensors, one einsum each, plain autograd, no plan.

Blade-major and on the blades of the stream as the layers, so that results compare directly.
"""

# axes: k i j blades, m maps, t tokens, c d channels, n q queries, h heads, f features
import torch
from torch import Tensor
from torch.nn import functional


def linear(layer, x: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """EquiLinear as the sum over all maps, scalars through the invariant blades."""
    maps = layer.geometry.linear_basis.tensor
    maps = layer.geometry.basis.of(maps / maps.flatten(1).norm(dim=1)[:, None, None]).to(x)
    y = torch.einsum("dcm,mki,i...c->k...d", layer.weight, maps, x)
    t = functional.linear(s, layer.s_to_s, layer.bias_s)
    for j, blade in enumerate(layer.invariant):
        one = functional.one_hot(torch.tensor(blade), len(x)).to(x).view(-1, *[1] * (x.dim() - 1))
        bias = 0 if layer.bias_mv is None else layer.bias_mv[j]
        y = y + one * (s @ layer.s_to_mv[j].T + bias)
        t = t + x[blade] @ layer.mv_to_s[j].T
    return y, t


def product(geo, name: str, x: Tensor, y: Tensor) -> Tensor:
    blades = geo.basis.leave.T  # (i, algebra's blades)
    table = (geo.algebra.product(name, blades[:, None], blades[None, :]) @ geo.basis.enter.T).to(x)  # (i, j, k)
    return torch.einsum("ijk,i...,j...->k...", table, x, y)


def bilinear(layer, x: Tensor, s: Tensor, reference: Tensor) -> tuple[Tensor, Tensor]:
    geo = layer.geometry
    factors = linear(layer.factors, x, s)[0].chunk(2 * len(geo.products), -1)
    branches = []
    for p, name in enumerate(geo.products):
        branch = product(geo, name, factors[2 * p], factors[2 * p + 1])
        odd = not geo.symmetry.is_equivariant(name) and geo.join_reference == "data"
        branches.append(branch * reference if odd else branch)
    return linear(layer.out, torch.cat(branches, -1), s)


def norm(geo, x: Tensor) -> Tensor:
    alg = geo.algebra
    blades = torch.tensordot(geo.basis.leave.to(x), x, 1).movedim(0, -1)
    if geo.norm in ("grade_abs", "balanced"):
        parts = [alg.grade(blades, k) for k in range(alg.n + 1)]
        size = sum(alg.inner(part, part).abs() for part in parts)
        if geo.norm == "balanced" and geo.o.any():
            size = size + geo.read(geo.carrier(blades)).square().sum(-1)
    elif geo.norm == "weight" and geo.o.any():
        size = geo.read(geo.carrier(blades)).square().sum(-1) + blades[..., 0].square()
    else:
        size = alg.inner(blades, blades)
        size = size if geo.norm == "inner" else size.abs()
    mean = size.mean(-1, keepdim=True)
    return x / (mean.clamp(min=geo.norm_eps) if geo.norm_form == "clamp" else mean.clamp(min=0) + geo.norm_eps).sqrt()


def gate(x: Tensor) -> Tensor:
    return functional.gelu(x[0], approximate="tanh") * x


def attend(layer, q, k, v, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Attention head by head, logit by logit; q, k, v are (multivectors, scalars) with tokens (batch, n)."""
    heads, (c, d) = layer.op.heads, layer.op.head
    out_x, out_s = [], []
    for h in range(heads):
        g = h if k[0].shape[-1] > c else 0  # one key head serves all, or each its own
        qx, qs = q[0][..., h * c : (h + 1) * c], q[1][..., h * d : (h + 1) * d]
        kx, vx = (t[0][..., g * c : (g + 1) * c] for t in (k, v))
        ks, vs = (t[1][..., g * d : (g + 1) * d] for t in (k, v))
        logits = torch.einsum("bqd,bnd->bqn", qs, ks)
        weights = iter(layer.log_weights)
        for feature in layer.op.features:
            weight = next(weights)[h].exp() if feature.learned else torch.ones(c).to(qx)
            logits = logits + torch.einsum("fbqc,fbnc,c->bqn", feature.query(qx), feature.key(kx), weight)
        logits = logits / (sum(f.size for f in layer.op.features) * c + d) ** 0.5
        if mask is not None:
            logits = logits.masked_fill(~mask[:, None, :], -torch.inf)
        weights_n = logits.softmax(-1)
        out_x.append(torch.einsum("bqn,kbnc->kbqc", weights_n, vx))
        out_s.append(torch.einsum("bqn,bnd->bqd", weights_n, vs))
    return torch.cat(out_x, -1), torch.cat(out_s, -1)


def block(layer, x: Tensor, s: Tensor, reference: Tensor) -> tuple[Tensor, Tensor]:
    geo, att = layer.geometry, layer.attention

    def normed(x: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        return norm(geo, x), functional.layer_norm(s, s.shape[-1:])

    qkv = linear(att.qkv, *normed(x, s))
    op = att.attend.op
    groups = (op.heads, op.key_heads, op.key_heads)
    widths = zip(*((op.head[0] * n, op.head[1] * n) for n in groups), strict=True)
    split = zip(*(t.split(list(width), -1) for t, width in zip(qkv, widths, strict=True)), strict=True)
    a, b = linear(att.out, *attend(att.attend, *split))
    x, s = x + a, s + b
    a, b = bilinear(layer.mlp.bilinear, *normed(x, s), reference)
    a, b = linear(layer.mlp.out, gate(a), functional.gelu(b))
    return x + a, s + b
