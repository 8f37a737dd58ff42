"""Settings of the mathematician's commands: algebra, maps, expressivity. Imports neither torch nor numpy."""

from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from anygatr.lab.config.threads import ThreadOptions

Product = Literal["geometric", "outer", "join"]


@dataclass(frozen=True)
class AlgebraConfig(ThreadOptions):
    """Show the blades, the metric and the product table of G(p, q, r)."""

    p: Positional[int]
    """Generators squaring to +1."""
    q: Positional[int] = 0
    """Generators squaring to -1."""
    r: Positional[int] = 0
    """Generators squaring to 0."""
    product: Product = "geometric"
    """Which product to tabulate."""
    json: bool = False
    """Print JSON for machines instead of tables."""


@dataclass(frozen=True)
class MapsConfig(ThreadOptions):
    """Solve for every equivariant map of a geometry and print it as a formula, with counts per grade."""

    geometry: Annotated[Positional[str], arg(metavar="GEOMETRY")]
    """E, P, iP, C or L, or a signature such as 4,1,0."""
    group: str | None = None
    """E1, E2, E3 (with mirrors), SE1, SE2, SE3, pin or spin. Default: E3, and pin for L and signatures."""
    order: int = 1
    """How many multivectors the maps take."""
    json: bool = False
    """Print JSON for machines instead of tables."""


@dataclass(frozen=True)
class ExpressivityConfig(ThreadOptions):
    """Find out which equivariant maps products and linear maps can build, and name what is missing."""

    geometry: Annotated[Positional[str], arg(metavar="GEOMETRY")]
    """E, P, iP, C or L, or a signature such as 4,1,0."""
    group: str | None = None
    """E1, E2, E3 (with mirrors), SE1, SE2, SE3, pin or spin. Default: E3, or SE3 when a product is odd under mirrors."""
    order: int = 2
    """How many multivectors the maps take."""
    products: tuple[Product, ...] = ("geometric",)
    """The bilinear products at hand."""
    linear: Literal["all", "paper"] = "all"
    """All equivariant linear maps, or only those the paper lists."""
    json: bool = False
    """Print JSON for machines instead of tables."""
