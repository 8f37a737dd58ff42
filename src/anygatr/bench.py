"""How fast networks are on this machine, as one table: `python -m anygatr.bench --help`.

Ours by torch operations, compiled and by the fastest backend, in each geometry; a Transformer of the same width; L-GATr and
the official GATr where they are installed. A forward pass, a training step, and on CUDA devices the peak memory of a step.
"""

import argparse
import importlib.util
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from anygatr.execution import backend, backends
from anygatr.networks.gatr import GATr
from anygatr.nn.width import Width
from anygatr.spaces.presets import geometry

SEND = "Send this table, with the lines above it, as an issue of the project's repository: it has none from GPUs yet."


class Size(NamedTuple):
    """A batch and a network."""

    batch: int
    tokens: int
    blocks: int
    mv: int
    s: int
    heads: int


class Row(NamedTuple):
    """One network: milliseconds of a forward pass and of a training step, peak megabytes of a step where it is known."""

    name: str
    forward: float
    step: float
    memory: float | None


class Contestant(NamedTuple):
    """A network, what goes into it, and how it is run."""

    name: str
    net: nn.Module
    inputs: tuple[Tensor, ...]
    how: Callable[[], AbstractContextManager[Any]] = nullcontext


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    given = _parser().parse_args(arguments)
    device, size = given.device, Size(*(getattr(given, field) for field in Size._fields))
    dtype = {"float32": None, "bfloat16": torch.bfloat16}[given.precision]
    print(f"torch {torch.__version__} on {_name(device)}, {given.precision}, {size}")
    print(backends(), end="\n\n")
    print(f"| {'network':<22} | forward, ms | step, ms | peak memory, MB |\n|---|---|---|---|")
    for one in _contestants(given.geometries, size, device, given.compile):
        try:
            row = measure(one, device, dtype, given.steps)
        except Exception as error:  # a peer, a compiler or a full memory must not cost the other rows
            print(f"| {one.name:<22} | failed: {str(error).splitlines()[0][:80]} | | |", flush=True)
            continue
        memory = "" if row.memory is None else f"{row.memory:.0f}"
        print(f"| {row.name:<22} | {row.forward:.2f} | {row.step:.2f} | {memory} |", flush=True)
    print(f"\n{SEND}")


def measure(one: Contestant, device: torch.device, dtype: torch.dtype | None, steps: int) -> Row:
    """Medians over some calls, after two that compile and check what a first call would."""

    def run() -> Tensor:
        with one.how(), torch.autocast(device.type, dtype, enabled=dtype is not None):
            out = one.net(*one.inputs)
        out = out if isinstance(out, tuple) else (out,)
        return torch.stack([y.float().square().mean() for y in out if y.numel()]).sum()

    def forward() -> None:
        with torch.no_grad():
            run()

    def step() -> None:
        one.net.zero_grad()
        run().backward()

    times = []
    for call in (forward, step):
        for _ in range(2):
            call()
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        times.append(median(_timed(call, device) for _ in range(steps)))
    memory = torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else None
    return Row(one.name, 1e3 * times[0], 1e3 * times[1], memory)


def _timed(call: Callable[[], None], device: torch.device) -> float:
    _wait(device)
    start = time.perf_counter()
    call()
    _wait(device)
    return time.perf_counter() - start


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _contestants(geometries: Sequence[str], size: Size, device: torch.device, compiled: bool) -> Iterator[Contestant]:
    """One after the other, so that only one is in memory."""
    fast = {"cuda": "triton", "cpu": "c"}.get(device.type)
    for name in geometries:
        yield Contestant(f"{name}, torch", *_ours(name, size, device), lambda: backend("torch"))
        if compiled:
            net, inputs = _ours(name, size, device)
            net.compile()
            yield Contestant(f"{name}, compiled", net, inputs)
        if fast is not None and dict(backends())[fast] is None:
            yield Contestant(f"{name}, {fast}", *_ours(name, size, device))  # what "auto" chooses
    yield Contestant("Transformer", *_transformer(size, device))
    for peer, make in (("lgatr", _lgatr), ("gatr", _gatr)):
        if importlib.util.find_spec(peer) is not None:
            yield Contestant(peer, *make(size, device))


def _ours(name: str, size: Size, device: torch.device) -> tuple[GATr, tuple[Tensor, ...]]:
    one, geo = Width(1, 1), geometry(name)
    net = GATr(geo, one, Width(size.mv, size.s), one, blocks=size.blocks, heads=size.heads).to(device)
    return net, _inputs(size, geo.algebra.dim, device)


def _inputs(size: Size, blades: int, device: torch.device) -> tuple[Tensor, ...]:
    shape = size.batch, size.tokens
    return torch.randn(*shape, 1, blades, device=device), torch.randn(*shape, 1, device=device)


def _transformer(size: Size, device: torch.device) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """As many numbers for each token as a network of G(3, 0, 1) has."""
    width = 16 * size.mv + size.s
    layer = nn.TransformerEncoderLayer(width, size.heads, 2 * width, 0.0, "gelu", batch_first=True, norm_first=True)
    net = nn.TransformerEncoder(layer, size.blocks, enable_nested_tensor=False).to(device)
    return net, (torch.randn(size.batch, size.tokens, width, device=device),)


def _lgatr(size: Size, device: torch.device) -> tuple[nn.Module, tuple[Tensor, ...]]:
    from lgatr import LGATr

    net = LGATr(
        num_blocks=size.blocks,
        in_mv_channels=1,
        out_mv_channels=1,
        hidden_mv_channels=size.mv,
        in_s_channels=1,
        out_s_channels=1,
        hidden_s_channels=size.s,
        attention={"num_heads": size.heads, "multi_query": True},
        mlp={},
    )
    return net.to(device), _inputs(size, 16, device)


def _gatr(size: Size, device: torch.device) -> tuple[nn.Module, tuple[Tensor, ...]]:
    from gatr import GATr as Official
    from gatr import MLPConfig, SelfAttentionConfig

    net = Official(
        in_mv_channels=1,
        out_mv_channels=1,
        hidden_mv_channels=size.mv,
        in_s_channels=1,
        out_s_channels=1,
        hidden_s_channels=size.s,
        num_blocks=size.blocks,
        attention=SelfAttentionConfig(num_heads=size.heads),
        mlp=MLPConfig(),
    )
    return net.to(device), _inputs(size, 16, device)


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m anygatr.bench", description=__doc__)
    default = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", type=_device, default=default, help=f"where networks run, {default} if not given")
    parser.add_argument("--geometries", nargs="+", type=_preset, default=["iP", "C"], help="presets in 3D")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32", help="bfloat16: under autocast")
    parser.add_argument("--steps", type=_positive, default=10, help="calls of which the median is taken")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True, help="compiled networks, too")
    meanings = ("samples", "tokens of a sample", "blocks", "multivector channels", "scalar channels", "heads of attention")
    for name, number, meaning in zip(Size._fields, (64, 16, 4, 16, 128, 8), meanings, strict=True):
        parser.add_argument(f"--{name}", type=_positive, default=number, help=f"{meaning}, {number} if not given")
    return parser


def _device(name: str) -> torch.device:
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:  # the latter where torch was built without it
        why = str(error).splitlines()[0].rstrip(".")
        raise argparse.ArgumentTypeError(f"{name!r} cannot be used here: {why}; try --device cpu") from None


def _preset(name: str) -> str:
    try:
        return geometry(name).name
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a positive integer")
    return int(text)


if __name__ == "__main__":
    main()
