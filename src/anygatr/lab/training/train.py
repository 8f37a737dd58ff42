"""Train one model: fit, evaluate the best weights, resume exactly."""

import copy
import math
import shlex
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from anygatr.lab.config.commands import TrainConfig, command_line
from anygatr.lab.config.json_files import write_json
from anygatr.lab.config.recipe import Recipe
from anygatr.lab.data.dataset import Dataset
from anygatr.lab.data.registry import spec_of
from anygatr.lab.data.task import Task
from anygatr.lab.data.token_counts import warn_of_unseen_count
from anygatr.lab.system.terminal import Terminal
from anygatr.lab.training.blindness import warn_of_blindness
from anygatr.lab.training.evaluate import baselines_of, measured, show_baselines, split_table
from anygatr.lab.training.guard import interruptible, owned
from anygatr.lab.training.log import MetricsLog, Watch, progress_bar, unwatched
from anygatr.lab.training.metrics import summary
from anygatr.lab.training.models import build, check_names, parameters
from anygatr.lab.training.objective import Objective, errors_of
from anygatr.lab.training.rehearsal import best_threads, optimiser_of, training_memory_mb
from anygatr.lab.training.remarks import remarks
from anygatr.lab.training.run import METRICS, RESULT, STATE, WEIGHTS, TrainingRun, training_set
from anygatr.lab.training.state import History, TrainingState, Weights, copied, save_tensors
from anygatr.lab.training.threads import set_threads, threads_of

LOG_EVERY = 10


class NonFiniteGradientError(ValueError):
    """A gradient is NaN or infinite: the run cannot go on."""


def train(config: TrainConfig) -> dict[str, Any]:
    """The command: train, show how good the best weights are, say where they are and what to run next."""
    check_names([config.model])
    spec, console = spec_of(config, config.normalise, config.unit), Terminal()
    data = spec.load()
    warn_of_unseen_count(data, config.pool or "mean")
    train = training_set(data, config.size)
    origin, kind = spec.origin(config.origin), spec.kind
    recipe = config.recipe(config.model, config.seed, config.size, origin, kind.preset, len(train), kind.patience)
    out = Path(config.out)
    warn_of_blindness(recipe, Task.of(data))
    with owned(out):
        set_threads(config.threads or threads_of(out) or best_threads(recipe, train))
        run = TrainingRun.start(out, spec, data, recipe, command_line("train", config))
        try:
            with progress_bar(config.model, recipe.steps, recipe.batch) as watch:
                row = fit(run, data, watch, (*config.log, *["tensorboard"] * config.tensorboard))
        except KeyboardInterrupt:
            console.print(f"stopped; the same command continues where it was: {out}", soft_wrap=True)
            raise
        if "baselines" not in row:
            row |= {"baselines": baselines_of(run, data)}
            write_json(out / RESULT, row)
    console.print(split_table(f"{config.model}, {row['parameters']:,} parameters, {row['steps']} steps", row["metrics"]))
    show_baselines(run, row["metrics"], row["baselines"])
    for remark in remarks(row, recipe):
        console.print(remark, style="yellow", highlight=False, soft_wrap=True)
    quoted = shlex.quote(str(out))
    console.print(
        f"results in {out}; next: anygatr evaluate {quoted}, anygatr predict {quoted} --data new.npz",
        highlight=False,
        soft_wrap=True,
    )
    return row


def fit(run: TrainingRun, data: Dataset, watch: Watch = unwatched, log: Iterable[str] = ()) -> dict[str, Any]:
    """Train to the end from wherever the run is, and return its row; a finished run only returns it."""
    if run.result is not None:
        if run.result["status"] == "failed":
            raise NonFiniteGradientError(f"{run.directory} failed before: {run.result['error']}")
        return run.result
    train, val = (run.units.normalised(part) for part in (training_set(data, run.recipe.size), data.split("val")))
    engine = _assemble(run)
    module, history = engine.state.module, engine.state.history
    try:
        with MetricsLog(run.directory / METRICS, history.step, log) as metrics:
            _loop(run, engine, train, val, metrics, watch)
    except NonFiniteGradientError as error:
        failure = failed_row(run.recipe, str(error), history, parameters(module)) | {"nonfinite": True}
        write_json(run.directory / RESULT, failure)
        raise
    module.load_state_dict(engine.state.best or {})
    row = _row(run.recipe, history, parameters(module)) | measured(run, module, data)
    row["training_memory_mb"] = training_memory_mb(run.recipe, train)
    write_json(run.directory / RESULT, row)
    return row


@dataclass(frozen=True)
class _Engine:
    """What turns batches into steps."""

    fabric: Any
    network: nn.Module
    """The module of the state as Fabric wraps it: in the precision of training."""
    state: TrainingState


def _loop(run: TrainingRun, engine: _Engine, train: Dataset, val: Dataset, log: MetricsLog, watch: Watch) -> None:
    recipe, fabric, network, state = run.recipe, engine.fabric, engine.network, engine.state
    history = state.history
    objective = Objective(state.module, run.task, recipe.regulariser, run.units.errors)
    validated = copy.deepcopy(state.module) if recipe.ema else state.module
    with interruptible() as interrupted:
        while not _is_done(recipe, history):
            began = time.perf_counter()
            rate = _set_rate(state.optimiser, recipe.learning_rate(history.step))
            batch = fabric.to_device(train.select(sample_indices(recipe, len(train), history.step)).batch())
            loss, error = objective(network, batch)
            fabric.backward(loss)
            norm = fabric.clip_gradients(network, state.optimiser, max_norm=recipe.clip, error_if_nonfinite=False)
            _require_finite(state.module, norm, loss, history.step)
            state.optimiser.step()
            state.optimiser.zero_grad()
            _average(state, recipe.ema)
            history.add(loss.item())
            history.seconds += time.perf_counter() - began
            watch(history.step, loss.item())
            if history.step % LOG_EVERY == 0:
                log.write(history.step, loss=loss.item(), error=error.item(), norm=norm.item(), lr=rate)
            if history.step % recipe.interval == 0 or history.step == recipe.steps:
                if state.average is not None:
                    validated.load_state_dict(state.average)
                log.write(history.step, **_validate(run, state, validated, val, fabric))
                state.save(run.directory / STATE)
            if interrupted and not _is_done(recipe, history):
                state.save(run.directory / STATE)
                raise KeyboardInterrupt


