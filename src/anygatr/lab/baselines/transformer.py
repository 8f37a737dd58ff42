"""The plain transformer: raw coordinates in, raw coordinates out, no symmetry and no centring."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from anygatr.lab.baselines.ragged import pad
from anygatr.lab.data.kinds import columns, encoded, encoded_width
from anygatr.lab.data.task import Task

NORMS = ("token", "sample")
"""Over the channels of each token, or over all tokens of a sample at once, as in official GATr's baseline before 1.4.2."""

EPS = 1e-5
"""Added to variances, as torch does."""


class Transformer(nn.Module):
    """Pre-norm transformer without positional encoding on the columns of all fields side by side.

    Norms have no parameters, attention is full multi-head, the MLP is twice as wide as the stream with an exact GELU, and
    weights start as PyTorch starts them.
    """

    def __init__(self, task: Task, channels: int, blocks: int, heads: int, norm: str = "token", pool: str = "mean"):
        super().__init__()
        if channels % heads:
            raise ValueError(f"heads={heads} must divide the {channels} channels; try s={heads * max(1, channels // heads)}")
        self.task, self.pool = task, pool
        self.sizes = [columns(kind, task.dim) for kind in task.targets.values()]
        self.linear_in = nn.Linear(sum(encoded_width(kind, task.dim) for kind in task.inputs.values()), channels)
        self.blocks = nn.ModuleList(TransformerBlock(channels, heads, norm) for _ in range(blocks))
        self.linear_out = nn.Linear(channels, sum(self.sizes))

    def forward(self, *, mask: Tensor | None = None, offsets: Tensor | None = None, **fields: Tensor) -> dict[str, Tensor]:
        """The predicted fields by name; dense with an optional mask of real tokens, or packed with offsets."""
        rows = [encoded(kind, fields[name], self.task.dim) for name, kind in self.task.inputs.items()]
        x = torch.cat(rows, -1).to(self.linear_in.weight.dtype)
        if offsets is not None:
            x, mask = pad(x, offsets)
        x = self.linear_in(x)
        for block in self.blocks:
            x = block(x, mask)
        x = self.linear_out(x)
        if self.task.per == "sample":
            real = None if mask is None else mask.unsqueeze(-1)
            if self.pool == "sum":
                x = x.sum(-2) if real is None else (x * real).sum(-2)
            else:
                x = x.mean(-2) if real is None else (x * real).sum(-2) / real.sum(-2)
        elif offsets is not None:
            x = x[mask]
        found = zip(self.task.targets, x.split(self.sizes, -1), strict=True)
        return {name: value.squeeze(-1) if value.shape[-1] == 1 else value for name, value in found}


class TransformerBlock(nn.Module):
    """x += attention(norm(x)); x += mlp(norm(x))."""

    def __init__(self, channels: int, heads: int, norm: str):
        super().__init__()
        self.heads, self.norm = heads, norm
        self.qkv = nn.Linear(channels, 3 * channels)
        self.merge = nn.Linear(channels, channels)
        self.mlp = nn.Sequential(nn.Linear(channels, 2 * channels), nn.GELU(), nn.Linear(2 * channels, channels))

    def forward(self, x: Float[Tensor, "b n c"], mask: Bool[Tensor, "b n"] | None) -> Float[Tensor, "b n c"]:
        """The stream after attention and MLP."""
        x = x + self._attend(self._normalised(x, mask), mask)
        return x + self.mlp(self._normalised(x, mask))

    def _normalised(self, x: Tensor, mask: Tensor | None) -> Tensor:
        if self.norm == "token":
            return nn.functional.layer_norm(x, x.shape[-1:])
        if mask is None:
            return nn.functional.layer_norm(x, x.shape[-2:])
        there = mask.unsqueeze(-1).to(x)
        count = there.sum(-2, keepdim=True) * x.shape[-1]
        centred = (x - (x * there).sum((-2, -1), keepdim=True) / count) * there
        return centred * (centred.square().sum((-2, -1), keepdim=True) / count + EPS).rsqrt()

    def _attend(self, x: Tensor, mask: Tensor | None) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        seen = None if mask is None else mask[:, None, None, :]
        return self.merge(nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen).transpose(1, 2).flatten(-2))
