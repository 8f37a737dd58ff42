"""Equivariant linear layers: every solved map between every pair of multivector channels, scalars mixed in."""

from collections.abc import Sequence
from math import sqrt
from typing import Any, Self

import torch
from jaxtyping import Float
from torch import Tensor, nn

from anygatr.kernels.linear import equi_linear
from anygatr.kernels.linear_plan import LinearPlan, Weights, linear_plan, narrowed
from anygatr.kernels.prologue import NOTHING, Prologue
from anygatr.kernels.steps import Map, Step, mapped
from anygatr.nn import init
from anygatr.nn.width import Width
from anygatr.spaces.geometry import Geometry

# axes: k blades, m maps, j invariant blades
PARAMETERS = ("weight", "s_to_mv", "mv_to_s", "s_to_s", "bias_mv", "bias_s")


class EquiLinear(nn.Module):
    """The most general equivariant linear map: y_o = sum_i sum_m w_oim W_m x_i, with W_m of unit Frobenius norm.

    Scalars feed, and are fed by, the invariant blades: the scalar, and without mirrors the pseudoscalar where it has a
    square. The bias is on those and on the scalars. `variants` splits the output channels into equal parts, each with its
    own start.
    """

    layout = "blades"
    mixing: Tensor
    plan: LinearPlan

    def __init__(
        self,
        geometry: Geometry,
        inputs: Width,
        outputs: Width,
        bias: bool = True,
        variants: Sequence[init.Variant] = (init.DEFAULT,),
    ):
        super().__init__()
        basis = geometry.linear_basis
        self.geometry, self.inputs, self.outputs = geometry, inputs, outputs
        self.widen()
        self.register_buffer("mixing", self.plan.mixing.to(torch.get_default_dtype()), persistent=False)
        invariants = len(self.plan.invariant)
        self.weight = nn.Parameter(torch.empty(outputs.mv, inputs.mv, len(basis)))
        self.s_to_mv = nn.Parameter(torch.empty(invariants, outputs.mv, inputs.s))
        self.mv_to_s = nn.Parameter(torch.empty(invariants, outputs.s, inputs.mv))
        self.s_to_s = nn.Parameter(torch.empty(outputs.s, inputs.s))
        self.bias_mv = nn.Parameter(torch.zeros(invariants, outputs.mv)) if bias else None
        self.bias_s = nn.Parameter(torch.zeros(outputs.s)) if bias else None
        self.reset_parameters(variants)
        for parameter in self.parameters():
            parameter.requires_grad_(parameter.numel() > 0)  # an empty one gets no gradient, which DDP takes for an error

    def reset_parameters(self, variants: Sequence[init.Variant] = (init.DEFAULT,)) -> None:
        """Start as the geometry's scheme says: outputs of variance 1/3 per grade for inputs of variance 1."""
        inputs, outputs = self.inputs, self.outputs
        both = sqrt(0.5) if inputs.mv and inputs.s else 1.0  # two sources share an output's variance
        fan = 1 / sqrt(max(inputs.mv + inputs.s, 1))
        shared = {int(self.geometry.algebra.grades[blade]): both for blade in self.plan.invariant}
        scheme = next((v.scheme for v in variants if v.scheme is not None), self.geometry.init)
        weight = init.multivector_weights((outputs.mv, inputs.mv), self.geometry.linear_basis, scheme, shared)
        with torch.no_grad():
            self.weight.copy_(weight)
        init.uniform_(self.s_to_mv, both / sqrt(max(inputs.s, 1)))
        init.uniform_(self.mv_to_s, both / sqrt(max(inputs.mv * len(self.plan.invariant), 1)))
        init.uniform_(self.s_to_s, both / sqrt(max(inputs.s, 1)))
        if self.bias_mv is not None and self.bias_s is not None:
            init.uniform_(self.bias_mv, fan)
            init.uniform_(self.bias_s, fan)
        for part, variant in enumerate(variants):
            self._vary(variant, part, len(variants))

    def forward(
        self,
        x: Float[Tensor, "k *tokens c_in"],
        s: Float[Tensor, "*tokens s_in"],
        before: Prologue = NOTHING,
        onto: tuple[Tensor, Tensor] | None = None,
        reference: Float[Tensor, "*#tokens 1"] | None = None,
    ) -> tuple[Float[Tensor, "k *tokens c_out"], Float[Tensor, "*tokens s_out"]]:
        """Both outputs from both inputs, these as `before`, which may need the reference, leaves them, added to `onto`."""
        return equi_linear(x, s, self._weights, self.mixing, self.plan, before, onto, reference)

    def step(
        self,
        x: Float[Tensor, "k *tokens _"],
        before: Prologue = NOTHING,
        beside: bool = False,
        reference: Float[Tensor, "*#tokens 1"] | None = None,
    ) -> Step:
        """The same as a part of a chain, whose tokens are those of x; for a layer whose parameters are its own."""
        weights = Weights(*map(self._parameters.get, PARAMETERS))  # type: ignore[arg-type]
        return mapped(x, weights, Map(self.plan, before, beside), reference)

    @property
    def _weights(self) -> Weights:
        return Weights(self.weight, self.s_to_mv, self.mv_to_s, self.s_to_s, self.bias_mv, self.bias_s)

    def flops(self, tokens: int) -> int:
        """FLOPs per token of a forward pass."""
        (c, t), (d, u), plan = self.inputs, self.outputs, self.plan
        u = u if plan.scalars else 0
        return 2 * (plan.multiply_adds * c * d + len(plan.outer) * t * d + len(plan.inner) * c * u + t * u)

    def narrow(self, reads: tuple[int, ...], writes: tuple[int, ...], scalars: bool = True) -> None:
        """From now on take blades outside `reads` for zero and leave those outside `writes`, perhaps scalars, zero."""
        self.widen()
        self.plan = narrowed(self.plan, reads, writes, scalars)

    def widen(self) -> None:
        """Undo `narrow`."""
        self.plan = linear_plan(self.geometry.linear_basis)

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        self.mixing = self.plan.mixing.to(self.weight)  # not through fn: to float32 and back would lose digits
        return self

    @torch.no_grad()
    def _vary(self, variant: init.Variant, part: int, parts: int) -> None:
        mv = slice(part * self.outputs.mv // parts, (part + 1) * self.outputs.mv // parts)
        s = slice(part * self.outputs.s // parts, (part + 1) * self.outputs.s // parts)
        for weight in (self.weight[mv], self.s_to_mv[:, mv], self.mv_to_s[:, s], self.s_to_s[s]):
            weight.mul_(variant.gain)
        if self.bias_mv is not None:
            self.bias_mv[self.plan.invariant.index(0), mv] += variant.scalar

    def extra_repr(self) -> str:
        """Widths and number of maps."""
        return f"{self.inputs} -> {self.outputs}, {self.weight.shape[-1]} maps, bias={self.bias_mv is not None}"
