"""Train one model: fit, evaluate the best weights, resume exactly."""

import copy
import math
import shlex
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
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
from anygatr.lab.distributed.launch import connected
from anygatr.lab.distributed.ranks import Ranks
from anygatr.lab.distributed.shares import sample_costs
from anygatr.lab.system.cores import cores
from anygatr.lab.system.terminal import Terminal
from anygatr.lab.training.blindness import warn_of_blindness
from anygatr.lab.training.evaluate import baselines_of, measured, show_baselines, show_errors
from anygatr.lab.training.exact_cost import exact_cost
from anygatr.lab.training.guard import interruptible, owned_by_first
from anygatr.lab.training.log import MetricsLog, Watch, progress_bar, unwatched
from anygatr.lab.training.metrics import summary
from anygatr.lab.training.models import build, check_names, parameters
from anygatr.lab.training.objective import Objective, errors_of
from anygatr.lab.training.rehearsal import best_threads, optimiser_of, training_memory_mb
from anygatr.lab.training.remarks import remarks
from anygatr.lab.training.run import METRICS, RESULT, STATE, WEIGHTS, TrainingRun, loaded, training_set
from anygatr.lab.training.state import History, TrainingRecord, TrainingState, Weights, copied, save_tensors
from anygatr.lab.training.threads import set_threads, threads_of

LOG_EVERY = 10
PRECISIONS = {"32": "32-true", "bf16": "bf16-mixed"}
"""Of a recipe, as Fabric names them."""


class NonFiniteGradientError(ValueError):
    """A gradient is NaN or infinite: the run cannot go on."""


def train(config: TrainConfig) -> dict[str, Any]:
    """The command: train, show how good the best weights are, say where they are and what to run next.

    On several processes every one of them runs it; the first alone writes and speaks.
    """
    check_names([config.model])
    ranks = connected(config.devices, config.machines, PRECISIONS[config.precision or Recipe.precision])
    with ranks.connection(), ranks.one_voice():
        return _train(config, ranks)


