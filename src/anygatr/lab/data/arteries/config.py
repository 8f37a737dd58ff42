"""Settings of the artery generator; imports neither torch nor scipy, so that the command line starts at once."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

ResolutionName = Literal["coarse", "standard", "fine"]

MESHES: dict[str, tuple[int, int, int]] = {
    "coarse": (2, 2, 36),
    "standard": (3, 2, 46),
    "fine": (4, 3, 72),
}
"""Core quads per side, rings and axial elements of each resolution."""


@dataclass(frozen=True)
class ArteryConfig:
    """Make random single coronary arteries with the wall shear stress of their steady flow."""

    out: Path
    """HDF5 file to write, in the layout of the published data set; finished arteries wait beside it in OUT.parts."""
    count: int = 50
    """Number of arteries; a larger count later continues the same file."""
    seed: int = 0
    """Artery n is a function of (seed, n) alone."""
    resolution: ResolutionName = "standard"
    """Mesh of the flow solver: about 1200, 2200 or 4600 wall nodes before the extensions are cut."""
    workers: int = 1
    """Processes; each uses one core and 0.8 GB at standard, about 3.5 GB at fine resolution."""
    tolerance: float = 1e-8
    """Unbalanced force over the force held by the wall at which a flow counts as solved."""
    attempts: int = 20
    """Geometries drawn for one artery before the run stops."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "out", Path(self.out))
        if self.out.suffix not in {".h5", ".hdf5"}:
            raise ValueError(f"out={self.out} must end in .h5 or .hdf5")
        if self.resolution not in MESHES:
            raise ValueError(f"resolution={self.resolution!r} is unknown; choose one of {', '.join(MESHES)}")
        for name in ("count", "workers", "attempts"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        if self.count > 10_000:
            raise ValueError(f"count={self.count} must be at most 10000: groups are named sample_NNNN")
        if self.seed < 0:
            raise ValueError(f"seed={self.seed} must not be negative")
        if not 1e-12 <= self.tolerance <= 1e-3:
            raise ValueError(f"tolerance={self.tolerance} must lie between 1e-12 and 1e-3; 1e-8 is usual")

    @property
    def parts(self) -> Path:
        """Directory of the finished arteries that are not yet in the file."""
        return self.out.with_name(self.out.name + ".parts")

    def determines(self) -> dict[str, Any]:
        """The settings on which the content of an artery depends."""
        return {k: v for k, v in asdict(self).items() if k in {"seed", "resolution", "tolerance"}}
