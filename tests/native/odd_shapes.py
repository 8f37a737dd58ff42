"""Every C kernel on shapes that are no multiple of anything; `make sanitize` runs it with address and UB sanitisers.

A report of a sanitiser ends the process with an error; results are only checked to be finite.
"""

import sys
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).parents[1] / "nn"))
from family import GEOMETRIES, name

import anygatr
from anygatr.execution import execute
from anygatr.nn import Block, Width
from anygatr.ops.batch import Batch, join_reference
from anygatr.ops.ragged import pack
from anygatr.reach import narrow
from anygatr.spaces.geometry import Geometry

CHANNELS = (1, 3, 5, 7)
TOKENS = (1, 63, 65)


def run_block(geo: Geometry, width: Width, tokens: int, real: torch.dtype, layout: str, **options: object) -> None:
    """A block forwards and backwards, with and without derivatives: linear maps with every prologue, and attention."""
    block = Block(geo, width, heads=1, **options).to(real)
    x, s = torch.randn(geo.algebra.dim, tokens, width.mv, dtype=real), torch.randn(tokens, width.s, dtype=real)
    mask = torch.arange(tokens) % 3 != 1 if layout == "masked" else None
    packed = pack(torch.tensor([0, tokens // 3, tokens] if tokens > 2 else [0, tokens])) if layout == "packed" else None
    batch = Batch(join_reference(x, geo, mask, packed), x[..., :0], mask, packed, s[..., :0])
    with torch.no_grad():
        results = [*execute(block, x, s, batch)]
    leaves = [t.requires_grad_() for t in (x, s) if t.numel()] + [p for p in block.parameters() if p.requires_grad]
    y, t = execute(block, x, s, batch)
    results += torch.autograd.grad(y.square().sum() + t.square().sum(), leaves, allow_unused=True)
    assert all(bool(r.isfinite().all()) for r in results if r is not None)


def run_network(geo: Geometry, real: torch.dtype) -> None:
    """A narrowed network: plans that leave blades out."""
    net = anygatr.GATr(geo, Width(1, 1), Width(3, 5), Width(1, 1), blocks=1, heads=1).to(real)
    narrow(net, (1,), (1,))
    x, s = net.example(65)
    y, t = net(x, s)
    (y.square().sum() + t.square().sum()).backward()


def main() -> None:
    anygatr.backend("c")  # says why where it is not available
    torch.manual_seed(0)
    torch.set_num_threads(2)
    for i, geo in enumerate(GEOMETRIES):
        real, channels = (torch.float32, torch.float64)[i % 2], CHANNELS[i % len(CHANNELS)]
        for c in (channels, CHANNELS[(i + 1) % len(CHANNELS)]):
            for n, layout in zip(
                (*TOKENS, *TOKENS), ("dense", "masked", "packed", "packed", "dense", "masked"), strict=True
            ):
                run_block(geo, Width(c, c), n, real, layout, multi_query=bool(i % 3), scalar_gelu=("exact", "tanh")[i % 2])
            run_block(geo, Width(c, 0), 65, real, "dense")
        run_network(geo, real)
        print(f"{name(geo)} {real} {channels} channels: no report", flush=True)
    run_block(GEOMETRIES[0], Width(3, 5), 600, torch.float32, "dense")  # more than a block of keys
    run_block(GEOMETRIES[8], Width(1, 3), 600, torch.float64, "masked")


if __name__ == "__main__":
    main()
