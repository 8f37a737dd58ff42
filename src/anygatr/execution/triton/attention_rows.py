"""Which attention has kernels for its rows."""

from anygatr.ops.attention import Attention


def supports(op: Attention) -> bool:
    """Whether there is a kernel for all of its features."""
    return False
