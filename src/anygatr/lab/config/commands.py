"""The laboratory's commands as frozen dataclasses: training, comparing, predicting, advising. Imports no torch."""

import shlex
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from tyro.conf import Positional

from anygatr.lab.config.recipe import LARGE, Large, Pool, Precision, Preset, Recipe, Start, recipe
from anygatr.lab.config.threads import ThreadOptions

Match = Literal["steps", "time", "params"]
Logger = Literal["tensorboard", "mlflow", "wandb"]
Wall = Literal["corners", "all"]
Engine = Literal["local", "ray", "slurm"]


@dataclass(frozen=True)
class DataOptions:
    """Which data, and what its fields are."""

    data: str = "nbody"
    """A .npz, .h5, .xyz or .extxyz file, a directory with train.npz, val.npz, ..., or "nbody" for data/nbody, made if it is
    not there; so are the peers' benchmarks o3, o5, hulls and charged. Files of arteries are recognised by their layout."""
    inputs: tuple[str, ...] = ()
    """Input fields as name:kind, such as position:point charge:scalar. None for what `anygatr data` makes."""
    target: tuple[str, ...] = ()
    """Fields to predict as name:kind."""
    dim: int | None = None
    """Dimension of space; default: the one in which all columns fit their kinds."""
    per: Literal["token", "sample"] | None = None
    """Whether targets belong to tokens or samples; default: recognised by their shape."""
    wall: Wall | None = None
    """Of artery files, the wall's nodes to train on: the corners of the flow solver's elements (a quarter of them), or all.
    Default: corners where the file knows them."""
    nodes: Wall | None = None
    """The older name of --wall."""
    memory: float | None = None
    """Gigabytes that reading data may take; what a file declares beyond is refused. Default: half of what is free."""


@dataclass(frozen=True, kw_only=True)
class LargeOptions:
    """Attention of GATrs over samples of many tokens."""

    large: Large | None = None
    """anchors: a token attends to its neighbours and to anchors. pooled: few tokens do the work. Both take time linear in
    tokens. Default: exact attention, whose time grows with their square."""
    anchors: int | None = None
    """With --large anchors, tokens of a sample that all attend to. Default: 256."""
    neighbours: int | None = None
    """With --large anchors, nearest tokens that a token attends to. Default: 16."""
    pooled: int | None = None
    """With --large pooled, tokens that do the work: so many of a sample at most, and at most a fifth. Default: 512."""


@dataclass(frozen=True)
class FitOptions(LargeOptions):
    """How to train. Every setting left out comes from the preset."""

    preset: Preset | None = None
    """laptop: useful in minutes on two cores. figure: the small budget at which the paper's n-body figure is repeated.
    paper: 20 blocks, 32 + 128 channels, 50 000 steps. arteries and
    paper_arteries: the same for artery walls. Default: laptop, and arteries for artery files."""
    steps: int | None = None
    """Updates of the weights."""
    epochs: float | None = None
    """Passes over the training samples, instead of steps."""
    batch: int | None = None
    """Samples in a batch."""
    lr: float | None = None
    """Learning rate at the start."""
    lr_end: float | None = None
    """Learning rate at the end."""
    blocks: int | None = None
    """Transformer blocks."""
    mv: int | None = None
    """Multivector channels."""
    s: int | None = None
    """Scalar channels."""
    heads: int | None = None
    """Attention heads."""
    origin: str | None = None
    """Subtracted before embedding: mean, the name of a field of weights, or none. Default: mass for n-body, else mean."""
    clip: float | None = None
    """Largest global norm of the gradient."""
    regulariser: float | None = None
    """Weight of (|a| - 1)^2 for the homogeneous weight a of predicted points."""
    ema: float | None = None
    """Validate a running average of the weights with this decay, for example 0.999."""
    precision: Precision | None = None
    """32 or bf16 (mixed). Conformal networks need 32."""
    validate_every: int | None = None
    """Steps between validations."""
    patience: int | None = None
    """Stop after so many validations without a new best; 0: train to the last step. Default: 6 in `train` on your own files,
    else 0."""
    pool: Pool | None = None
    """Targets of whole samples are the mean of what their tokens say, or the sum, for those that grow with the number of
    tokens, such as an energy."""
    conservative: bool = False
    """Predict forces as the gradient of the energy that is predicted beside them: --target energy:scalar forces:vector."""
    weight_decay: float | None = None
    """Pull of all weights towards zero, decoupled from the gradient, for example 0.01."""
    dropout: float | None = None
    """Share of a GATr's channels that are dropped in training, for example 0.1."""
    invariants: bool | None = None
    """Give GATrs what is invariant in a token's own fields, such as lengths. Default: with laptop only."""
    init: Start | None = None
    """How the weights of GATrs start: paper, as published, balanced, or near, with attention to near tokens: for C at small
    budgets. Default: balanced with laptop, else paper."""
    normalise: bool | None = None
    """Bring fields to order one by equivariant changes of unit. Default: yes, except for n-body, as in the paper."""
    unit: float | None = None
    """Length that is 1 for the network. It matters: attention learns to tell neighbours apart where their distance is about
    one. Default: the distance between neighbours, to a power of two; without normalising, the data's own unit."""

    def recipe(
        self,
        model: str,
        seed: int,
        size: int | None,
        origin: str | None,
        preset: Preset = "laptop",
        samples: int | None = None,
        patience: int | None = None,
    ) -> Recipe:
        """The complete recipe of one run, with the origin that its data call for and the preset if none was chosen.

        `samples` is the number of training samples, which epochs are counted in; `patience` holds if none was chosen.
        """
        if self.epochs is not None and self.steps is not None:
            raise ValueError(f"epochs={self.epochs} and steps={self.steps} were both given; choose one of them")
        sizes = ("steps", "epochs", "batch", "lr", "lr_end", "blocks", "mv", "s", "heads", "pool", "conservative")
        fit = ("clip", "regulariser", "ema", "precision", "validate_every", "weight_decay", "dropout", "invariants", "init")
        names = (*sizes, *fit, *LARGE)
        start = recipe(self.preset or preset, model, **{name: getattr(self, name) for name in names})
        waits = patience if self.patience is None else self.patience or None
        return replace(start, origin=origin, patience=waits).of(size, seed, samples or size or 1)


