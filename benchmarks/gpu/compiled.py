"""Kernels of a compiled block's training step, counted in the code that inductor writes.

`python -m benchmarks.gpu.compiled iP C` prints them.

The code is that for CPUs, because inductor does not compile for a card that is not there: a fused loop nest counts as one
kernel, a call of a library (matrix products, attention) as one. Fusion for a GPU may differ.
"""

import re
import sys

import torch
from torch._inductor.utils import run_fw_bw_and_get_code

from anygatr.nn import Block, Width
from anygatr.ops.batch import Batch
from anygatr.spaces.presets import geometry
from benchmarks.speed.networks.contestants import CONFIGURATIONS

LIBRARY = r"(extern_kernels\.\w+|aten\.\w+|torch\.ops\.\w+\.\w+)"
CALLED = re.compile(rf"^\s+(cpp_fused\w*)\(|^\s+(?:buf\d+ = )?{LIBRARY}[.\w]*\(", re.MULTILINE)


def kernels(preset: str, configuration: str = "a", tokens: tuple[int, int] = (4, 16)) -> tuple[int, int]:
    """Fused kernels and calls of libraries, forward and backward; with fewer tokens than the configuration has."""
    size, geo = CONFIGURATIONS[configuration], geometry(preset)
    block = Block(geo, Width(size.mv, size.s), size.heads)
    block.compile(dynamic=True, fullgraph=True)
    x = torch.randn(geo.algebra.dim, *tokens, size.mv, requires_grad=True)
    s = torch.randn(*tokens, size.s, requires_grad=True)
    batch = Batch(torch.ones(*tokens, 1), x[..., :0].detach(), scalars=s[..., :0].detach())

    def step() -> torch.Tensor:
        y, t = block(x, s, batch)
        return y.square().sum() + t.square().sum()

    _, code = run_fw_bw_and_get_code(step)
    found = [match for text in code for match in CALLED.findall(text)]
    return sum(bool(fused) for fused, _ in found), sum(bool(called) for _, called in found)


def main() -> None:
    """Print the counts of the presets that are named."""
    for preset in sys.argv[1:] or ["iP", "C"]:
        fused, called = kernels(preset)
        print(f"{preset}: {fused + called} kernels, {fused} fused and {called} of libraries")


if __name__ == "__main__":
    main()
