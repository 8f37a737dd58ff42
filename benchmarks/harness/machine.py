"""What was measured on, and with which versions."""

import os
import platform
from importlib.metadata import version
from pathlib import Path


def machine() -> dict[str, object]:
    """Processor, system and versions."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **{package: version(package) for package in ("anygatr", "torch", "numpy")},
    }


def with_peers() -> dict[str, object]:
    """The machine and the versions of everything our networks are compared with."""
    return {**machine(), **{package: version(package) for package in ("lgatr", "opt_einsum")}}
