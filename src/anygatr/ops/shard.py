"""One sample on many processes: each has some of its tokens, and keys, values and sums are those of all."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch import distributed as dist
from torch.nn import functional

# axes: b batch, n tokens here, m tokens of all processes, g key heads, f and w numbers of a row


@dataclass(frozen=True, eq=False)
class Shard:
    """The tokens that this process has of samples: `counts[rank]` of all. Every process of the group makes the same calls.

    Gradients are those of the sum of what all processes differentiate.
    """

    group: Any
    rank: int
    counts: tuple[int, ...]

    @classmethod
    def of(cls, group: Any, tokens: torch.Size, mask: Tensor | None, like: Tensor) -> "Shard":
        """Agree with the other processes of a group, once they have the same samples (*batch, n) with masks or without.

        `group` is a process group of torch.distributed, or what was made of one before.
        """
        if isinstance(group, Shard):
            return group
        if not (dist.is_available() and isinstance(group, dist.ProcessGroup)):
            raise ValueError(f"group={group!r} is no process group; pass one, such as torch.distributed.group.WORLD")
        here = torch.tensor([tokens[-1], tokens[:-1].numel(), int(mask is not None)], device=like.device)
        found = [torch.empty_like(here) for _ in range(group.size())]
        dist.all_gather(found, here, group)
        counts, batches, masks = torch.stack(found).T.tolist()
        for name, values in (("samples", batches), ("masks", masks)):
            if len(set(values)) > 1:
                raise ValueError(f"group: its processes have {values} {name}; each needs its part of the same samples")
        return cls(group, group.rank(), tuple(counts))

    @property
    def start(self) -> int:
        """Tokens of the processes before this one."""
        return sum(self.counts[: self.rank])

    def sum(self, x: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        """The sum over all processes, on each of them."""
        return _Sum.apply(x, self)

    def keys(
        self, k: Float[Tensor, "b n g f"], v: Float[Tensor, "b n g w"], mask: Bool[Tensor, "b n"] | None
    ) -> tuple[Float[Tensor, "b m g f"], Float[Tensor, "b m g w"], Bool[Tensor, "b m"] | None]:
        """The keys and values of all tokens, and which of them are real."""
        rows = _Gather.apply(torch.cat([k, v], -1), self)
        every = None if mask is None else self.gathered(mask.to(k.dtype)) > 0
        return *rows.split([k.shape[-1], v.shape[-1]], -1), every

    @torch.no_grad()
    def gathered(self, x: Float[Tensor, "b n *any"]) -> Float[Tensor, "b m *any"]:
        """The rows of all tokens, process after process; what others lack to the longest part is sent as zeros."""
        most, x = max(self.counts), x.transpose(0, 1)
        sent = functional.pad(x, (0, 0) * (x.dim() - 1) + (0, most - len(x))).contiguous()
        found = [torch.empty_like(sent) for _ in self.counts]
        dist.all_gather(found, sent, self.group)
        return torch.cat([part[:count] for part, count in zip(found, self.counts, strict=True)]).transpose(0, 1)

    @torch.no_grad()
    def summed(self, x: Tensor) -> Tensor:
        """A copy of x, summed over all processes."""
        total = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=self.group)
        return total

    @torch.no_grad()
    def largest(self, x: Tensor) -> Tensor:
        """A copy of x, the largest of all processes."""
        found = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(found, dist.ReduceOp.MAX, self.group)
        return found

    def part(self, x: Float[Tensor, "b m *any"]) -> Float[Tensor, "b n *any"]:
        """The rows of this process."""
        return x[:, self.start : self.start + self.counts[self.rank]]


class _Sum(torch.autograd.Function):
    """Its gradient is a sum over all processes as well."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, shard: Shard) -> Tensor:
        ctx.shard = shard
        return shard.summed(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _Sum.apply(grad, ctx.shard), None


class _Gather(torch.autograd.Function):
    """The rows of all processes; the gradient of a row is the sum of what all of them make of it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, shard: Shard) -> Tensor:
        ctx.shard = shard
        return shard.gathered(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _Scatter.apply(grad, ctx.shard), None


class _Scatter(torch.autograd.Function):
    """The rows of this process of a sum over all."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, shard: Shard) -> Tensor:
        ctx.shard = shard
        return shard.part(shard.summed(x))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _Gather.apply(grad, ctx.shard), None
