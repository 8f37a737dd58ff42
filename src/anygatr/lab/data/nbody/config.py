"""What an n-body data set is made of: every physical and statistical parameter of the generator."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

SPLITS = ("train", "val", "eval", "e3_generalization", "object_generalization")
"""The five sets, in the order that numbers their random streams."""


@dataclass(frozen=True)
class NBodyConfig:
    """Gravitating stars with planets: where bodies start, how they move, how many samples of each set."""

    out: str = "data/nbody"
    """Directory for the .npz files, one per set."""
    clusters: Literal["multi", "single"] = "multi"
    """multi: 1 to max_clusters planetary systems that fall past each other; single: one system at rest."""
    bodies: int | None = None
    """Bodies per sample; by default 16 (multi) or 4 (single)."""
    train: int = 100_000
    """Training samples. A smaller set is a prefix of a bigger one."""
    val: int = 5_000
    """Validation samples."""
    eval: int = 5_000
    """Evaluation samples."""
    generalization: int = 5_000
    """Samples in each generalisation set (shifted far away; more bodies)."""
    seed: int = 42
    """Sample i of a set depends on this, the set and i alone."""
    trajectories: bool = False
    """Also store all positions on the way, (samples, bodies, steps + 1, 3)."""
    overwrite: bool = False
    """Replace files that were made with other parameters."""

    star_mass: tuple[float, float] = (1.0, 10.0)
    """Range of a star's mass, log-uniform (G = 1)."""
    planet_mass: tuple[float, float] = (0.01, 0.1)
    """Range of a planet's mass, log-uniform."""
    radius: tuple[float, float] = (0.1, 1.0)
    """Inner and outer radius of the annulus in which planets start, uniform in area."""
    velocity_noise: float = 0.01
    """Standard deviation added to each component of a planet's circular velocity."""
    max_clusters: int = 4
    """multi: the number of clusters is uniform on 1..max_clusters; each has a star and at least one planet."""
    cluster_position_std: float = 5.0
    """multi: standard deviation of each coordinate of a cluster's centre."""
    cluster_velocity_std: float = 1.0
    """multi: standard deviation of each component of a cluster's velocity."""
    shift_std: float = 20.0
    """Standard deviation of each coordinate of the whole sample's place."""
    generalization_shift: float = 200.0
    """e3_generalization: further shift along x."""
    extra_bodies: int = 2
    """object_generalization: bodies beyond those of the other sets."""
    steps: int = 100
    """Steps of the integrator, which are part of the definition of the target."""
    dt: float = 1e-3
    """Time of one step."""
    max_displacement: float = 2.0
    """A sample in which a body moves farther than this is drawn again."""

    def __post_init__(self) -> None:
        if self.clusters not in ("multi", "single"):
            raise ValueError(f"clusters={self.clusters!r} is unknown; choose 'multi' or 'single'")
        if self.seed < 0:
            raise ValueError(f"seed={self.seed} must not be negative")
        for name in ("train", "val", "eval", "generalization", "extra_bodies"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)} must not be negative; 0 leaves the set out")
        for name in ("steps", "dt", "max_displacement", "max_clusters"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}={getattr(self, name)} must be positive")
        for name in ("star_mass", "planet_mass", "radius"):
            low, high = getattr(self, name)
            if not 0 < low <= high:
                raise ValueError(f"{name}={(low, high)} must be a range 0 < low <= high")
        if self.body_count < 2 * self.cluster_count:
            raise ValueError(
                f"bodies={self.body_count} cannot fill {self.cluster_count} clusters of a star and a planet each; "
                f"give bodies >= {2 * self.cluster_count} or a smaller max_clusters"
            )

    @property
    def body_count(self) -> int:
        """Bodies per sample, the default resolved."""
        return self.bodies if self.bodies is not None else {"multi": 16, "single": 4}[self.clusters]

    @property
    def cluster_count(self) -> int:
        """The largest number of clusters in a sample."""
        return self.max_clusters if self.clusters == "multi" else 1

    @property
    def cluster_stds(self) -> tuple[float, float]:
        """Standard deviations of a cluster's place and velocity; a single cluster rests at the origin."""
        return (self.cluster_position_std, self.cluster_velocity_std) if self.clusters == "multi" else (0.0, 0.0)

    @property
    def sizes(self) -> dict[str, int]:
        """Samples in each of SPLITS."""
        return dict(zip(SPLITS, (self.train, self.val, self.eval, self.generalization, self.generalization), strict=True))

    def bodies_of(self, split: str) -> int:
        """Bodies per sample of a set."""
        return self.body_count + (self.extra_bodies if split == "object_generalization" else 0)

    def shift_of(self, split: str) -> float:
        """How far along x a set is moved away from where the others are."""
        return self.generalization_shift if split == "e3_generalization" else 0.0

    def physics(self) -> dict[str, Any]:
        """The parameters that decide what a sample is, as stored in a file: no sizes, no paths."""
        elsewhere = {"out", "train", "val", "eval", "generalization", "overwrite"}
        return {key: value for key, value in asdict(self).items() if key not in elsewhere} | {"bodies": self.body_count}