def _train(config: TrainConfig, ranks: Ranks) -> dict[str, Any]:
    spec, console = spec_of(config, config.normalise, config.unit), Terminal()
    data = loaded(spec, ranks)
    warn_of_unseen_count(data, config.pool or "mean")
    train = training_set(data, config.size)
    origin, kind = spec.origin(config.origin), spec.kind
    recipe = config.recipe(config.model, config.seed, config.size, origin, kind.preset, len(train), kind.patience)
    out, execution = Path(config.out), {"ranks": ranks.count, "accumulate": config.accumulate}
    warn_of_blindness(recipe, Task.of(data))
    if (cost := exact_cost(partial(build, Task.of(data), recipe), int(train.counts.max()), training=True)) is not None:
        console.print(str(cost), highlight=False, soft_wrap=True)
    with owned_by_first(out, ranks):
        threads = config.threads or ranks.first(lambda: threads_of(out))
        set_threads(threads or (best_threads(recipe, train) if ranks.count == 1 else cores() // ranks.on_this_machine or 1))
        run = TrainingRun.of(out, spec, data, recipe, command_line("train", config))
        ranks.first(lambda: run.enter(train, execution))
        try:
            with progress_bar(config.model, recipe.steps, recipe.batch, shown=ranks.is_first) as watch:
                loggers = (*config.log, *["tensorboard"] * config.tensorboard)
                row = fit(run, data, watch, loggers if ranks.is_first else (), ranks, config.accumulate)
        except KeyboardInterrupt:
            console.print(f"stopped; the same command continues where it was: {out}", soft_wrap=True)
            raise
        if not ranks.is_first:
            return row
        if "baselines" not in row:
            row |= {"baselines": baselines_of(run, data)}
            write_json(out / RESULT, row)
    show_errors(f"{config.model}, {row['parameters']:,} parameters, {row['steps']} steps", row["metrics"])
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


def fit(
    run: TrainingRun,
    data: Dataset,
    watch: Watch = unwatched,
    log: Iterable[str] = (),
    ranks: Ranks | None = None,
    accumulate: int = 1,
) -> dict[str, Any]:
    """Train to the end from wherever the run is, and return its row; a finished run only returns it.

    Of several ranks the first alone measures what was learned; the row of the others has no metrics. Each of them computes
    its samples of a step in `accumulate` pieces, one after the other.
    """
    ranks = ranks or connected(1, 1, PRECISIONS[run.recipe.precision])
    if (finished := ranks.first(lambda: run.result)) is not None:
        if finished["status"] == "failed":
            raise NonFiniteGradientError(f"{run.directory} failed before: {finished['error']}")
        return finished
    train, val = (run.units.normalised(part) for part in (training_set(data, run.recipe.size), data.split("val")))
    engine = _assemble(run, ranks, accumulate)
    module, history = engine.state.module, engine.state.history
    try:
        with MetricsLog(run.directory / METRICS if ranks.is_first else None, history.step, log) as metrics:
            _loop(run, engine, train, val, metrics, watch)
    except NonFiniteGradientError as error:
        if not ranks.is_first:
            sys.exit(1)  # the first one says it for all
        failure = failed_row(run.recipe, str(error), history, parameters(module)) | {"nonfinite": True}
        write_json(run.directory / RESULT, failure)
        raise
    module.load_state_dict(engine.state.best or {})
    row = _row(run.recipe, history, parameters(module))
    if not ranks.is_first:
        return row | {"metrics": {}}
    row |= measured(run, module, data)
    row["training_memory_mb"] = training_memory_mb(run.recipe, train)
    write_json(run.directory / RESULT, row)
    return row


@dataclass(frozen=True)
class _Engine:
    """What turns batches into steps."""

    ranks: Ranks
    network: nn.Module
    """The module of the state as Fabric wraps it: in the precision of training."""
    state: TrainingState
    accumulate: int = 1
    """Pieces in which a rank computes its samples of a step."""


def _loop(run: TrainingRun, engine: _Engine, train: Dataset, val: Dataset, log: MetricsLog, watch: Watch) -> None:
    recipe, ranks, network, state = run.recipe, engine.ranks, engine.network, engine.state
    history = state.history
    objective = Objective(state.module, run.task, recipe.regulariser, run.units.errors)
    validated = copy.deepcopy(state.module) if recipe.ema else state.module
    costs = sample_costs(state.module, train.counts)
    with interruptible() as interrupted:
        while not _is_done(recipe, history):
            began = time.perf_counter()
            rate = _set_rate(state.optimiser, recipe.learning_rate(history.step))
            samples = sample_indices(recipe, len(train), history.step)
            ranks.seed(recipe.seed, history.step)
            found = _gradients(engine, objective, train, samples, costs[samples])
            loss, error, stop = ranks.sum_gradients(state.module, (*found, float(bool(interrupted))))
            norm = ranks.fabric.clip_gradients(network, state.optimiser, max_norm=recipe.clip, error_if_nonfinite=False)
            _require_finite(state.module, norm, loss, history.step)
            state.optimiser.step()
            state.optimiser.zero_grad()
            _average(state, recipe.ema)
            history.add(loss)
            history.seconds += time.perf_counter() - began
            watch(history.step, loss)
            if history.step % LOG_EVERY == 0:
                log.write(history.step, loss=loss, error=error, norm=norm.item(), lr=rate)
            if history.step % recipe.interval == 0 or history.step == recipe.steps:
                if state.average is not None:
                    validated.load_state_dict(state.average)
                log.write(history.step, **_validate(run, state, validated, val, ranks))
                _save(run, engine)
            if (stop or (ranks.count == 1 and interrupted)) and not _is_done(recipe, history):
                _save(run, engine)
                raise KeyboardInterrupt


def _gradients(engine: _Engine, objective: Objective, train: Dataset, samples: Tensor, costs: Tensor) -> tuple[float, float]:
    """Add up the gradients of this rank's share of the samples; its parts of the loss and of the error of all of them."""
    loss = error = 0.0
    for places in engine.ranks.of_step(costs, engine.accumulate):
        batch = engine.ranks.fabric.to_device(train.select(samples[places]).batch())
        part, wrong = objective(engine.network, batch)
        if len(places) < len(samples):
            share = len(places) / len(samples)
            part, wrong = part * share, wrong * share
        engine.ranks.fabric.backward(part)
        loss, error = loss + part.item(), error + wrong.item()
    return loss, error


def _save(run: TrainingRun, engine: _Engine) -> None:
    """Written by the first rank; the others wait, because the end of one of them ends all."""
    if engine.ranks.is_first:
        engine.state.save(run.directory / STATE)
    engine.ranks.wait()


def _is_done(recipe: Recipe, history: History) -> bool:
    """Whether all steps are made, or patience is at an end: a function of the history, so that a resumed run agrees."""
    since_best = sum(step > history.best_step for step, _, _ in history.curve)
    return history.step >= recipe.steps or (recipe.patience is not None and since_best >= recipe.patience)


def _assemble(run: TrainingRun, ranks: Ranks, accumulate: int) -> _Engine:
    """The model, its optimiser and the engine, as they were left or fresh from the seed; the same on every rank."""
    recipe = run.recipe
    torch.manual_seed(recipe.seed)
    module = build(run.task, recipe)
    network = ranks.fabric.setup_module(module)
    optimiser = optimiser_of(module, recipe)
    state = TrainingState(module, optimiser, History(), copied(module.state_dict()) if recipe.ema else None)

    def left() -> TrainingRecord | None:
        if not (run.directory / STATE).exists():
            return None
        run.check_environment({"ranks": ranks.count, "accumulate": accumulate})
        return state.read(run.directory / STATE, recipe.steps)

    record = ranks.first(left)
    if record is not None:
        state.restore(record)
    return _Engine(ranks, network, state, accumulate)


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


def _validate(run: TrainingRun, state: TrainingState, module: nn.Module, val: Dataset, ranks: Ranks) -> dict[str, float]:
    """Validate, and keep a copy of the weights if they are the best so far: in normalised units, in float32."""
    history = state.history
    module.eval()
    errors, own = _errors(run, module, val, ranks)
    module.train()
    mean = sum(history.since) / max(len(history.since), 1)
    history.since, value, error = [], float(errors.mean()), float(own.mean())
    unit = error / value if value else 1.0  # the data's units over the network's: exact where the targets share a scale
    history.curve.append((history.step, mean * unit, error))
    if value < history.best or state.best is None:
        history.best, history.best_step, state.best = value, history.step, copied(module.state_dict())
        if ranks.is_first:
            save_tensors(run.directory / WEIGHTS, state.best, {"step": history.step, "val": value})
    return {f"val_{name}": number for name, number in summary(own).items()}


def _errors(run: TrainingRun, module: nn.Module, val: Dataset, ranks: Ranks) -> tuple[Tensor, Tensor]:
    """The errors of all samples of a split, of which each rank computes its share."""
    (own, *_), count = [*ranks.of_step(sample_costs(module, val.counts), 1), torch.arange(0)], len(val)
    mine = val if ranks.count == 1 else val.select(own)
    batches = (ranks.fabric.to_device(batch) for batch in mine.batches(run.recipe.batch))
    found = errors_of(module, batches, run.task, run.units.errors) if len(own) else (torch.zeros(0), torch.zeros(0))
    normalised, theirs = (ranks.gathered(own, errors, count) for errors in found)
    return normalised, theirs


def _set_rate(optimiser: torch.optim.Optimizer, rate: float) -> float:
    for group in optimiser.param_groups:
        group["lr"] = rate
    return rate


@torch.no_grad()
def _average(state: TrainingState, decay: float) -> None:
    if state.average is not None:
        weights: Weights = state.module.state_dict()
        torch._foreach_lerp_(list(state.average.values()), [weights[name] for name in state.average], 1 - decay)


def _require_finite(module: nn.Module, norm: Tensor, loss: float, step: int) -> None:
    if math.isfinite(norm.item()):
        return
    bad = [n for n, p in module.named_parameters() if p.grad is not None and not bool(p.grad.isfinite().all())]
    raise NonFiniteGradientError(
        f"step {step + 1}: the gradient of {bad[0] if bad else 'all weights together'} is not finite "
        f"({len(bad)} tensors, loss {loss:.3g}); lower lr, use precision 32, or look for outliers: anygatr inspect"
    )
