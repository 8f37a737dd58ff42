"""What is known of a geometry before any training: its counted maps and products, what it can embed, what it can build."""

from dataclasses import dataclass
from functools import lru_cache

from anygatr.equivariance.expressivity import expressivity
from anygatr.lab.config.model_names import base_name, has_mirrors
from anygatr.spaces.presets import geometry

MAX_DIM = 3  # beyond, solving for all bilinear maps takes longer than a reader waits


@dataclass(frozen=True)
class Theory:
    """Counts of one geometry."""

    blades: int
    maps: int
    """Equivariant linear maps of one multivector."""
    products: tuple[str, ...]
    kinds: tuple[str, ...]
    """Kinds of objects it embeds without loss."""
    built: int | None
    """Bilinear equivariant maps that its products and linear maps build; None where it was not solved for."""
    total: int | None
    """All bilinear equivariant maps."""

    @property
    def pieces(self) -> int:
        """Linear maps times products: the different paths through one layer."""
        return self.maps * len(self.products)


@lru_cache
def theory(name: str, dim: int) -> Theory:
    """The counts of a preset in R^dim, or of one without mirrors: "iP,mirrors=false".

    A product that is odd under mirrors (the join) is equivariant under SE(dim) only, so there it is judged.
    """
    geo = geometry(base_name(name), dim, has_mirrors(name))
    built, total = None, None
    if dim <= MAX_DIM:
        proper = geometry(base_name(name), dim, mirrors=False) if geo.needs_reference else geo
        found = expressivity(proper.symmetry, 2, geo.products)
        built, total = found.rank, found.total
    return Theory(geo.algebra.dim, len(geo.linear_basis), geo.products, geo.kinds, built, total)
