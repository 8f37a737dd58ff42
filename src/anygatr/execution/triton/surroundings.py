"""What results and times of kernels depend on besides their arguments: device, driver, versions, our own sources."""

import hashlib
from functools import cache
from pathlib import Path

import torch
import triton

import anygatr

DRIVER = Path("/proc/driver/nvidia/version")


@cache
def platform(device: torch.device) -> tuple[object, ...]:
    """What a kernel's results and times depend on besides its arguments."""
    software = triton.__version__, torch.__version__, sources()
    if device.type != "cuda":
        return "interpreter", *software
    properties = torch.cuda.get_device_properties(device)
    driver = DRIVER.read_text(errors="replace") if DRIVER.exists() else ""
    return properties.name, properties.major, properties.minor, driver, torch.version.cuda, *software


@cache
def sources() -> str:
    """A digest of the kernels and of the operations that they are compared with."""
    package = Path(anygatr.__file__).parent
    files = sorted(path for folder in ("execution/triton", "ops") for path in (package / folder).glob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
