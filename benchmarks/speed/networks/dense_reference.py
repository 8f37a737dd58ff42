"""The network of a `GATr` in dense tensors: every map of the basis and every entry of a product's table, zeros included.

It shares the parameters of the network it is made from and gives the same outputs. Tokens first, the algebra's blades
last, plain autograd, the fastest of the dense forms we tried: one matrix product for all maps of a layer, one einsum for a
product (opt_einsum chooses the order), the attention of torch.
"""

# axes: k i j blades, m maps, c d channels, h heads, f features
import torch
from torch import Tensor, nn
from torch.nn import functional

from anygatr import GATr
from anygatr.nn import EquiLinear, GeometricBilinear
from anygatr.nn.attention import SelfAttention
from anygatr.ops.batch import join_reference

PLAIN = {"reinsert": (), "reinsert_s": (), "rope": False, "checkpoint": False, "inner_norm": False, "scalar_gelu": "exact"}


class DenseGATr(nn.Module):
    """The same function of (..., n, c, k) and (..., n, s), for networks without optional parts, masks and ragged batches."""

    maps: Tensor
    grades: Tensor

    def __init__(self, net: GATr):
        super().__init__()
        for option, value in PLAIN.items():
            if net.config[option] != value:
                raise ValueError(f"{option}={net.config[option]!r} is not part of the reference; use {value!r}")
        self.net, geo = net, net.geometry
        maps = geo.linear_basis.tensor
        like = net.linear_in.weight
        self.register_buffer("maps", (maps / maps.flatten(1).norm(dim=1)[:, None, None]).to(like), persistent=False)
        metric = geo.algebra.metric.to(like)
        by_grade = [metric * (geo.algebra.grades == grade) for grade in range(geo.algebra.n + 1)]
        signs = torch.stack(by_grade) if geo.norm == "grade_abs" else metric[None]
        self.register_buffer("grades", signs, persistent=False)
        eye = torch.eye(geo.algebra.dim, dtype=torch.float64)
        for name in geo.products:
            self.register_buffer(name, geo.algebra.product(name, eye[:, None], eye[None, :]).to(like), persistent=False)

    def forward(self, x: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        """Multivectors and scalars, as the network's."""
        number = join_reference(x.movedim(-1, 0), self.net.geometry)
        x, s = self.linear(self.net.linear_in, x, s)
        for block in self.net.blocks:
            a, b = self.attention(block.attention, *self.norm(x, s))
            x, s = x + a, s + b
            a, b = self.bilinear(block.mlp.bilinear, *self.norm(x, s), number)
            gate = functional.gelu(a[..., :1], approximate="tanh")
            a, b = self.linear(block.mlp.out, gate * a, functional.gelu(b))
            x, s = x + a, s + b
        return self.linear(self.net.linear_out, x, s)

    def linear(self, layer: EquiLinear, x: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        """All maps of all pairs of channels as one matrix; scalars through the invariant blades."""
        matrix = torch.einsum("dcm,mki->dkci", layer.weight, self.maps)
        y = functional.linear(x.flatten(-2), matrix.flatten(2).flatten(0, 1)).unflatten(-1, matrix.shape[:2])
        t = functional.linear(s, layer.s_to_s, layer.bias_s)
        for j, blade in enumerate(layer.invariant):
            bias = None if layer.bias_mv is None else layer.bias_mv[j]
            y[..., blade] += functional.linear(s, layer.s_to_mv[j], bias)
            t = t + functional.linear(x[..., blade], layer.mv_to_s[j])
        return y, t

    def bilinear(self, layer: GeometricBilinear, x: Tensor, s: Tensor, number: Tensor) -> tuple[Tensor, Tensor]:
        """The products of linear maps, those that are odd under mirrors times a number of the sample."""
        terms, out = layer.products.op.plan.terms, []
        factors = self.linear(layer.factors, x, s)[0].chunk(2 * len(terms), -2)
        for p, (name, term) in enumerate(zip(self.net.geometry.products, terms, strict=True)):
            product = torch.einsum("ijk,...i,...j->...k", getattr(self, name), factors[2 * p], factors[2 * p + 1])
            out.append(product * number.unsqueeze(-1) if term.odd else product)
        return self.linear(layer.out, torch.cat(out, -2), s)

    def norm(self, x: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        """Multivectors over their invariant size, scalars by mean and variance."""
        geo = self.net.geometry
        size = x.square() @ self.grades.T
        size = (size if geo.norm == "inner" else size.abs()).sum(-1, keepdim=True).mean(-2, keepdim=True)
        size = size.clamp(min=geo.norm_eps) if geo.norm_form == "clamp" else size.clamp(min=0) + geo.norm_eps
        return x * size.rsqrt(), functional.layer_norm(s, s.shape[-1:])

    def attention(self, layer: SelfAttention, x: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        """Features of queries and keys compared by torch's attention, keys and values repeated for every head."""
        attend = layer.attend
        groups = [attend.heads, attend.key_heads, attend.key_heads]
        x, s = self.linear(layer.qkv, x, s)
        (qx, kx, vx) = x.unflatten(-2, (sum(groups), -1)).split(groups, -3)  # (..., n, h, c, k)
        (qs, ks, vs) = s.unflatten(-1, (sum(groups), -1)).split(groups, -2)
        weights = iter(attend.log_weights)
        queries, keys = [qs], [ks]
        for feature in self.net.geometry.features:
            query, key = feature.query(qx.movedim(-1, 0)).movedim(0, -1), feature.key(kx.movedim(-1, 0)).movedim(0, -1)
            queries.append((query * next(weights).exp()[..., None] if feature.learned else query).flatten(-2))
            keys.append(key.flatten(-2))
        blades = vx.shape[-2:]
        q, k, v = torch.cat(queries, -1), torch.cat(keys, -1), torch.cat([vx.flatten(-2), vs], -1)
        out = self._attend(q, k, v)
        mixed, scalars = out.split([blades.numel(), vs.shape[-1]], -1)
        return self.linear(layer.out, mixed.unflatten(-1, blades).flatten(-3, -2), scalars.flatten(-2))

    @staticmethod
    def _attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        # equal widths and one key per head: without them torch stores all logits
        compared, mixed = q.shape[-1], v.shape[-1]
        width = max(compared, mixed)
        q, k = (functional.pad(t, (0, width - compared)) for t in (q, k))
        k, v = (t.expand(*q.shape[:-1], -1) for t in (k, functional.pad(v, (0, width - mixed))))
        q, k, v = (t.transpose(-2, -3) for t in (q, k, v))
        out = functional.scaled_dot_product_attention(q, k, v, scale=compared**-0.5)
        return out.transpose(-2, -3)[..., :mixed]
