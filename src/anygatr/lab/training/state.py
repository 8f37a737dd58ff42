"""The state of a run on disk: exact, without pickle, written whole or not at all."""

import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save as serialised
from torch import Tensor, nn
from torch.optim import Optimizer

import anygatr
from anygatr.files.reading import UnreadableFileError, reading, shortened
from anygatr.files.whole import replacing
from anygatr.lab.config.schema import mismatch

Weights = dict[str, Tensor]
DAMAGED = "a file of this run; delete it to start the run afresh"
RECENT = 101
"""Losses over which the running median is taken."""


HISTORY_SHAPE = {
    **{"step": int, "seconds": float, "best": float, "best_step": int, "spikes": int},
    **{"recent": [float], "since": [float], "curve": [(int, float, float)]},
}


@dataclass
class History:
    """What has happened so far in a run."""

    step: int = 0
    seconds: float = 0.0
    best: float = float("inf")
    best_step: int = 0
    spikes: int = 0
    recent: list[float] = field(default_factory=list)
    """The last losses, from which the running median is taken."""
    since: list[float] = field(default_factory=list)
    """The losses since the last validation."""
    curve: list[tuple[int, float, float]] = field(default_factory=list)
    """Step, mean training loss since the previous entry, validation error; in the units of the data."""

    @classmethod
    def from_json(cls, record: Any, steps: int) -> "History":
        """The history in a record; raises a ValueError if it cannot be one of a run of so many steps."""
        if problem := mismatch(record, HISTORY_SHAPE):
            raise ValueError(problem)
        if not 0 <= record["best_step"] <= record["step"] <= steps:
            raise ValueError(f"it claims step {record['step']} of {steps}, the best one {record['best_step']}")
        if len(record["recent"]) > RECENT or len(record["since"]) > record["step"]:
            raise ValueError(f"it holds more losses than its {record['step']} steps can have")
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in record.items() if name in known})

    def add(self, loss: float) -> None:
        """Count a step; a loss above ten times the running median is a spike."""
        median = sorted(self.recent)[len(self.recent) // 2] if self.recent else float("inf")
        self.spikes += loss > 10 * median
        self.recent = [*self.recent[1 - RECENT :], loss]
        self.since.append(loss)
        self.step += 1


@dataclass
class TrainingState:
    """Everything that the next step depends on, besides the configuration."""

    module: nn.Module
    optimiser: Optimizer
    history: History
    average: Weights | None
    """Running average of the weights, if the recipe asks for one."""
    best: Weights | None = None
    """The weights of the best validation so far: copies, not references."""

    def save(self, path: Path) -> None:
        """Write all of it into one file."""
        tensors = {f"module/{name}": x for name, x in self.module.state_dict().items()}
        for i, entry in self.optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser/{i}/{key}": x for key, x in entry.items()}
        tensors |= {f"average/{name}": x for name, x in (self.average or {}).items()}
        tensors |= {f"best/{name}": x for name, x in (self.best or {}).items()}
        save_tensors(path, tensors | {"random": torch.get_rng_state()}, asdict(self.history))

    def read(self, path: Path, steps: int) -> "TrainingRecord":
        """What `save` wrote, for a run of so many steps; raises a ValueError for a file that is not of this run."""
        tensors, record = load_tensors(path)
        groups: dict[str, Weights] = {}
        for key, x in tensors.items():
            group, _, name = key.partition("/")
            groups.setdefault(group, {})[name] = x
        with reading(path, DAMAGED):
            history = History.from_json(record, steps)
            for group in ("module", "average", "best"):
                if group in groups or group == "module":
                    check_weights(path, groups[group], self.module)
            moments = _moments(groups.get("optimiser", {}), list(self.module.parameters()))
            before = torch.get_rng_state()
            torch.set_rng_state(groups["random"][""])  # raises if these are no random numbers
            torch.set_rng_state(before)
        return TrainingRecord(history, groups, moments)

    def restore(self, record: "TrainingRecord") -> None:
        """Continue from what was read, perhaps by another rank."""
        groups = record.groups
        torch.set_rng_state(groups["random"][""])
        self.module.load_state_dict(groups["module"])
        groups_of_parameters = self.optimiser.state_dict()["param_groups"]
        self.optimiser.load_state_dict({"state": record.moments, "param_groups": groups_of_parameters})
        device = next(self.module.parameters()).device
        average, best = (groups.get(name) for name in ("average", "best"))
        self.average = None if average is None else {name: x.to(device) for name, x in average.items()}
        self.best = None if best is None else {name: x.to(device) for name, x in best.items()}
        self.history = record.history


@dataclass(frozen=True)
class TrainingRecord:
    """The contents of a file that `TrainingState.save` wrote."""

    history: History
    groups: dict[str, Weights]
    """Weights, their running average, the best ones and the random numbers."""
    moments: dict[int, dict[str, Tensor]]
    """What the optimiser keeps of each parameter."""


def check_weights(path: Path, weights: Weights, module: nn.Module) -> None:
    """Raise unless a file's tensors are those of the module, by name, shape and type."""
    expected = module.state_dict()
    for name in (*expected, *weights):
        ours, theirs = (f"{x[name].dtype} {tuple(x[name].shape)}" if name in x else "missing" for x in (expected, weights))
        if ours != theirs:
            said = f"{shortened(name, 200)!r} is {theirs} in the file and {ours} in the network"
            raise UnreadableFileError(f"{path} is damaged or not of this run: {said}; delete it to start the run afresh")


def _moments(tensors: Weights, parameters: list[nn.Parameter]) -> dict[int, dict[str, Tensor]]:
    """What the optimiser keeps of each parameter, by its number."""
    moments: dict[int, dict[str, Tensor]] = {}
    for key, x in tensors.items():
        number, name = key.split("/")
        if x.dim() and x.shape != parameters[int(number)].shape:
            raise ValueError(f"optimiser/{key} has the shape {tuple(x.shape)}")
        moments.setdefault(int(number), {})[name] = x
    if len({frozenset(entry) for entry in moments.values()}) > 1:
        raise ValueError("the optimiser's tensors are not complete")
    return moments


def copied(weights: Mapping[str, Tensor]) -> Weights:
    """Weights that later steps cannot change."""
    return {name: x.detach().clone() for name, x in weights.items()}


def environment() -> dict[str, Any]:
    """What bits depend on besides the configuration: versions, threads, processor."""
    machine = f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
    versions = {"python": platform.python_version(), "torch": torch.__version__, "anygatr": anygatr.__version__}
    return versions | {"threads": torch.get_num_threads(), "machine": machine}


def save_tensors(path: Path, tensors: Mapping[str, Tensor], record: Mapping[str, Any]) -> None:
    """Tensors and a JSON record in one safetensors file."""
    plain = {name: x.detach().cpu().contiguous().clone() for name, x in tensors.items()}
    with replacing(path) as temporary:  # not save_file, whose error does not tell a full disk from a bad tensor
        temporary.write_bytes(serialised(plain, metadata={"record": json.dumps(record)}))


def load_tensors(path: Path) -> tuple[Weights, dict[str, Any]]:
    """The inverse of `save_tensors`."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; train first: anygatr train --out {path.parent}")
    with reading(path, DAMAGED), safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, json.loads(file.metadata()["record"])  # noqa: SIM118
