"""Multiply-adds: what a ratio of times would be if both networks computed at one rate, and what a step has to compute."""

from functools import lru_cache

from anygatr import Width, geometry
from anygatr.nn import Block
from anygatr.nn.attention import Attend
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
    return sum(_flops(plain, size)) // 2 if plain in GEOMETRIES else None


def step_flops(name: str, size: Configuration, what: str) -> float:
    """FLOPs of all blocks of a geometry's network in a training step or an inference."""
    parts = zip(PASSES[what], _flops(name.removesuffix(COMPILED), size), strict=True)
    return size.blocks * size.batch * size.tokens * sum(passes * flops for passes, flops in parts)


@lru_cache(maxsize=64)
def _flops(name: str, size: Configuration) -> tuple[int, int]:
    """Per token, of a block forwards: its maps and products, and its attention."""
    block = Block(geometry(name), Width(size.mv, size.s), size.heads)
    counted = [module for module in block.modules() if hasattr(module, "flops")]
    attention = sum(module.flops(size.tokens) for module in counted if isinstance(module, Attend))
    return sum(module.flops(size.tokens) for module in counted) - attention, attention  # type: ignore[operator]
