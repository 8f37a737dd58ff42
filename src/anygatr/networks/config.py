"""What a network was built with, so that it can be described, saved and built again."""

from collections.abc import Mapping
from typing import Any


def arguments(local: Mapping[str, Any]) -> dict[str, Any]:
    """A constructor's arguments but the geometry, from its `locals()` before it assigns others; `options` joined in."""
    named = {key: value for key, value in local.items() if key not in ("self", "geometry", "geo", "options", "__class__")}
    copied = {key: dict(value) if isinstance(value, Mapping) else value for key, value in named.items()}
    return {**copied, **local.get("options", {})}
