"""Multiply-adds: what a ratio of times would be if both networks computed at one rate, and what a step has to compute."""

from functools import lru_cache

import torch

from anygatr import Width, geometry
from anygatr.nn import Block
from anygatr.ops.attention import Attention
from anygatr.ops.batch import Batch
from anygatr.program.cost import flops
from anygatr.program.program import Program
from anygatr.program.trace import trace
from benchmarks.speed.networks.contestants import COMPILED, GEOMETRIES, Configuration

PASSES = {"infer": (1.0, 1.0), "train": (3.0, 3.5)}
"""Multiply-adds over those forwards, of maps and of attention, which computes its logits again instead of keeping them."""


@lru_cache(maxsize=64)
def multiply_adds(name: str, size: Configuration) -> int | None:
    """Per token, of a geometry's block or of the Transformer's layer; None for networks whose count is not known."""
    plain = name.removesuffix(COMPILED)
    if plain == "transformer":
        width = 16 * size.mv + size.s
        return 8 * width**2 + 2 * size.tokens * width  # four projections, a feed-forward twice as wide, logits and mixtures
    return sum(_block_flops(plain, size)) // 2 if plain in GEOMETRIES else None


def step_flops(name: str, size: Configuration, what: str) -> float:
    """FLOPs of all blocks of a geometry's network in a training step or an inference."""
    parts = zip(PASSES[what], _block_flops(name.removesuffix(COMPILED), size), strict=True)
    return size.blocks * size.batch * size.tokens * sum(passes * once for passes, once in parts)


def forward_flops(program: Program, tokens: int) -> tuple[int, int]:
    """Per token, of a program forwards in samples of `tokens` tokens: its maps and products, and its attention."""
    counts = [(isinstance(step.op, Attention), flops(program, step, tokens)) for step in program.steps]
    return sum(n for attends, n in counts if not attends), sum(n for attends, n in counts if attends)


@lru_cache(maxsize=64)
def _block_flops(name: str, size: Configuration) -> tuple[int, int]:
    geo = geometry(name)
    block = Block(geo, Width(size.mv, size.s), size.heads)
    x, s = torch.empty(geo.algebra.dim, 1, size.mv, device="meta"), torch.empty(1, size.s, device="meta")
    return forward_flops(trace(block, (x, s, Batch(s.new_empty(1, 1), x[..., :0]))), size.tokens)
