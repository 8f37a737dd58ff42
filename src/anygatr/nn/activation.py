"""Gated GELU: the only pointwise nonlinearity."""

from jaxtyping import Float
from torch import Tensor

from anygatr.nn.layer import Layer
from anygatr.ops.gate import GELU, Gate


class GatedGELU(Layer):
    """Multivectors times the GELU (tanh form) of their own scalar part; scalars through the "exact" or the "tanh" form."""

    def __init__(self, scalar_gelu: str = "exact"):
        if scalar_gelu not in GELU:
            raise ValueError(f"scalar_gelu={scalar_gelu!r} must be 'exact' or 'tanh'")
        super().__init__(Gate(scalar_gelu))

    def forward(
        self, x: Float[Tensor, "k *tokens c"], s: Float[Tensor, "*tokens c_s"]
    ) -> tuple[Float[Tensor, "k *tokens c"], Float[Tensor, "*tokens c_s"]]:
        """Each channel by itself."""
        return self.op(x, s)