@dataclass(frozen=True)
class TrainConfig(ThreadOptions, FitOptions, DataOptions):
    """Train one model; stopped and started again with the same command, it continues to the same bits."""

    model: str = "C"
    """E, P, iP, C or L, perhaps with overrides as in E,mirrors=false, C,norm=abs or iP,large=pooled; or a baseline:
    transformer, se3_transformer, segnn, pointnet2, gem_cnn."""
    out: str = "runs/train"
    """Directory of the run: configuration, metrics, state to resume from, best weights."""
    size: int | None = None
    """Use only the first samples of the training split."""
    seed: int = 0
    """Of the initial weights and the order of samples."""
    log: tuple[Logger, ...] = ()
    """Write metrics also to tensorboard, mlflow (MLFLOW_TRACKING_URI, else files in the run's directory) or wandb (offline,
    unless WANDB_MODE says otherwise)."""
    tensorboard: bool = False
    """The same as --log tensorboard."""
    devices: int | None = None
    """Processes on each machine, one GPU or some cores for each: together they make the same steps, to rounding. Under
    torchrun or srun leave it out. Default: 1."""
    nodes: int | Wall | None = None  # type: ignore[assignment]
    """Machines: run the command on each, with MASTER_ADDR, MASTER_PORT and NODE_RANK set, or use torchrun or srun. Default:
    1. Also the older name of --wall."""
    accumulate: int = 1
    """Pieces in which a process computes its samples of a step one after the other, to save memory."""

    @property
    def machines(self) -> int | None:
        """How many there are, if it was said."""
        return self.nodes if isinstance(self.nodes, int) else None

    def __post_init__(self) -> None:
        if self.accumulate < 1:
            raise ValueError(f"accumulate={self.accumulate} must be at least 1")
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"threads={self.threads} must be at least 1; leave it out to use all cores")


@dataclass(frozen=True)
class EvaluateConfig(ThreadOptions):
    """Evaluate a run's best weights on every split of its data, or of another file with the same fields."""

    run: Positional[str]
    """Directory of a run."""
    data: str | None = None
    """Another file or directory; default: the data it was trained on."""
    out: str | None = None
    """Also write the row of the run, with these errors, to this .json file."""
    json: bool = False
    """Print JSON for machines instead of a table."""
    memory: float | None = None
    """Gigabytes that reading data may take; what a file declares beyond is refused. Default: half of what is free."""
    force: bool = False
    """Write even where this replaces an input or a file of a run."""


@dataclass(frozen=True)
class CertifyConfig(ThreadOptions):
    """Measure how equivariant a trained model is, layer by layer and generator by generator."""

    run: Positional[str]
    """Directory of a run."""
    json: bool = False
    """Print JSON for machines instead of a table."""


