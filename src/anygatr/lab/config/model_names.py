"""Names of models: a preset or a baseline, perhaps with overrides, such as "C,norm=abs" or "iP,mirrors=false". No torch."""

from typing import Any

from anygatr.lab.config.recipe import LARGE

MIRRORS = {"true": True, "false": False}
"""How `mirrors=` may be written, in any case."""


def base_name(name: str) -> str:
    """The preset or baseline of a name: "iP" of "iP,mirrors=false"."""
    return name.split(",")[0]


def overrides(name: str) -> dict[str, str]:
    """What a name changes: {"mirrors": "false"} for "iP,mirrors=false"."""
    found = {}
    for word in name.split(",")[1:]:
        key, sign, value = word.partition("=")
        if not sign:
            raise ValueError(f"model={name!r}: {word!r} is not of the form name=value; write for example C,norm=abs")
        found[key.strip()] = value.strip()
    return found


def has_mirrors(name: str) -> bool:
    """Whether the group of a model's geometry has mirrors: all but those with mirrors=false."""
    value = overrides(name).get("mirrors", "true")
    if value.lower() not in MIRRORS:
        raise ValueError(f"model={name!r}: mirrors={value!r} is neither true nor false")
    return MIRRORS[value.lower()]


def large_overrides(name: str) -> dict[str, Any]:
    """The attention that a name asks for: {"large": "anchors", "anchors": 64} for "iP,large=anchors,anchors=64"."""
    found = dict[str, Any]()
    for key, value in overrides(name).items():
        if key == "large":
            found[key] = value
        elif key in LARGE:
            if not value.isdecimal():
                raise ValueError(f"model={name!r}: {key}={value!r} is not a number of tokens; write for example {key}=64")
            found[key] = int(value)
    return found


def without_large(name: str) -> str:
    """The name without what it says about attention."""
    kept = [f"{key}={value}" for key, value in overrides(name).items() if key not in LARGE]
    return ",".join([base_name(name), *kept])
