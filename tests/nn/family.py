"""The geometries, layers and inputs the layer tests run over."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from anygatr.execution import execute
from anygatr.nn import MLP, Block, EquiLinear, GatedGELU, GeometricBilinear, LayerNorm, SelfAttention, Width
from anygatr.ops.batch import Batch, join_reference
from anygatr.spaces.geometry import Geometry
from anygatr.spaces.presets import geometry

WIDTH = Width(4, 6)
GEOMETRIES = [
    *(geometry(name, dim, mirrors) for name in ("E", "P", "iP", "C") for dim in (2, 3) for mirrors in (True, False)),
    *(geometry("L", 3, mirrors) for mirrors in (True, False)),
]
SMALL = [geometry("E", 2), geometry("iP", 2), geometry("C", 1, mirrors=False), geometry("L", 2)]


def name(geo: Geometry) -> str:
    return f"{geo.name}{geo.dim}{'+' if len(geo.symmetry.mirrors) else '-'}"


def _linear(geo: Geometry) -> nn.Module:
    return EquiLinear(geo, WIDTH, Width(3, 5))


def _norm(geo: Geometry) -> nn.Module:
    return LayerNorm(geo)


def _gate(geo: Geometry) -> nn.Module:
    return GatedGELU()


def _bilinear(geo: Geometry) -> nn.Module:
    return GeometricBilinear(geo, WIDTH, WIDTH * 2)


def _attention(geo: Geometry) -> nn.Module:
    return SelfAttention(geo, WIDTH, heads=2)


def _multi_head(geo: Geometry) -> nn.Module:
    return SelfAttention(geo, WIDTH, heads=4, multi_query=False, reinsert=2)


def _mlp(geo: Geometry) -> nn.Module:
    return MLP(geo, WIDTH)


def _block(geo: Geometry) -> nn.Module:
    return Block(geo, WIDTH, heads=2, rope=True)


LAYERS: dict[str, Callable[[Geometry], nn.Module]] = {
    "linear": _linear,
    "norm": _norm,
    "gate": _gate,
    "bilinear": _bilinear,
    "attention": _attention,
    "multi_head": _multi_head,
    "mlp": _mlp,
    "block": _block,
}


def stream(
    geo: Geometry, rng: torch.Generator, tokens: tuple[int, ...] = (2, 5), width: Width = WIDTH
) -> tuple[Tensor, Tensor]:
    x = torch.randn(geo.algebra.dim, *tokens, width.mv, generator=rng, dtype=torch.float64)
    return x, torch.randn(*tokens, width.s, generator=rng, dtype=torch.float64)


def run(layer: nn.Module, geo: Geometry, x: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """Run a layer as its network would, with what that would tell it about the batch."""
    number = join_reference(x, geo)
    if isinstance(layer, SelfAttention | Block):
        return execute(layer, x, s, Batch(number, x[..., :2], scalars=s[..., :0]))
    if isinstance(layer, GeometricBilinear | MLP):
        return execute(layer, x, s, number)
    return execute(layer, x, s)


def caller(layer: nn.Module, geo: Geometry) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    return lambda x, s: run(layer, geo, x, s)


def moved(geo: Geometry, versor: Tensor, x: Tensor, stored: bool = True) -> Tensor:
    """The action on blade-major multivectors, as layers store them or on the algebra's blades, in float64."""
    action = geo.algebra.action(versor).double()
    return torch.einsum("ij,j...->i...", geo.basis.of(action) if stored else action, x.double())


def defect(
    call: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
    geo: Geometry,
    x: Tensor,
    s: Tensor,
    versor: Tensor,
    stored: bool = True,
) -> float:
    """Relative difference between moving what goes in and moving what comes out."""
    with torch.no_grad():
        (y, t), (y_moved, t_moved) = call(x, s), call(moved(geo, versor, x, stored).to(x), s)
    expected = moved(geo, versor, y, stored)
    scale = max(float(y_moved.abs().max()), float(expected.abs().max()), 1e-30)
    scalars = float((t_moved - t).abs().max()) / max(float(t.abs().max()), 1e-30) if t.numel() else 0.0
    return max(float((y_moved - expected).abs().max()) / scale, scalars)
