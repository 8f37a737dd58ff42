"""Settings of the peers' benchmarks; imports neither torch nor numpy, so that the command line starts at once."""

from dataclasses import asdict, dataclass
from typing import Any

SPLITS = ("train", "val", "eval")
"""The sets, in the order that numbers their random streams."""


@dataclass(frozen=True)
class BenchmarkConfig:
    """How many samples of each set, and where."""

    out: str
    """Directory for train.npz, val.npz and eval.npz."""
    train: int
    """Training samples. A smaller set is a prefix of a bigger one."""
    val: int
    """Validation samples."""
    eval: int
    """Evaluation samples."""
    seed: int = 0
    """Sample i of a set depends on this, the set and i alone."""
    overwrite: bool = False
    """Replace files that were made with other parameters."""

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed={self.seed} must lie in 0..2^32 - 1")
        for name in SPLITS:
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)} must not be negative; 0 leaves the set out")

    @property
    def sizes(self) -> dict[str, int]:
        """Samples in each of SPLITS."""
        return {split: getattr(self, split) for split in SPLITS}

    @property
    def space(self) -> int:
        """Dimension of space."""
        return 3

    def parameters(self) -> dict[str, Any]:
        """What decides a sample, as stored in a file: no sizes, no paths."""
        return {key: value for key, value in asdict(self).items() if key not in ("out", "overwrite", *SPLITS)}


@dataclass(frozen=True)
class O3Config(BenchmarkConfig):
    """O(3) signed volume: a tenth of the determinant of three normal vectors, a pseudoscalar."""

    out: str = "data/o3"
    train: int = 50_000
    val: int = 4_096
    eval: int = 16_384


@dataclass(frozen=True)
class O5Config(BenchmarkConfig):
    """O(5) regression: sin |a| - |b|^3 / 2 + a.b / (|a| |b|) of two normal vectors in five dimensions."""

    out: str = "data/o5"
    train: int = 50_000
    val: int = 4_096
    eval: int = 16_384

    @property
    def space(self) -> int:
        """Dimension of space."""
        return 5


@dataclass(frozen=True)
class HullsConfig(BenchmarkConfig):
    """The volume of the convex hull of normal points."""

    out: str = "data/hulls"
    train: int = 16_384
    val: int = 16_384
    eval: int = 16_384
    dim: int = 5
    """Dimension of space."""
    points: int = 16
    """Points in a sample."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= self.dim <= 6:
            raise ValueError(f"dim={self.dim} must lie in 2..6")
        if not self.dim < self.points <= 1_000:
            raise ValueError(f"points={self.points} must exceed dim={self.dim}, and be at most 1000")

    @property
    def space(self) -> int:
        """Dimension of space."""
        return self.dim


@dataclass(frozen=True)
class ChargedConfig(BenchmarkConfig):
    """Five charged particles: their positions 1000 steps after a snapshot, a replay of EGNN's generator."""

    out: str = "data/charged"
    train: int = 3_000
    val: int = 2_000
    eval: int = 2_000
    seed: int = 43

    def __post_init__(self) -> None:
        super().__post_init__()
        for split, drawn in self.drawn.items():
            if getattr(self, split) > drawn:
                raise ValueError(f"{split}={getattr(self, split)}: the original generator makes {drawn} samples of this set")

    @property
    def drawn(self) -> dict[str, int]:
        """Samples that the original generator draws for each set, one set after the other from one random stream."""
        return {"train": 10_000, "val": 2_000, "eval": 2_000}
