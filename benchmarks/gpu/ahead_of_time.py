"""Compile Triton kernels for a GPU that is not there, and read from its assembler how many registers they take."""

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas
from triton.compiler import ASTSource

POINTERS = dict.fromkeys(("targets", "entries", "tiles", "pairs", "members", "runs"), "*i32")


class Usage(NamedTuple):
    """Of one kernel on one architecture."""

    registers: int
    spilled: int  # bytes, stores and loads


def usage(kernel: Any, constants: dict[str, Any], architecture: int, **options: Any) -> Usage:
    """What a kernel takes that is compiled with these constants."""
    return _assemble(compiled(kernel, constants, architecture, **options).asm["ptx"], architecture)


def compiled(kernel: Any, constants: dict[str, Any], architecture: int, pointer: str = "*fp32", **options: Any) -> Any:
    """A kernel with these constants; arguments without one are pointers, or sizes where it says so."""
    sizes = set(kernel.do_not_specialize or ())
    names = [p.name for p in kernel.params]
    signature = {
        name: "constexpr" if name in constants else "i32" if name in sizes else POINTERS.get(name, pointer) for name in names
    }
    aligned = {(names.index(n),): [["tt.divisibility", 16]] for n in names if signature[n].startswith("*")}
    source = ASTSource(kernel, signature, {(names.index(n),): v for n, v in constants.items()}, aligned)
    return triton.compile(source, target=GPUTarget("cuda", architecture, 32), options=options)


def _assemble(ptx: str, architecture: int) -> Usage:
    """What ptxas, which comes with Triton, says about a kernel."""
    suffix = "a" if architecture >= 90 else ""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.ptx"
        path.write_text(ptx, encoding="utf-8")
        done = subprocess.run(
            [
                get_ptxas(architecture).path,
                "-v",
                f"--gpu-name=sm_{architecture}{suffix}",
                path,
                "-o",
                Path(folder) / "kernel.cubin",
            ],
            capture_output=True,
            text=True,
            check=False,
        )
    said = done.stderr + done.stdout
    assert done.returncode == 0, said
    registers = re.search(r"Used (\d+) registers", said)
    assert registers is not None, said
    return Usage(int(registers[1]), sum(map(int, re.findall(r"(\d+) bytes spill", said))))
