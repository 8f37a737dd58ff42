"""Choose a model within a time: a tournament by successive halving that ends with a trained, certified run and a reason."""

import shlex
import time
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from anygatr.interface.model import Model
from anygatr.lab.config.commands import ChooseConfig, command_line
from anygatr.lab.config.json_files import write_json
from anygatr.lab.config.recipe import LARGE, Recipe, recipe
from anygatr.lab.data.dataset import Dataset
from anygatr.lab.data.registry import spec_of
from anygatr.lab.data.spec import DataSpec
from anygatr.lab.data.task import Task
from anygatr.lab.data.token_counts import extensive_targets
from anygatr.lab.system.terminal import Terminal
from anygatr.lab.training.blindness import unable
from anygatr.lab.training.evaluate import baselines_of, show_baselines
from anygatr.lab.training.guard import contents, owned
from anygatr.lab.training.models import check_names
from anygatr.lab.training.rehearsal import step_seconds
from anygatr.lab.training.run import RESULT, TrainingRun
from anygatr.lab.training.train import NonFiniteGradientError, fit
from anygatr.lab.training.trained import load_run

KEPT = 3
"""One of so many candidates goes on to the next round, with so many times the steps."""
FINALISTS = 2
SEEDS = 3
"""Seeds with which the finalists are trained."""
FINAL = 0.4
"""Share of the time that is left for training the winner."""
LEAST_STEPS = 20


@dataclass(frozen=True)
class Candidate:
    """A recipe, how long its steps take, and the validation errors that it had, by steps and seed."""

    recipe: Recipe
    seconds: float
    errors: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        """The model with its width, depth and learning rate."""
        made = self.recipe
        return f"{made.model} {made.mv}+{made.s}x{made.blocks} lr {made.lr:g}"

    @property
    def error(self) -> float:
        """The mean over seeds of the last round it was in."""
        return sum(self.errors) / len(self.errors) if self.errors else float("inf")


def choose(config: ChooseConfig) -> dict[str, Any]:
    """The command: the row of the winner, which is in `out/best`, with `reason` and `certified`."""
    check_names(config.models)
    if not config.minutes > 0:
        raise ValueError(f"minutes={config.minutes} must be positive")
    out, console, began = Path(config.out), Terminal(), time.monotonic()
    spec = spec_of(config)
    data = spec.load()
    if held := contents(out):
        raise ValueError(f"out={config.out!r} holds {', '.join(held[:3])}; a tournament needs a directory of its own")
    with owned(out):
        candidates = _candidates(config, spec, data)
        finalists = _tournament(candidates, out, spec, data, 60 * config.minutes * (1 - FINAL), console)
        winner, reason = _verdict(finalists)
        left = max(60 * config.minutes - (time.monotonic() - began), 0.0)
        steps = max(winner.recipe.steps, int(left / winner.seconds))
        made = replace(winner.recipe, steps=steps, seed=0, patience=spec.kind.patience)
        run = TrainingRun.start(out / "best", spec, data, made, command_line("choose", config))
        row = fit(run, data)
        trained = load_run(out / "best")
        certified = isinstance(trained.network, Model) and trained.certify().ok
        row |= {"baselines": baselines_of(run, data), "reason": reason, "certified": certified}
        write_json(out / "best" / RESULT, row)
        final = [{"name": c.name, "steps": c.recipe.steps, "errors": c.errors} for c in finalists]
        write_json(out / "tournament.json", final)
    console.print(reason, highlight=False, soft_wrap=True)
    show_baselines(run, row["metrics"], row["baselines"])
    said = "certified equivariant" if row["certified"] else "not certified"
    quoted = shlex.quote(str(out / "best"))
    text = f"trained and {said}: {quoted}; next: anygatr predict {quoted} --data new.npz"
    console.print(text, highlight=False, soft_wrap=True)
    return row


