"""Geometric bilinear layers: products of linear maps of the input, one branch for each product the geometry declares."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from anygatr.kernels import graph
from anygatr.kernels.product import BilinearPlan, narrowed, product_plan, products
from anygatr.kernels.prologue import NOTHING, Prologue
from anygatr.kernels.steps import Step
from anygatr.nn import init
from anygatr.nn.ahead import untouched
from anygatr.nn.linear import EquiLinear
from anygatr.nn.norm import LayerNorm
from anygatr.nn.width import Width
from anygatr.spaces.geometry import Geometry


class GeometricBilinear(nn.Module):
    """y = L(l_1(x) r_1(x), l_2(x) v r_2(x), ...): all factors from one linear layer, their products into another.

    The hidden channels, as many as there are outputs, are shared equally by the products. A product that is odd under
    mirrors is multiplied by `reference`, an equally odd number of the sample. `inner_norm` normalises y.
    """

    layout = "blades"
    plan: BilinearPlan

    def __init__(self, geometry: Geometry, inputs: Width, outputs: Width, inner_norm: bool = False):
        super().__init__()
        self.geometry, self.inputs = geometry, inputs
        names = geometry.products
        hidden = max(outputs.mv // len(names), 1) if outputs.mv else 0
        # the right factor of the first product starts close to 1, so that the layer starts close to linear
        variants = [init.ALMOST_UNIT if factor == 1 else init.DEFAULT for factor in range(2 * len(names))]
        self.factors = EquiLinear(geometry, inputs, Width(2 * len(names) * hidden, 0), variants=variants)
        self.out = EquiLinear(geometry, Width(len(names) * hidden, inputs.s), outputs)
        self.norm = LayerNorm(geometry) if inner_norm else None
        referred = geometry.needs_reference and geometry.join_reference == "data"
        self.odd = tuple(referred and not geometry.symmetry.is_equivariant(name) for name in names)
        self.widen()
        self.tables = [graph.product_table(geometry.algebra, name) for name in names]

    def flops(self, tokens: int) -> int:
        """FLOPs per token of the products alone."""
        return 2 * self.plan.multiply_adds * self.out.inputs.mv // len(self.odd)

    def narrow(self, reads: tuple[int, ...], writes: tuple[int, ...], reference: bool = True) -> None:
        """From now on take factors' blades outside `reads` for zero and leave products' outside `writes` zero.

        Without `reference` that number is taken for zero, too.
        """
        self.widen()
        self.plan = narrowed(self.plan, reads, writes, reference)

    def widen(self) -> None:
        """Undo `narrow`."""
        self.plan = product_plan(self.geometry.algebra, self.geometry.products, self.odd)

    def forward(
        self,
        x: Float[Tensor, "k *tokens c_in"],
        s: Float[Tensor, "*tokens s_in"],
        reference: Float[Tensor, "*#tokens 1"],
        before: Prologue = NOTHING,
    ) -> tuple[Float[Tensor, "k *tokens c_out"], Float[Tensor, "*tokens s_out"]]:
        """`reference` is one number per token, the same for all of a sample; x and s are taken as `before` leaves them."""
        factors, _ = self.factors(x, s, before)
        then, odd = Prologue(scalars=before.scalars), any(self.odd)
        if torch.compiler.is_exporting():
            pairs = zip(graph.products(factors, self.tables), self.odd, strict=True)
            out = torch.cat([product * reference if odd else product for product, odd in pairs], -1)
        elif odd and reference.requires_grad:
            ones = torch.ones_like(reference)
            number = torch.stack([reference if odd else ones for odd in self.odd], -2)  # (*tokens, p, 1)
            parts = products(factors, self.plan).unflatten(-1, (len(self.odd), -1))
            out = (parts * number).flatten(-2)
        elif untouched((self.out, EquiLinear)):
            out, then = factors, then._replace(products=self.plan, referred=odd)
        else:
            out = products(factors, self.plan, reference if odd else None)
        y, t = self.out(out, s, then, reference=reference) if then.referred else self.out(out, s, then)
        return (y, t) if self.norm is None else self.norm(y, t)

    def steps(
        self, x: Float[Tensor, "k *tokens _"], reference: Float[Tensor, "*#tokens 1"], before: Prologue
    ) -> tuple[Step, ...]:
        """The same as a part of a chain whose tokens are those of x; nothing where it cannot be."""
        odd, factors, out = any(self.odd), self.factors, self.out
        if self.norm is not None or (odd and reference.requires_grad):
            return ()
        if not untouched((factors, EquiLinear), (out, EquiLinear)):
            return ()
        then = Prologue(scalars=before.scalars, products=self.plan, referred=odd)
        return factors.step(x, before), out.step(x, then, True, reference if odd else None)
