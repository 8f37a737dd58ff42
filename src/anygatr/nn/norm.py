"""Layer normalisation: multivectors by their invariant size, scalars by mean and variance, nothing learned."""

from jaxtyping import Float
from torch import Tensor

from anygatr.nn.layer import Layer
from anygatr.ops.norm import Norm, norm_plan
from anygatr.spaces.geometry import Geometry


class LayerNorm(Layer):
    """x / sqrt(mean over channels of |x|^2 + eps) in the geometry's norm and form; float32 under autocast.

    The channels of several `heads` are normalised head by head.
    """

    def __init__(self, geometry: Geometry, heads: int = 1):
        super().__init__(Norm(norm_plan(geometry.basis, geometry.norm, geometry.norm_eps, geometry.norm_form), heads))

    def forward(
        self, x: Float[Tensor, "k *tokens c"], s: Float[Tensor, "*tokens c_s"]
    ) -> tuple[Float[Tensor, "k *tokens c"], Float[Tensor, "*tokens c_s"]]:
        """Each token by itself."""
        return self.op(x, s, parameters=self.tables)