def _candidates(config: ChooseConfig, spec: DataSpec, data: Dataset) -> list[Candidate]:
    """Models x widths x depths x learning rates, those that cannot learn the task left out, with the cost of their steps."""
    train = data.split("train")
    pool = config.pool or ("sum" if extensive_targets(train) else "mean")
    found = []
    for model, (mv, s), blocks, lr in product(config.models, WIDTHS, DEPTHS, RATES):
        sizes = {"mv": mv, "s": s, "heads": 4, "blocks": blocks, "lr": lr, "lr_end": lr / 30, "pool": pool}
        sizes |= {name: getattr(config, name) for name in LARGE}
        found.append(recipe("laptop", model, **sizes, origin=spec.origin(config.origin)))
    hopeless = unable(found, Task.of(data))
    able = [made for made in found if made.model not in hopeless]
    if not able:
        raise ValueError(next(iter(hopeless.values())))
    costs = {(r.model, r.mv, r.blocks): r for r in able}
    seconds = {key: step_seconds(made, train) for key, made in costs.items()}
    return [Candidate(made, seconds[made.model, made.mv, made.blocks]) for made in able]


WIDTHS = ((4, 16), (8, 32))
DEPTHS = (2, 4)
RATES = (3e-3, 1e-2)


def _tournament(
    candidates: list[Candidate], out: Path, spec: DataSpec, data: Dataset, seconds: float, console: Terminal
) -> list[Candidate]:
    """Rounds in which the best third goes on with three times the steps; the last is held with several seeds."""
    sizes = [len(candidates)]
    while sizes[-1] > FINALISTS:
        sizes.append(max(FINALISTS, -(-sizes[-1] // KEPT)))
    mean = sum(c.seconds for c in candidates) / len(candidates)
    work = sum(size * KEPT**r * (SEEDS if r == len(sizes) - 1 else 1) for r, size in enumerate(sizes))
    steps = max(LEAST_STEPS, int(seconds / (mean * work)))
    console.print(_plan(sizes, steps, mean * work * steps, seconds), highlight=False, soft_wrap=True)
    for round_, size in enumerate(sizes):
        seeds = SEEDS if round_ == len(sizes) - 1 else 1
        candidates = sorted(candidates, key=lambda c: c.error)[:size]
        candidates = [_played(c, steps * KEPT**round_, seeds, out, spec, data) for c in candidates]
        console.print(_table(candidates, round_ + 1, steps * KEPT**round_))
    return sorted(candidates, key=lambda c: c.error)


def _plan(sizes: list[int], steps: int, expected: float, seconds: float) -> str:
    """What is going to happen, before minutes of silence."""
    rounds = ", ".join(f"{size} for {steps * KEPT**r} steps" for r, size in enumerate(sizes))
    text = f"candidates: {rounds}; steps alone take about {expected / 60:.2g} minutes at today's speed"
    if expected <= 1.2 * seconds:
        return text
    return f"{text}, not the {seconds / 60:.2g} that --minutes leaves: fewer --models, or more --minutes"


def _played(candidate: Candidate, steps: int, seeds: int, out: Path, spec: DataSpec, data: Dataset) -> Candidate:
    """The candidate after so many steps; one that diverges is out."""
    errors = []
    made = replace(candidate.recipe, steps=steps)
    for seed in range(seeds):
        place = out / "runs" / f"{candidate.name.replace(' ', '_')}-{steps}-{seed}"
        try:
            run = TrainingRun.start(place, spec, data, replace(made, seed=seed), "anygatr choose")
            errors.append(float(fit(run, data)["metrics"]["val"]["mse"]))
        except NonFiniteGradientError:
            errors.append(float("inf"))
    return replace(candidate, recipe=made, errors=tuple(errors))


def _verdict(finalists: list[Candidate]) -> tuple[Candidate, str]:
    """The winner, and why it won and how sure that is: in how many of the seeds it was ahead."""
    first = finalists[0]
    if len(finalists) == 1:
        return first, f"{first.name} was the only candidate."
    second = finalists[1]
    ahead = sum(a < b for a, b in zip(first.errors, second.errors, strict=True))
    factor = second.error / first.error if first.error else float("inf")
    sure = (
        f"it was ahead with every one of {len(first.errors)} seeds"
        if ahead == len(first.errors)
        else f"it was ahead with only {ahead} of {len(first.errors)} seeds, so the two are hardly different"
    )
    text = f"{first.name} won: validation error {first.error:.4g}, {factor:.3g} times less than {second.name}, and {sure}."
    return first, text


def _table(candidates: list[Candidate], number: int, steps: int) -> Table:
    title = f"round {number}: {steps} steps"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("candidate", "validation error", "ms per step"):
        table.add_column(column, justify="left" if column == "candidate" else "right")
    for one in sorted(candidates, key=lambda c: c.error):
        table.add_row(one.name, f"{one.error:.4g}", f"{1e3 * one.seconds:.1f}")
    return table
