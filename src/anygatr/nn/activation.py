"""Gated GELU: the only pointwise nonlinearity."""

from jaxtyping import Float
from torch import Tensor, nn

from anygatr.kernels.prologue import GELU, Prologue


class GatedGELU(nn.Module):
    """Multivectors times the GELU (tanh form) of their own scalar part; scalars through the "exact" or the "tanh" form."""

    layout = "blades"

    def __init__(self, scalar_gelu: str = "exact"):
        super().__init__()
        if scalar_gelu not in GELU:
            raise ValueError(f"scalar_gelu={scalar_gelu!r} must be 'exact' or 'tanh'")
        self.prologue = Prologue(gate=True, scalars=scalar_gelu)

    def forward(
        self, x: Float[Tensor, "k *tokens c"], s: Float[Tensor, "*tokens c_s"]
    ) -> tuple[Float[Tensor, "k *tokens c"], Float[Tensor, "*tokens c_s"]]:
        """Each channel by itself."""
        return self.prologue(x, s)
