"""Dropout that keeps or drops whole grades of a channel, so that what is left transforms as before."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from anygatr.spaces.geometry import Geometry


class GradeDropout(nn.Module):
    """Drop each grade of each multivector channel, and each scalar, with probability `p` in training."""

    layout = "blades"
    grades: Tensor

    def __init__(self, geometry: Geometry, p: float = 0.0):
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"dropout={p!r} must be a probability in [0, 1); 0 switches it off")
        self.chances = (p,)  # in a tuple, a constant to torch's tracing, which begins anew for a number by itself
        self.sizes = tuple(s.stop - s.start for s in geometry.algebra.slices)
        self.register_buffer("grades", geometry.algebra.grades.clone(), persistent=False)

    @property
    def p(self) -> float:
        """The probability."""
        return self.chances[0]

    @property
    def idle(self) -> bool:
        """Whether it is the identity now."""
        return not self.training or self.p == 0

    def forward(
        self, x: Float[Tensor, "k *tokens c"], s: Float[Tensor, "*tokens c_s"]
    ) -> tuple[Float[Tensor, "k *tokens c"], Float[Tensor, "*tokens c_s"]]:
        """The identity in evaluation."""
        if self.idle:
            return x, s
        kept = functional.dropout(x.new_ones(len(self.sizes), *x.shape[1:]), self.p)
        return x * torch.index_select(kept, 0, self.grades), functional.dropout(s, self.p)

    def extra_repr(self) -> str:
        """The probability."""
        return f"p={self.p}"
