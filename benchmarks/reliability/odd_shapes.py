"""Every C kernel of one geometry on shapes that are no multiple of anything, for `benchmarks.reliability.sanitize`.

A report of a sanitiser ends the process with an error; results are only checked to be finite.
"""

import itertools
import sys

import torch

import anygatr
from anygatr.execution import execute
from anygatr.nn import Block, Width
from anygatr.ops.batch import Batch, join_reference
from anygatr.ops.ragged import pack
from anygatr.reach import narrow
from anygatr.spaces.geometry import Geometry
from anygatr.spaces.presets import geometry

GEOMETRIES = {
    f"{name}{dim}{'+' if mirrors else '-'}": (name, dim, mirrors)
    for name, dim in (*itertools.product(("E", "P", "iP", "C"), (2, 3)), ("L", 3))
    for mirrors in (True, False)
}
"""Name, dimension, mirrors."""
CHANNELS = (1, 3, 5, 7)
TOKENS = (1, 63, 65)
LAYOUTS = ("dense", "masked", "packed")


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


def run_narrowed(geo: Geometry, tokens: int, real: torch.dtype) -> None:
    """A narrowed network: kernels that leave blades out."""
    net = anygatr.GATr(geo, Width(1, 1), Width(3, 5), Width(1, 1), blocks=1, heads=1).to(real)
    narrow(net, (1,), (1,))
    x, s = net.example(tokens)
    y, t = net(x, s)
    (y.square().sum() + t.square().sum()).backward()


def run(name: str) -> int:
    """All shapes of a geometry: how many networks went forwards and backwards."""
    place = list(GEOMETRIES).index(name)
    geo, real = geometry(*GEOMETRIES[name]), (torch.float32, torch.float64)[place % 2]
    options = {"multi_query": bool(place % 3), "scalar_gelu": ("exact", "tanh")[place % 2]}
    shapes = [*itertools.product(CHANNELS, TOKENS, LAYOUTS)]
    for channels, tokens, layout in shapes:
        run_block(geo, Width(channels, channels), tokens, real, layout, **options)
    for channels in CHANNELS:
        run_block(geo, Width(channels, 0), 65, real, "dense")
    for tokens in TOKENS:
        run_narrowed(geo, tokens, real)
    run_block(geo, Width(3, 5), 600, real, LAYOUTS[place % 3])  # more than a block of keys
    return len(shapes) + len(CHANNELS) + len(TOKENS) + 1


if __name__ == "__main__":
    anygatr.backend("c")  # says why where it is not available
    torch.manual_seed(0)
    torch.set_num_threads(2)
    print(run(sys.argv[1]))
