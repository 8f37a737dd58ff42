"""Equivariant transformers from any geometric algebra."""

import gc
from importlib import import_module
from typing import Any

_HOME = {
    "Algebra": "algebra",
    "Symmetry": "equivariance.symmetry",
    "pin": "equivariance.symmetry",
    "spin": "equivariance.symmetry",
    "euclidean": "equivariance.symmetry",
    "symmetry_of": "equivariance.symmetry",
    "linear_maps": "equivariance.solver",
    "multilinear_maps": "equivariance.solver",
    "invariants": "equivariance.solver",
    "expressivity": "equivariance.expressivity",
    "construct": "equivariance.expressivity",
    "Geometry": "spaces.geometry",
    "geometry": "spaces.presets",
    "Width": "nn.width",
    "GATr": "networks.gatr",
    "ConditionalGATr": "networks.conditional",
    "AxialGATr": "networks.axial",
    "PooledGATr": "networks.pooled",
    "model": "interface.model",
    "sight": "interface.sight",
    "neighbours": "interface.cells",
    "summary": "costs",
    "backend": "execution",
    "backends": "execution",
    "load_run": "lab.training.trained",
}
"""Public names by the module they live in, imported when they are first asked for: `import anygatr` does not load torch."""

__version__ = "0.2.0"
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'anygatr' has no attribute {name!r}; it offers {', '.join(__all__)}")
    was_on = gc.isenabled()
    gc.disable()  # a collection walks all of torch's objects, which takes longer than the import that triggers it
    try:
        return getattr(import_module(f"anygatr.{_HOME[name]}"), name)
    finally:
        if was_on:
            gc.enable()


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
