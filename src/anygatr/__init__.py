"""Equivariant transformers from any geometric algebra."""

import sys
from importlib import import_module
from types import ModuleType
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
    "GATr": "nn.gatr",
    "ConditionalGATr": "nn.conditional",
    "AxialGATr": "nn.axial",
    "model": "interface.model",
    "summary": "summary",
}

__version__ = "0.1.0"
__all__ = sorted(_HOME)


class _Package(ModuleType):
    """A package whose public names win over its submodules: `anygatr.equivariance.expressivity` is always the function."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'anygatr' has no attribute {name!r}; it offers {', '.join(__all__)}")
    return getattr(import_module(f"anygatr.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
