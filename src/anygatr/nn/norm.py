"""Layer normalisation: multivectors by their invariant size, scalars by mean and variance, nothing learned."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from anygatr.geometry import Geometry
from anygatr.kernels.norm import norm_plan, normalise
from anygatr.kernels.precision import lengthened, without_autocast


class LayerNorm(nn.Module):
    """x / sqrt(mean over channels of |x|^2 + eps) in the geometry's norm and form; float32 under autocast."""

    layout = "blades"

    def __init__(self, geometry: Geometry):
        super().__init__()
        self.plan = norm_plan(geometry.algebra, geometry.norm, geometry.norm_eps, geometry.norm_form)

    def forward(
        self, x: Float[Tensor, "k *tokens c"], s: Float[Tensor, "*tokens c_s"]
    ) -> tuple[Float[Tensor, "k *tokens c"], Float[Tensor, "*tokens c_s"]]:
        """Each token by itself."""
        with without_autocast(x):
            x, s = lengthened(x, s)
            return normalise(x, self.plan), functional.layer_norm(s, s.shape[-1:]) if s.shape[-1] else s
