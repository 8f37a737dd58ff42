"""A transformer block: attention, then a geometric MLP, each on normalised inputs and added to the stream."""

from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from anygatr.kernels.chain import chain, chainable, chains
from anygatr.kernels.prologue import NOTHING, Prologue
from anygatr.kernels.steps import Step
from anygatr.nn.activation import GatedGELU
from anygatr.nn.ahead import Stream, add, ahead, untouched
from anygatr.nn.attention import SelfAttention
from anygatr.nn.batch import Batch
from anygatr.nn.bilinear import GeometricBilinear
from anygatr.nn.dropout import GradeDropout
from anygatr.nn.linear import EquiLinear
from anygatr.nn.norm import LayerNorm
from anygatr.nn.width import Width
from anygatr.spaces.geometry import Geometry


class MLP(nn.Module):
    """Geometric bilinear to `ratio` times the width, gated GELU, linear back."""

    layout = "blades"

    def __init__(
        self,
        geometry: Geometry,
        width: Width,
        dropout: float = 0.0,
        ratio: int = 2,
        inner_norm: bool = False,
        scalar_gelu: str = "exact",
    ):
        super().__init__()
        if not isinstance(ratio, int) or isinstance(ratio, bool) or ratio < 1:
            raise ValueError(f"mlp_ratio={ratio!r} must be a positive integer; the default is 2")
        self.geometry, self.inputs = geometry, width
        self.bilinear = GeometricBilinear(geometry, width, width * ratio, inner_norm)
        self.activation = GatedGELU(scalar_gelu)
        self.out = EquiLinear(geometry, width * ratio, width)
        self.dropout = GradeDropout(geometry, dropout)

    def forward(
        self,
        x: Float[Tensor, "k *tokens c"],
        s: Float[Tensor, "*tokens c_s"],
        reference: Float[Tensor, "*#tokens 1"],
        before: Prologue = NOTHING,
        onto: Stream | None = None,
    ) -> Stream:
        """Each token, as `before` leaves it, by itself but for the reference; the result is added to `onto`."""
        if not self.dropout.idle:
            return add(onto, self.dropout(*self._through(x, s, reference, before)))
        return self._through(x, s, reference, before, onto)

    def _through(self, x: Tensor, s: Tensor, reference: Tensor, before: Prologue, onto: Stream | None = None) -> Stream:
        steps = self._steps(x, reference, before)
        if chains(x, s, steps, onto):
            return chain(x, s, steps, onto)
        return self.out(*ahead(self.activation, *self.bilinear(x, s, reference, before)), onto)

    def _steps(self, x: Tensor, reference: Tensor, before: Prologue) -> tuple[Step, ...]:
        """What can run as one; nothing where somebody may look between."""
        bilinear, activation, out = self.bilinear, self.activation, self.out
        ours = (bilinear, GeometricBilinear), (activation, GatedGELU), (out, EquiLinear)
        first = bilinear.steps(x, reference, before) if chainable(x) and untouched(*ours) else ()
        return (*first, out.step(x, activation.prologue)) if first else ()


class Block(nn.Module):
    """x += attention(norm(x)); x += mlp(norm(x)). Keyword arguments go to `SelfAttention`."""

    layout = "blades"

    def __init__(
        self,
        geometry: Geometry,
        width: Width,
        heads: int,
        dropout: float = 0.0,
        mlp_ratio: int = 2,
        inner_norm: bool = False,
        scalar_gelu: str = "exact",
        **attention: object,
    ):
        super().__init__()
        self.geometry, self.inputs = geometry, width
        self.norm = LayerNorm(geometry)
        self.attention = SelfAttention(geometry, width, heads, inner_norm=inner_norm, **attention)  # type: ignore[arg-type]
        self.dropout = GradeDropout(geometry, dropout)
        self.mlp = MLP(geometry, width, dropout, mlp_ratio, inner_norm, scalar_gelu)

    def forward(self, x: Float[Tensor, "k *tokens c"], s: Float[Tensor, "*tokens c_s"], batch: Batch) -> Stream:
        """The stream after attention and MLP."""
        stream = x, s
        norm, dropout = self.norm, self.dropout
        x, s, before = ahead(norm, *stream)
        if dropout.idle:
            stream = self.attention(x, s, batch, before, stream)
        else:
            stream = add(stream, dropout(*self.attention(x, s, batch, before)))
        x, s, before = ahead(norm, *stream)
        return self.mlp(x, s, batch.reference, before, stream)


def compile_regions(net: nn.Module, blocks: Iterable[nn.Module], **options: Any) -> None:
    """Compile each block by itself, with sizes left open: equal blocks share one compilation, so depth costs nothing."""
    for block in blocks:
        block.compile(**{"dynamic": True, "fullgraph": True, **options})
    if _once_differentiable not in net._forward_hooks.values():
        net.register_forward_hook(_once_differentiable)


def _once_differentiable(net: nn.Module, inputs: Any, outputs: Stream) -> Stream:
    """Refuse second derivatives while blocks are compiled; those of a copy are not."""
    compiled = any(module._compiled_call_impl is not None for module in net.modules())
    return _Once.apply(*outputs) if compiled and torch.is_grad_enabled() else outputs


class _Once(torch.autograd.Function):
    """The identity, whose gradient has none."""

    @staticmethod
    def forward(ctx: Any, *outputs: Tensor) -> tuple[Tensor, ...]:
        return tuple(y.view_as(y) for y in outputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "create_graph=True: a compiled network cannot be differentiated twice; copy.deepcopy(net) is eager and can"
            )
        return grads
