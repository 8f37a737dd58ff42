"""What a kind of data says about itself."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from anygatr.spaces import substitutes
from anygatr.spaces.pieces import PIECES, Pieces
from anygatr.spaces.space import Space


@dataclass(frozen=True)
class Kind:
    """One kind of object: how it is written down, where it exists, and how it becomes a multivector and back."""

    columns: tuple[tuple[str, str], ...]
    """Its pieces in the order of its columns, as (piece, role): a name in `pieces.PIECES`, and how data may be scaled.

    A "position" or "length" is divided by the one unit of length of the data, a "free" piece by a unit of its own; an
    "invariant" is standardised, the only role that may be shifted; a "pseudo" is divided but never shifted, because it
    changes sign under mirrors; a "direction", "rotor" or "code" is left alone. What has no columns is no kind of data."""
    exists: Callable[[Space], bool]
    """Which spaces have it."""
    embed: Callable[..., Tensor]
    """(geo, *pieces) to the multivector; placed kinds take the origin as well."""
    extract: Callable[..., Tensor | Pieces]
    """(geo, mv) to its pieces; placed kinds take the origin as well."""
    carried: bool = False
    """Whether it is read from the flat that carries a multivector."""
    flipped: bool = False
    """Whether fields hold it times the pseudoscalar, where that has an inverse: what is odd under mirrors becomes even."""
    substitute: tuple[str, ...] = ()
    """The kinds that stand for it where it does not exist."""
    divide: Callable[..., Pieces] = substitutes.unchanged
    """(geo, origin, *pieces) to the pieces of its substitutes."""
    unite: Callable[..., Pieces] = substitutes.unchanged
    """The inverse of `divide`."""
    move: Callable[..., Pieces] | None = None
    """(geo, moved pieces, matrix, translation) to its pieces, where moving each piece by itself is not enough."""
    coded: bool = False
    """Whether its column is a code, 0, 1, ..., of so many classes as the declaration says: "category*14". Each class is a
    scalar, 1 for the tokens of that class and 0 for others, and so has a learned vector in the first linear map."""
    spatial: bool = False
    """Whether lengths and angles of space alone make it, so that there is none where boosts change them."""
    synonyms: tuple[str, ...] = ()
    """Words that people write for it."""
    note: str = ""
    """What to add when it does not exist."""

    @property
    def pieces(self) -> tuple[str, ...]:
        """The names of its pieces."""
        return tuple(piece for piece, _ in self.columns)

    @property
    def placed(self) -> bool:
        """Whether it depends on where coordinates are measured from."""
        return any(PIECES[piece].placed for piece in self.pieces)