@dataclass(frozen=True)
class PredictConfig(ThreadOptions, LargeOptions):
    """Predict with a run's best weights for the samples of a new file, which needs no targets."""

    run: Positional[str]
    """Directory of a run."""
    data: str
    """A .npz, .h5, .xyz or .extxyz file with the input fields; for arteries also a surface: .vtp, .stl or .ply."""
    out: str = "predictions.npz"
    """Where to write the predicted fields: .npz, .h5 or .csv; .vtp for surfaces, several of which are numbered."""
    batch: int | None = None
    """Samples at a time; default: 64, one surface."""
    inlet: tuple[float, float, float] | None = None
    """Of a surface, a point near the centre of its inlet cap, in the file's unit."""
    scale: float = 1.0
    """Of a surface, centimetres in the file's unit: 0.1 for millimetres."""
    extensions: bool = True
    """Of a surface, whether its ends are straight extensions of four diameters, as those of training: these are cut off and
    not predicted. With --no-extensions all of it is predicted."""
    inflow: float | None = None
    """Of artery walls, the mean velocity at the inlet in cm/s, where the run was trained on varying ones."""
    memory: float | None = None
    """Gigabytes that reading data may take; what a file declares beyond is refused. Default: half of what is free."""
    force: bool = False
    """Write even where this replaces an input or a file of a run."""


@dataclass(frozen=True)
class CompareConfig(ThreadOptions, FitOptions, DataOptions):
    """Train models x sizes x seeds side by side; killed and started again with the same command, it continues."""

    models: tuple[str, ...] = ("E", "P", "iP", "C", "transformer")
    """What to compare: E, P, iP, C, L, variants such as E,mirrors=false or iP,large=pooled, transformer, se3_transformer,
    segnn, pointnet2, gem_cnn."""
    sizes: tuple[int, ...] = ()
    """Numbers of training samples; default: all there are."""
    seeds: int = 1
    """Runs of each model at each size."""
    match: Match = "steps"
    """What all models get the same of: steps; time (--minutes each); or params: widths are found that give every model
    about as many parameters as the first one has."""
    minutes: float = 2.0
    """Training time of each run with --match time."""
    jobs: int | None = None
    """Runs at the same time, each in a process of its own with cores / jobs threads: 1 gives all cores to one run after the
    other. Default: one run per core, with one thread each."""
    out: str = "runs/compare"
    """Directory of the comparison."""
    engine: Engine = "local"
    """Where runs are computed: in processes here; as tasks of Ray; or as a job array of SLURM. The last two need a directory
    that all machines see."""
    address: str | None = None
    """Of Ray's cluster, "auto" for the one that this machine belongs to. Default: a local instance is started."""
    sbatch: tuple[str, ...] = ()
    """Options for SLURM's sbatch, such as partition=gpu time=2:00:00, without their dashes."""
    preliminary: bool = False
    """Mark the report as made from runs too short to conclude from."""


@dataclass(frozen=True)
class ChooseConfig(ThreadOptions, LargeOptions, DataOptions):
    """Find a model for your data within a time: a tournament of models, widths, depths and learning rates.

    It ends with a trained, certified run, the reason why it won, and how sure that is.
    """

    minutes: float = 10.0
    """Time for all of it, about; the last 40 percent train the winner."""
    models: tuple[str, ...] = ("E", "E,mirrors=false", "iP", "C")
    """Who takes part; those that cannot learn the task are left out."""
    pool: Pool | None = None
    """Mean or sum over tokens; default: the sum where a target grows with their number."""
    origin: str | None = None
    """Subtracted before embedding: mean, the name of a field of weights, or none. Default: mass for n-body, else mean."""
    out: str = "runs/choose"
    """Directory of the tournament; the winner is in its folder `best`."""


@dataclass(frozen=True)
class DemoConfig(ThreadOptions):
    """A small comparison of E, P, iP, C and a Transformer on one or two clusters of stars and planets, in minutes."""

    out: str = "runs/demo"
    """Directory of the demonstration: data and comparison."""


@dataclass(frozen=True)
class AdviseConfig(ThreadOptions):
    """Which geometry to choose, without training: what can be represented, mirrors, expressivity, cost."""

    data: str | None = None
    """Probe these data, in some ten seconds: size, copies, what to beat, mirrors, sums over tokens, distance from 0."""
    inputs: tuple[str, ...] = ("position:point", "velocity:vector", "mass:scalar")
    """Input fields as name:kind."""
    target: tuple[str, ...] = ("final:point",)
    """Fields to predict as name:kind."""
    dim: int = 3
    """Dimension of space."""
    tokens: int = 16
    """Tokens in a typical sample: the cost of attention grows with them."""
    mv: int = 16
    """Multivector channels for which cost is estimated."""
    s: int = 64
    """Scalar channels for which cost is estimated."""
    json: bool = False
    """Print JSON for machines instead of tables."""


def command_line(command: str, config: Any) -> str:
    """The command that repeats a configuration: every setting that differs from its default."""
    words = ["anygatr", command]
    for field in fields(config):
        value = getattr(config, field.name)
        if value == field.default:
            continue
        option = "--" + field.name.replace("_", "-")
        words += [option] if field.type is bool else [option, *map(str, value if isinstance(value, tuple) else (value,))]
    return shlex.join(words)
