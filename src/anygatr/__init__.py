"""Equivariant transformers from any geometric algebra."""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

_HOME = {
    "Algebra": "algebra",
    "Symmetry": "symmetry",
    "pin": "symmetry",
    "spin": "symmetry",
    "euclidean": "symmetry",
    "symmetry_of": "symmetry",
    "linear_maps": "solver",
    "multilinear_maps": "solver",
    "invariants": "solver",
    "expressivity": "expressivity",
    "construct": "expressivity",
    "Geometry": "geometry",
    "geometry": "presets",
    "Width": "nn.width",
    "GATr": "nn.gatr",
    "ConditionalGATr": "nn.conditional",
    "AxialGATr": "nn.axial",
    "model": "model",
    "summary": "summary",
}

__version__ = "0.1.0"
__all__ = sorted(_HOME)


class _Package(ModuleType):
    """A package whose public names win over its submodules: `anygatr.expressivity` is always the function."""

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
