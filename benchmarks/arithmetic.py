"""Multiply-adds of a forward pass of one block: what a ratio of times would be if both networks ran at the same rate."""

from functools import lru_cache

from speed_models import COMPILED, GEOMETRIES, Configuration

from anygatr import Width, geometry
from anygatr.nn import Block


@lru_cache(maxsize=64)
def multiply_adds(name: str, size: Configuration) -> int | None:
    """Per token, of a geometry's block or of the Transformer's layer; None for networks whose count is not known."""
    plain = name.removesuffix(COMPILED)
    if plain == "transformer":
        width = 16 * size.mv + size.s
        return 8 * width**2 + 2 * size.tokens * width  # four projections, a feed-forward twice as wide, logits and mixtures
    if plain not in GEOMETRIES:
        return None
    block = Block(geometry(plain), Width(size.mv, size.s), size.heads)
    return sum(module.flops(size.tokens) for module in block.modules() if hasattr(module, "flops")) // 2  # type: ignore[operator]
