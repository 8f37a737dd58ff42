"""Geometric bilinear layers: products of linear maps of the input, one branch for each product the geometry declares."""

from jaxtyping import Float
from torch import Tensor, nn

from anygatr.nn import init
from anygatr.nn.layer import Layer
from anygatr.nn.linear import EquiLinear
from anygatr.nn.norm import LayerNorm
from anygatr.nn.width import Width
from anygatr.ops.product import Product, grouped, product_plan
from anygatr.spaces.geometry import Geometry


class Products(Layer):
    """h_0 * h_1, h_2 v h_3, ...: one product for each pair of factors, those odd under mirrors times a reference."""

    def __init__(self, geometry: Geometry):
        referred = geometry.needs_reference and geometry.join_reference == "data"
        odd = tuple(referred and not geometry.symmetry.is_equivariant(name) for name in geometry.products)
        plan = product_plan(geometry.basis, geometry.products, odd)
        super().__init__(Product(plan, grouped(geometry.algebra.dim)))

    def forward(
        self, h: Float[Tensor, "k *tokens g*c"], reference: Float[Tensor, "*#tokens 1"]
    ) -> Float[Tensor, "k *tokens p*c"]:
        """`reference` is one number per token, the same for all of a sample."""
        return self.op(h, reference, parameters=self.tables)[0]


class GeometricBilinear(nn.Module):
    """y = L(l_1(x) r_1(x), l_2(x) v r_2(x), ...): all factors from one linear layer, their products into another.

    The hidden channels, as many as there are outputs, are shared equally by the products. `inner_norm` normalises y.
    """

    layout = "blades"

    def __init__(self, geometry: Geometry, inputs: Width, outputs: Width, inner_norm: bool = False):
        super().__init__()
        self.geometry, self.inputs = geometry, inputs
        names = geometry.products
        hidden = max(outputs.mv // len(names), 1) if outputs.mv else 0
        # the right factor of the first product starts close to 1, so that the layer starts close to linear
        variants = [init.ALMOST_UNIT if factor == 1 else init.DEFAULT for factor in range(2 * len(names))]
        self.factors = EquiLinear(geometry, inputs, Width(2 * len(names) * hidden, 0), variants=variants)
        self.products = Products(geometry)
        self.out = EquiLinear(geometry, Width(len(names) * hidden, inputs.s), outputs)
        self.norm = LayerNorm(geometry) if inner_norm else None

    def forward(
        self, x: Float[Tensor, "k *tokens c_in"], s: Float[Tensor, "*tokens s_in"], reference: Float[Tensor, "*#tokens 1"]
    ) -> tuple[Float[Tensor, "k *tokens c_out"], Float[Tensor, "*tokens s_out"]]:
        """`reference` multiplies products that are odd under mirrors by an equally odd number of the sample."""
        factors, _ = self.factors(x, s)
        y, t = self.out(self.products(factors, reference), s)
        return (y, t) if self.norm is None else self.norm(y, t)
