"""Dropout that keeps or drops whole grades of a channel, so that what is left transforms as before."""

from jaxtyping import Float
from torch import Tensor

from anygatr.nn.layer import Layer
from anygatr.ops.stream import Dropout
from anygatr.spaces.geometry import Geometry


class GradeDropout(Layer):
    """Drop each grade of each multivector channel, and each scalar, with probability `p` in training."""

    def __init__(self, geometry: Geometry, p: float = 0.0):
        if not 0 <= p < 1:
            raise ValueError(f"dropout={p!r} must be a probability in [0, 1); 0 switches it off")
        super().__init__(Dropout(tuple(geometry.algebra.grades.tolist()), (p,)))
        self.chances = (p,)  # in a tuple, a constant to torch's tracing, which begins anew for a number by itself

    @property
    def p(self) -> float:
        """The probability."""
        return self.chances[0]

    def forward(
        self, x: Float[Tensor, "k *tokens c"], s: Float[Tensor, "*tokens c_s"]
    ) -> tuple[Float[Tensor, "k *tokens c"], Float[Tensor, "*tokens c_s"]]:
        """The identity in evaluation."""
        if not self.training or self.p == 0:
            return x, s
        return self.op(x, s, parameters=self.tables)

    def extra_repr(self) -> str:
        """The probability."""
        return f"p={self.p}"
