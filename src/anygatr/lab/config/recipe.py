"""Recipes: everything that decides a training run besides its data, and the presets they start from. Imports no torch."""

import math
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args, get_origin

from anygatr.files.reading import shortened

LIMITS = {"blocks": 1_000, "mv": 10_000, "s": 100_000, "heads": 10_000}
"""Beyond them a network is a mistake, or an attack; building it would take hours."""
LONGEST = 1_000
"""Characters of a text."""
LARGEST = 10**15
"""Of every other integer."""
Preset = Literal["laptop", "figure", "paper", "arteries", "paper_arteries"]
Precision = Literal["32", "bf16"]
Pool = Literal["mean", "sum"]
Start = Literal["paper", "balanced", "near"]
Large = Literal["anchors", "pooled"]
LARGE = ("large", "anchors", "neighbours", "pooled")
"""Settings of attention over samples of many tokens."""
NEWER = ("patience", "pool", "weight_decay", "dropout", "epochs", "conservative", "invariants", "init", *LARGE)
"""Settings that the first runs did not have."""


@dataclass(frozen=True)
class Recipe:
    """Architecture, optimiser, budget and seed. A run is a function of this, its data and the number of threads."""

    model: str
    """E, P, iP, C, one of them with overrides such as "C,norm=abs,norm_eps=1", or a baseline."""
    blocks: int
    """Transformer blocks."""
    mv: int
    """Multivector channels; baselines have none."""
    s: int
    """Scalar channels; all the channels of a baseline."""
    heads: int
    """Attention heads."""
    steps: int
    """Updates of the weights."""
    batch: int
    """Samples in a batch; at most as many as there are."""
    lr: float
    """Learning rate at the start."""
    lr_end: float
    """Learning rate at the end, reached exponentially."""
    origin: str | None = "mean"
    """Point subtracted before embedding: "mean", a field of weights, or None. Baselines that take raw inputs ignore it."""
    clip: float = 10.0
    """Largest global norm of the gradient."""
    regulariser: float = 0.01
    """Weight of (|a| - 1)^2 for the homogeneous weight a of every predicted point."""
    ema: float = 0.0
    """Decay of the running average of weights that is validated instead of the weights; 0 switches it off."""
    precision: Precision = "32"
    """Of the network in training; validation and evaluation are always in float32."""
    validate_every: int | None = None
    """Steps between validations; default: twenty in a run, and at least one every thousand steps."""
    seed: int = 0
    """Of the initial weights and the order of samples."""
    size: int | None = None
    """Training samples used, the first of the split; default: all."""
    invariants: bool = False
    """Whether GATrs get what is invariant in a token's own fields as scalars; the paper's do not."""
    init: Start = "paper"
    """How the weights of GATrs start: "balanced", "paper" as published, or "near" with heads that begin with near tokens."""
    patience: int | None = None
    """Validations without a new best after which training stops before its last step; default: it never does."""
    pool: Pool = "mean"
    """What targets of whole samples are of what their tokens say: the mean, or the sum for those that grow with them."""
    weight_decay: float = 0.0
    """Decoupled weight decay, as in AdamW; 0 is Adam."""
    dropout: float = 0.0
    """Share of the channels of a GATr that are dropped behind each attention and MLP in training."""
    conservative: bool = False
    """Whether forces are the gradient of the energy that is predicted with them."""
    large: Large | None = None
    """Attention of GATrs for samples of many tokens, "anchors" or "pooled"; default: exact."""
    anchors: int | None = None
    """Tokens of a sample that all attend to."""
    neighbours: int | None = None
    """Nearest tokens that a token attends to besides anchors."""
    pooled: int | None = None
    """Tokens of a sample, at most, between which pooled networks have their blocks."""
    epochs: float | None = None
    """Passes over the training samples from which the steps were counted, if they were."""

    def __post_init__(self) -> None:
        for field in fields(self):
            wanted, value = _accepted(field.type), getattr(self, field.name)
            if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
                raise ValueError(f"{field.name}={shortened(value, 80)!r} should be {field.type}")
            if isinstance(value, str) and len(value) > LONGEST:
                raise ValueError(f"{field.name}={shortened(value, 80)!r} has {len(value):,} characters; at most {LONGEST}")
            limit = LIMITS.get(field.name, LARGEST)
            if isinstance(value, int) and value > limit:
                raise ValueError(f"{field.name}={shortened(value, 80)} must be at most {limit:,}")
        for name in ("blocks", "heads", "steps", "batch", "lr", "lr_end", "clip", "validate_every", "size", "patience"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name}={value} must be positive")
        if self.large is not None and self.large not in get_args(Large):
            raise ValueError(f"large={self.large!r} is unknown; choose from {', '.join(map(repr, get_args(Large)))}")
        if self.epochs is not None and not self.epochs > 0:
            raise ValueError(f"epochs={self.epochs} must be positive")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout} must lie in [0, 1)")
        if self.pool not in ("mean", "sum"):
            raise ValueError(f"pool={self.pool!r} is unknown; choose 'mean' or 'sum'")
        for name in ("mv", "s", "regulariser", "seed", "weight_decay"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)} must not be negative")
        if not 0 <= self.ema < 1:
            raise ValueError(f"ema={self.ema} must be a decay in [0, 1), for example 0.999; 0 switches it off")
        if self.precision not in ("32", "bf16"):
            raise ValueError(f"precision={self.precision!r} is unknown; choose '32' or 'bf16'")
        if self.init not in get_args(Start):
            raise ValueError(f"init={self.init!r} is unknown; choose from {', '.join(map(repr, get_args(Start)))}")

    def of(self, size: int | None, seed: int, samples: int) -> "Recipe":
        """The same recipe for so many training samples and a seed; epochs, where they were asked for, decide the steps."""
        if self.epochs is None:
            return replace(self, size=size, seed=seed)
        steps = max(1, math.ceil(self.epochs * samples / min(self.batch, samples)))
        return replace(self, size=size, seed=seed, steps=steps)

    @property
    def interval(self) -> int:
        """Steps between validations, the default resolved."""
        return self.validate_every or max(1, min(1000, self.steps // 20))

    def learning_rate(self, step: int) -> float:
        """lr (lr_end / lr)^(step / steps), in stairs of 1000 steps, or of a fiftieth of a run shorter than 50 000 steps."""
        stair = max(1, min(1000, self.steps // 50))
        return self.lr * (self.lr_end / self.lr) ** (step // stair * stair / self.steps)

    def to_json(self) -> dict[str, Any]:
        """Plain values for a run's configuration file; newer settings are left out at their defaults, as in older files."""
        newer = {field.name: field.default for field in fields(self) if field.name in NEWER}
        return {name: value for name, value in asdict(self).items() if name not in newer or value != newer[name]}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "Recipe":
        """The inverse of `to_json`."""
        return cls(**{field.name: record[field.name] for field in fields(cls) if field.name in record})


def _accepted(annotation: Any) -> tuple[type, ...]:
    """The types of values that the annotation of a setting allows."""
    if annotation is float:
        return int, float
    if get_origin(annotation) is Literal:
        return tuple({type(value) for value in get_args(annotation)})
    return tuple(kind for part in get_args(annotation) for kind in _accepted(part)) or (annotation,)


def recipe(preset: Preset, model: str, **changes: Any) -> Recipe:
    """The preset's recipe for a model with some settings changed; None leaves a setting as it is."""
    if preset not in PRESETS:
        raise ValueError(f"preset={preset!r} is unknown; choose from {', '.join(PRESETS)}")
    start = Recipe(model=model, **PRESETS[preset] | BASELINES[preset].get(model.split(",")[0], {}))
    return replace(start, **{name: value for name, value in changes.items() if value is not None})


PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"blocks": 20, "mv": 32, "s": 128, "heads": 8, "steps": 50_000, "batch": 64, "lr": 3e-4, "lr_end": 3e-6},
    "figure": {
        **{"blocks": 4, "mv": 8, "s": 32, "heads": 4, "steps": 2_400, "batch": 16, "lr": 3e-3, "lr_end": 1e-4},
        "validate_every": 200,
    },
    "laptop": {
        **{"blocks": 2, "mv": 8, "s": 32, "heads": 4, "steps": 3_000, "batch": 32, "lr": 3e-3, "lr_end": 1e-3},
        **{"invariants": True, "init": "balanced"},
    },
    "arteries": {"blocks": 4, "mv": 8, "s": 32, "heads": 4, "steps": 3_000, "batch": 1, "lr": 3e-3, "lr_end": 1e-4},
    "paper_arteries": {"blocks": 10, "mv": 8, "s": 32, "heads": 4, "steps": 200_000, "batch": 8, "lr": 3e-4, "lr_end": 3e-6},
}
# The paper's baselines keep the hyperparameters of the publication they come from, whatever the GATrs are given.
_PUBLISHED: dict[str, dict[str, Any]] = {
    "transformer": {"blocks": 10, "s": 384, "heads": 8},
    "se3_transformer": {"blocks": 4, "mv": 0, "s": 8, "heads": 1},
    "segnn": {"blocks": 4, "mv": 0, "s": 64, "heads": 1},
}
_SMALL = {"transformer": {"blocks": 4, "s": 128, "heads": 4}}
BASELINES: dict[str, dict[str, dict[str, Any]]] = {
    "paper": _PUBLISHED,
    "figure": _PUBLISHED
    | _SMALL
    | {  # their steps cost most: so many take as long as the others'
        "se3_transformer": _PUBLISHED["se3_transformer"] | {"steps": 400, "validate_every": 100},
        "segnn": _PUBLISHED["segnn"] | {"steps": 800, "validate_every": 100},
    },
    "laptop": _PUBLISHED | _SMALL,
    "arteries": {
        "transformer": {"blocks": 4, "s": 128, "heads": 4, "lr": 1e-3},
        "pointnet2": {"blocks": 4, "mv": 0, "s": 32},
        "gem_cnn": {"blocks": 1, "mv": 0, "s": 16, "steps": 1_200},  # as long as the others' 3000
    },
    "paper_arteries": {
        "transformer": {"blocks": 10, "s": 160, "heads": 4},
        "pointnet2": {"blocks": 5, "mv": 0, "s": 32},
        "gem_cnn": {"blocks": 2, "mv": 0, "s": 26},
    },
}
