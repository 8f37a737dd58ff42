"""Equivariant linear layers: every solved map between every pair of multivector channels, scalars mixed in."""

from collections.abc import Sequence
from math import sqrt

import torch
from jaxtyping import Float
from torch import Tensor, nn

from anygatr.nn import init
from anygatr.nn.layer import Layer
from anygatr.nn.width import Width
from anygatr.ops.linear import Linear, linear_plan
from anygatr.spaces.geometry import Geometry

# axes: k blades, m maps, j invariant blades


class EquiLinear(Layer):
    """The most general equivariant linear map: y_o = sum_i sum_m w_oim W_m x_i, with W_m of unit Frobenius norm.

    Scalars feed, and are fed by, the invariant blades: the scalar, and without mirrors the pseudoscalar where it has a
    square. The bias is on those and on the scalars. `variants` splits the output channels into equal parts, each with its
    own start. Maps that are not `delicate` may use 16 bits under autocast even where the geometry's points need float32.
    """

    def __init__(
        self,
        geometry: Geometry,
        inputs: Width,
        outputs: Width,
        bias: bool = True,
        variants: Sequence[init.Variant] = (init.DEFAULT,),
        delicate: bool = True,
    ):
        basis = geometry.linear_basis
        plan = linear_plan(basis, geometry.basis)
        super().__init__(Linear(plan, delicate and geometry.precise))
        self.geometry, self.inputs, self.outputs, self.invariant = geometry, inputs, outputs, plan.invariant
        invariants = len(plan.invariant)
        self.weight = nn.Parameter(torch.empty(outputs.mv, inputs.mv, len(basis)))
        self.s_to_mv = nn.Parameter(torch.empty(invariants, outputs.mv, inputs.s))
        self.mv_to_s = nn.Parameter(torch.empty(invariants, outputs.s, inputs.mv))
        self.s_to_s = nn.Parameter(torch.empty(outputs.s, inputs.s))
        self.bias_mv = nn.Parameter(torch.zeros(invariants, outputs.mv)) if bias else None
        self.bias_s = nn.Parameter(torch.zeros(outputs.s)) if bias else None
        self.variants = tuple(variants)
        self.reset_parameters(variants)
        for parameter in self.parameters():
            parameter.requires_grad_(parameter.numel() > 0)  # an empty one gets no gradient, which DDP takes for an error

    def reset_parameters(self, variants: Sequence[init.Variant] = (init.DEFAULT,)) -> None:
        """Start as the geometry's scheme says: outputs of variance 1/3 per grade for inputs of variance 1."""
        inputs, outputs = self.inputs, self.outputs
        both = sqrt(0.5) if inputs.mv and inputs.s else 1.0  # two sources share an output's variance
        fan = 1 / sqrt(max(inputs.mv + inputs.s, 1))
        shared = {int(self.geometry.algebra.grades[blade]): both for blade in self.invariant}
        scheme = next((v.scheme for v in variants if v.scheme is not None), self.geometry.init)
        weight = init.multivector_weights((outputs.mv, inputs.mv), self.geometry.linear_basis, scheme, shared)
        with torch.no_grad():
            self.weight.copy_(weight)
        init.uniform_(self.s_to_mv, both / sqrt(max(inputs.s, 1)))
        init.uniform_(self.mv_to_s, both / sqrt(max(inputs.mv * len(self.invariant), 1)))
        init.uniform_(self.s_to_s, both / sqrt(max(inputs.s, 1)))
        if self.bias_mv is not None and self.bias_s is not None:
            init.uniform_(self.bias_mv, fan)
            init.uniform_(self.bias_s, fan)
        for part, variant in enumerate(variants):
            self._vary(variant, part, len(variants))

    @torch.no_grad()
    def balance(self, share: float = 1.0) -> None:
        """From a new layer as in the paper make a balanced one: outputs have this share of the variance of its scheme."""
        for part, variant in enumerate(self.variants):
            self._vary(init.balancing(variant, self.geometry.init, share), part, len(self.variants))

    def forward(
        self, x: Float[Tensor, "k *tokens c_in"], s: Float[Tensor, "*tokens s_in"]
    ) -> tuple[Float[Tensor, "k *tokens c_out"], Float[Tensor, "*tokens s_out"]]:
        """Both outputs from both inputs."""
        return self.op(x, s, parameters=(*(getattr(self, name) for name in Linear.parameter_names), *self.tables))

    @torch.no_grad()
    def _vary(self, variant: init.Variant, part: int, parts: int) -> None:
        mv = slice(part * self.outputs.mv // parts, (part + 1) * self.outputs.mv // parts)
        s = slice(part * self.outputs.s // parts, (part + 1) * self.outputs.s // parts)
        for weight in (self.weight[mv], self.s_to_mv[:, mv], self.mv_to_s[:, s], self.s_to_s[s]):
            weight.mul_(variant.gain)
        if self.bias_mv is not None:
            self.bias_mv[self.invariant.index(0), mv] += variant.scalar

    def extra_repr(self) -> str:
        """Widths and number of maps."""
        return f"{self.inputs} -> {self.outputs}, {self.weight.shape[-1]} maps, bias={self.bias_mv is not None}"
