"""Layer normalisation: multivectors by their invariant size, scalars by mean and variance, nothing learned."""

from jaxtyping import Float
from torch import Tensor, nn

from anygatr.kernels.norm import norm_plan
from anygatr.kernels.prologue import Prologue
from anygatr.spaces.geometry import Geometry


class LayerNorm(nn.Module):
    """x / sqrt(mean over channels of |x|^2 + eps) in the geometry's norm and form; float32 under autocast."""

    layout = "blades"

    def __init__(self, geometry: Geometry):
        super().__init__()
        plan = norm_plan(geometry.algebra, geometry.norm, geometry.norm_eps, geometry.norm_form)
        self.prologue = Prologue(norm=plan, scalars="norm")

    def forward(
        self, x: Float[Tensor, "k *tokens c"], s: Float[Tensor, "*tokens c_s"]
    ) -> tuple[Float[Tensor, "k *tokens c"], Float[Tensor, "*tokens c_s"]]:
        """Each token by itself."""
        return self.prologue(x, s)
