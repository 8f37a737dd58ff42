"""How many channels a layer has: `Width(mv, s)` multivector and scalar channels."""

from typing import NamedTuple


class _Width(NamedTuple):
    mv: int
    s: int


class Width(_Width):
    """`mv` multivector channels and `s` scalar channels; either may be zero."""

    __slots__ = ()

    def __new__(cls, mv: int, s: int = 0) -> "Width":
        """Check the two counts."""
        for label, count in (("mv", mv), ("s", s)):
            if not isinstance(count, int) or isinstance(count, bool) or count < 0:
                raise ValueError(f"{label}={count!r} must be a non-negative integer number of channels; e.g. Width(16, 64)")
        return super().__new__(cls, mv, s)

    def __mul__(self, factor: int) -> "Width":  # type: ignore[override]
        return Width(self.mv * factor, self.s * factor)

    __rmul__ = __mul__  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Width({self.mv}, {self.s})"
