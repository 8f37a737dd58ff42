"""Doors for people who come from other libraries: PyTorch Geometric, ASE, meshes, .xyz files. None of them is required."""

from importlib import import_module
from typing import Any

_HOME = {
    "from_pyg": "adapters.pyg",
    "from_ase": "adapters.atoms",
    "Calculator": "adapters.calculator",
    "from_mesh": "adapters.mesh",
    "read_xyz": "lab.data.files.xyz",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'anygatr.adapters' has no attribute {name!r}; it offers {', '.join(__all__)}")
    return getattr(import_module(f"anygatr.{_HOME[name]}"), name)
