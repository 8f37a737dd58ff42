"""What is compared: configurations, and each network as a pair of calls, a training step and an inference."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from anygatr import GATr, Width, geometry
from benchmarks.speed.networks.dense_reference import DenseGATr

GEOMETRIES = ("E", "P", "iP", "C")
COMPILED = " compiled"
OURS = (*GEOMETRIES, *(name + COMPILED for name in GEOMETRIES))
PEERS = ("transformer", "lgatr", "dense")
LGATR = {"subgroup": False, "sparse_gp": False, "sparse_linear": True}  # fastest of its settings without compiling
LGATR_COMPILED = {"subgroup": False, "sparse_gp": True, "sparse_linear": True}  # what it recommends to compile
WARM = 1024  # tokens that suffice to warm up what is not compiled for a shape


@dataclass(frozen=True)
class Configuration:
    """`batch` samples of `tokens` tokens through `blocks` blocks of `mv` multivector and `s` scalar channels."""

    batch: int
    tokens: int
    blocks: int
    mv: int
    s: int
    heads: int

    def cut(self, blocks: int | None) -> "Configuration":
        """The same with fewer blocks."""
        return self if blocks is None else replace(self, blocks=blocks)


CONFIGURATIONS = {
    "a": Configuration(64, 16, 10, 16, 128, 8),
    "b": Configuration(64, 16, 20, 32, 128, 8),
    "c": Configuration(1, 7000, 10, 8, 32, 4),
}


class Contestant(NamedTuple):
    """A network and what goes into it."""

    net: nn.Module
    inputs: tuple[Tensor, ...]
    compiled: bool

    def train(self) -> None:
        """Forward and backward."""
        loss = sum((y.square().mean() for y in self._outputs(self.inputs)), torch.zeros(()))
        loss.backward()
        self.net.zero_grad()

    @torch.no_grad()
    def infer(self) -> None:
        """Forward alone."""
        self._outputs(self.inputs)

    def warm(self) -> None:
        """Build, load and compile what a first call would."""
        few = self if self.compiled else self._replace(inputs=tuple(_first(x) for x in self.inputs))
        few.train()
        few.infer()

    def _outputs(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        out = self.net(*inputs)
        return out if isinstance(out, tuple) else (out,)


def contestant(name: str, size: Configuration, **options: Any) -> Contestant:
    """A network by its name: a geometry, "transformer", "lgatr" or "dense"; compiled where the name says so."""
    torch.manual_seed(0)
    plain = name.removesuffix(COMPILED)
    compiled = plain != name
    if plain == "transformer":
        return Contestant(*_transformer(size), compiled)
    if plain == "lgatr":
        net, blades = _lgatr(size, compiled), 16
    elif plain == "dense":
        ours = _ours("iP", size)
        net, blades = DenseGATr(ours), ours.geometry.algebra.dim
    elif plain in GEOMETRIES:
        net = _ours(plain, size, **options)
        blades = net.geometry.algebra.dim
        if compiled:
            net.compile()
    else:
        raise ValueError(f"model={name!r} is none of {', '.join((*OURS, *PEERS))}")
    return Contestant(
        net, (torch.randn(size.batch, size.tokens, 1, blades), torch.randn(size.batch, size.tokens, 1)), compiled
    )


def _ours(name: str, size: Configuration, **options: Any) -> GATr:
    one = Width(1, 1)
    return GATr(geometry(name), one, Width(size.mv, size.s), one, blocks=size.blocks, heads=size.heads, **options)


def _transformer(size: Configuration) -> tuple[nn.Module, tuple[Tensor, ...]]:
    width = 16 * size.mv + size.s
    layer = nn.TransformerEncoderLayer(
        width, size.heads, 2 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    )
    net = nn.TransformerEncoder(layer, size.blocks, enable_nested_tensor=False)
    return net, (torch.randn(size.batch, size.tokens, width),)


def _lgatr(size: Configuration, compiled: bool) -> nn.Module:
    from lgatr import LGATr

    net = LGATr(
        num_blocks=size.blocks,
        in_mv_channels=1,
        out_mv_channels=1,
        hidden_mv_channels=size.mv,
        in_s_channels=1,
        out_s_channels=1,
        hidden_s_channels=size.s,
        attention={"num_heads": size.heads, "multi_query": True, "attn_ratio": 2},
        mlp={"mlp_ratio": 2},
        primitives=LGATR_COMPILED if compiled else LGATR,
    )
    if compiled:
        for block in net.blocks:  # its own compile=True takes the whole network at once: minutes for each block
            block.compile()
    return net


def _first(x: Tensor) -> Tensor:
    return x[:, : max(1, WARM // x.shape[0])]