def _is_done(recipe: Recipe, history: History) -> bool:
    """Whether all steps are made, or patience is at an end: a function of the history, so that a resumed run agrees."""
    since_best = sum(step > history.best_step for step, _, _ in history.curve)
    return history.step >= recipe.steps or (recipe.patience is not None and since_best >= recipe.patience)


def _assemble(run: TrainingRun) -> _Engine:
    """The model, its optimiser and the engine, as they were left or fresh from the seed."""
    from lightning_fabric import Fabric  # takes a second: only training pays for it

    recipe = run.recipe
    precision = {"32": "32-true", "bf16": "bf16-mixed"}[recipe.precision]
    fabric = Fabric(accelerator="cuda" if torch.cuda.is_available() else "cpu", devices=1, precision=precision)  # type: ignore[arg-type]
    torch.manual_seed(recipe.seed)
    module = build(run.task, recipe)
    network = fabric.setup_module(module)
    optimiser = optimiser_of(module, recipe)
    state = TrainingState(module, optimiser, History(), copied(module.state_dict()) if recipe.ema else None)
    if (run.directory / STATE).exists():
        run.check_environment()
        state.restore(run.directory / STATE, recipe.steps)
    return _Engine(fabric, network, state)


def sample_indices(recipe: Recipe, samples: int, step: int) -> Tensor:
    """The samples of a step: the next stretch of an endless sequence of permutations, each seeded by its number.

    Being a function of the step alone it needs no state; every batch is full.
    """
    size = min(recipe.batch, samples)
    found: list[Tensor] = []
    position = step * size
    while size > 0:
        epoch, start = divmod(position, samples)
        generator = torch.Generator().manual_seed(recipe.seed * 1_000_003 + epoch)
        found.append(torch.randperm(samples, generator=generator)[start : start + size])
        position, size = position + len(found[-1]), size - len(found[-1])
    return torch.cat(found)


def failed_row(recipe: Recipe, error: str, history: History | None = None, size: int = 0) -> dict[str, Any]:
    """The row of a run that did not get to its end."""
    unknown = dict.fromkeys(("milliseconds_inference_per_sample", "training_memory_mb", "max_coefficient", "equivariance"))
    return _row(recipe, history or History(), size) | unknown | {"status": "failed", "error": error, "metrics": {}}


def _row(recipe: Recipe, history: History, size: int) -> dict[str, Any]:
    return {
        "model": recipe.model,
        "size": recipe.size,
        "seed": recipe.seed,
        "status": "ok",
        "error": None,
        "parameters": size,
        "steps": history.step,
        "seconds": history.seconds,
        "milliseconds_per_step": 1e3 * history.seconds / max(history.step, 1),
        "spikes": history.spikes,
        "nonfinite": False,
        "best_step": history.best_step,
        "curve": history.curve,
        "config": recipe.to_json(),
    }


def _validate(run: TrainingRun, state: TrainingState, module: nn.Module, val: Dataset, fabric: Any) -> dict[str, float]:
    """Validate, and keep a copy of the weights if they are the best so far: in normalised units, in float32."""
    history = state.history
    module.eval()
    batches = (fabric.to_device(batch) for batch in val.batches(run.recipe.batch))
    errors, own = errors_of(module, batches, run.task, run.units.errors)
    module.train()
    mean = sum(history.since) / max(len(history.since), 1)
    history.since, value, error = [], float(errors.mean()), float(own.mean())
    unit = error / value if value else 1.0  # the data's units over the network's: exact where the targets share a scale
    history.curve.append((history.step, mean * unit, error))
    if value < history.best or state.best is None:
        history.best, history.best_step, state.best = value, history.step, copied(module.state_dict())
        save_tensors(run.directory / WEIGHTS, state.best, {"step": history.step, "val": value})
    return {f"val_{name}": number for name, number in summary(own).items()}


def _set_rate(optimiser: torch.optim.Optimizer, rate: float) -> float:
    for group in optimiser.param_groups:
        group["lr"] = rate
    return rate


@torch.no_grad()
def _average(state: TrainingState, decay: float) -> None:
    if state.average is not None:
        weights: Weights = state.module.state_dict()
        torch._foreach_lerp_(list(state.average.values()), [weights[name] for name in state.average], 1 - decay)


def _require_finite(module: nn.Module, norm: Tensor, loss: Tensor, step: int) -> None:
    if math.isfinite(norm.item()):
        return
    bad = [n for n, p in module.named_parameters() if p.grad is not None and not bool(p.grad.isfinite().all())]
    raise NonFiniteGradientError(
        f"step {step + 1}: the gradient of {bad[0] if bad else 'all weights together'} is not finite "
        f"({len(bad)} tensors, loss {loss.item():.3g}); lower lr, use precision 32, or look for outliers: anygatr inspect"
    )
