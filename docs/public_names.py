"""Griffe extension: the reference may say `anygatr.GATr`, although the package imports its names when asked for them."""

from typing import Any

import griffe

import anygatr


class PublicNames(griffe.Extension):
    """Add every name of `anygatr.__all__` that static analysis cannot see."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Link each name to the object it is in Python, wherever that lives now."""
        for name in anygatr.__all__ if pkg.path == "anygatr" else ():
            found = getattr(anygatr, name)
            target = f"{found.__module__}.{found.__qualname__}"
            if name not in pkg.members:
                pkg.set_member(name, griffe.Alias(name, target))
            elif pkg.members[name].is_module:  # a function in a module of its name: an alias would point to itself
                pkg.set_member(name, pkg[target.removeprefix("anygatr.")])
