"""How long solving for equivariant maps takes, and how much memory: said before it starts, refused beyond the machine."""

import warnings

from anygatr.lab.system.memory import limit

SECONDS, LINEAR_BYTES, BYTES = 4e-8, 20, 1
"""Per unit of work, measured on one core: G(9,0,0) at order 1 takes 5 s and 2.3 GB, C at order 5 takes 38 s and 0.8 GB."""
LONG = 20.0
"""Seconds from which on a warning says how long it takes."""


def solving(blades: int, order: int = 1) -> tuple[float, float]:
    """About how many seconds and bytes it takes to solve for the maps of `order` multivectors with so many blades."""
    work = float(blades) ** max(order + 1, 3)
    return SECONDS * work, work * (LINEAR_BYTES if order == 1 else BYTES)


def check_effort(what: str, blades: int, order: int = 1, seconds: float = 0.0) -> None:
    """Warn if solving takes long, `seconds` at least; raise a ValueError if it needs more memory than there is."""
    estimated, size = solving(blades, order)
    if size > limit():
        raise ValueError(
            f"{what} needs about {size / 1e9:.3g} GB to solve for its maps, but {limit() / 1e9:.3g} GB may be used here; "
            "choose a smaller dimension or order"
        )
    if max(seconds, estimated) > LONG:
        warnings.warn(f"{what} takes about {_duration(max(seconds, estimated))}; stop it with Ctrl-C", stacklevel=3)


def _duration(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds > 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} seconds"
