"""Calls of the kernels that write the rows of attention."""

from collections.abc import Sequence

import torch
from torch import Tensor

from anygatr.execution.triton.generated import kernel_of
from anygatr.execution.triton.launch import LANGUAGE, call, programs, sum_type
from anygatr.execution.triton.row_source import KEYS, NUMBERS, QUERIES, SELF, Roles, rows_backward_source, rows_source
from anygatr.ops.attention import Attention


def forward(op: Attention, given: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """The rows of queries, keys and values; `given` are x and s, those of keys if they differ, and the log weights."""
    made: dict[str, Tensor] = {}
    weights = _together(op, given)
    for (x, s), roles in _streams(op, given):
        out = {role: s.new_empty(_shape(op, role, s), dtype=x.dtype) for role in roles}
        _call(rows_source(op, roles), "rows", x, s, (x, s, weights, *out.values()))
        made |= out
    return made["q"], made["k"], made["v"]


def backward(op: Attention, grads: Sequence[Tensor | None], given: Sequence[Tensor]) -> list[Tensor | None]:
    """The gradients of all that `forward` was given."""
    weights, found = _together(op, given), list[Tensor | None]()
    by_role, per_token = dict(zip(SELF, grads, strict=True)), weights
    for (x, s), roles in _streams(op, given):
        rows = [by_role[role] for role in roles]
        ready = [
            x.new_zeros(_shape(op, role, s)) if g is None else g.contiguous() for role, g in zip(roles, rows, strict=True)
        ]
        gx, gs = torch.empty_like(x), torch.empty_like(s)
        tokens = s.shape[:-1].numel()
        if "q" in roles:
            per_token = x.new_empty(len(weights), tokens, op.heads * op.head[0], dtype=sum_type(x))
        _call(rows_backward_source(op, roles), "rows_backward", x, s, (x, weights, *ready, gx, gs, per_token))
        found += [gx, gs]
    own = per_token.sum(1).view(weights.shape).to(weights.dtype) if len(weights) else weights
    return [*found, *own.unbind()]


def _streams(op: Attention, given: Sequence[Tensor]) -> list[tuple[tuple[Tensor, Tensor], Roles]]:
    streams = [t.contiguous() for t in given[: 4 if op.cross else 2]]
    first = streams[0], streams[1]
    return [(first, QUERIES), ((streams[2], streams[3]), KEYS)] if op.cross else [(first, SELF)]


def _together(op: Attention, given: Sequence[Tensor]) -> Tensor:
    """The logarithms of all learned weights (w, h, c)."""
    own = given[4 if op.cross else 2 :]
    if not own:
        return given[0].new_empty(0, op.heads, op.head[0])
    return own[0].detach().unsqueeze(0) if len(own) == 1 else torch.stack([t.detach() for t in own])


def _shape(op: Attention, role: str, s: Tensor) -> tuple[int, int, int]:
    (c, width), heads = op.head, op.heads if role == "q" else op.key_heads
    numbers = len(op.mixed) if role == "v" else sum(f.size for f in op.features)
    return s.shape[:-1].numel(), heads, numbers * c + width


def _call(source: str, name: str, x: Tensor, s: Tensor, tensors: Sequence[Tensor]) -> None:
    tokens = s.shape[:-1].numel()
    numbers = max(x[0].numel(), s.numel())
    real = LANGUAGE[sum_type(x)]
    call(kernel_of(source, name), (programs(numbers, NUMBERS),), *tensors, tokens, REAL=real, NUMBERS=NUMBERS)
