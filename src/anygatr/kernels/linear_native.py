"""The equivariant linear map of a plan in C: its memory, its threads, its calls."""

from collections.abc import Callable, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from anygatr.kernels import native
from anygatr.kernels.linear_plan import LinearPlan, Weights
from anygatr.kernels.linear_source import TOKENS, linear_source
from anygatr.kernels.product import lanes
from anygatr.kernels.prologue import Prologue


def forward(
    x: Tensor,
    s: Tensor,
    weights: Weights,
    plan: LinearPlan,
    before: Prologue,
    onto: tuple[Tensor | None, Tensor | None],
    number: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """(k, *tokens, c_in) and (*tokens, s_in) mapped and added to `onto`; a `number` for each token is the prologue's."""
    y = x.new_empty(plan.blades, *x.shape[1:-1], weights.mv.shape[0])
    t = s.new_empty(*s.shape[:-1], weights.s_to_s.shape[0])
    _run("linear", (x, s, number, *weights, *onto, y, t), weights, plan, before)
    return y, t


def backward(
    grad_y: Tensor,
    grad_t: Tensor,
    x: Tensor,
    s: Tensor,
    weights: Weights,
    plan: LinearPlan,
    before: Prologue,
    below: bool,
    number: Tensor | None = None,
    plus: tuple[Tensor | None, Tensor | None] = (None, None),
) -> tuple[Tensor | None, ...]:
    """The gradients of x, s and the weights; those of x and s, with `plus` added, only if something is `below`."""
    found = [t.new_empty(t.shape) if below else None for t in (x, s)]
    found += [None if w is None else w.new_empty(w.shape) for w in weights]
    _run("linear_backward", (x, s, number, *weights[:4], grad_y, grad_t, *plus, *found), weights, plan, before)
    return tuple(found)


def settled(
    name: str, weights: Weights, plan: LinearPlan, before: Prologue, real: torch.dtype, channels: int, tokens: int
) -> tuple[Callable[..., None], tuple[int, ...]]:
    """The function and the integers it takes after all addresses."""
    (c_out, c_in, _), (s_out, s_in) = weights.mv.shape, weights.s_to_s.shape
    threads = max(1, min(torch.get_num_threads(), tokens // TOKENS))
    return _function(name, plan, before, real, channels), (tokens, c_in, s_in, c_out, s_out, threads)


def _run(name: str, tensors: Sequence[Tensor | None], weights: Weights, plan: LinearPlan, before: Prologue) -> None:
    kept = [None if t is None else t.contiguous() for t in tensors]
    x = tensors[0]
    assert x is not None
    run, sizes = settled(name, weights, plan, before, x.dtype, x.shape[-1], x.shape[1:-1].numel())
    run(*native.addresses(kept), *sizes)


POINTERS = {"linear": 13, "linear_backward": 19}


@lru_cache(maxsize=512)
def _function(name: str, plan: LinearPlan, before: Prologue, real: torch.dtype, channels: int) -> Callable[..., None]:
    together = 0 if before.products is None else lanes(channels, before.products)
    return native.function(linear_source(plan, before, native.REALS[real], together), name, POINTERS[name], 6)
