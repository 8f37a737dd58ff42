"""A rehearsal of training: what one step of a recipe costs in time and in memory, without a run."""

import os
import statistics
import time
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from anygatr.lab.config.recipe import Recipe
from anygatr.lab.data.dataset import Dataset
from anygatr.lab.data.task import Task
from anygatr.lab.training.models import build
from anygatr.lab.training.objective import ErrorUnits, Objective

TIMED = 5
"""Steps of which the median is taken, after one that warms up."""
MB = 10**6


WORTH = 0.9
"""More threads are taken if a step takes less than this share of the time with fewer."""
LONG = 2.0
"""Seconds after which no further step is rehearsed with one number of threads."""


def best_threads(recipe: Recipe, train: Dataset) -> int:
    """The number of threads, up to all cores, with which a step is fastest here and now; few where more gain little.

    On a busy machine threads wait for each other: small steps may take many times longer with two than with one.
    """
    rehearsal, before = Rehearsal(recipe, train), torch.get_num_threads()
    costs: dict[int, list[float]] = {n: [] for n in thread_counts(before)}
    if len(costs) == 1:
        return before
    try:
        for turn in range(TIMED + 1):
            for threads, seconds in costs.items():
                if sum(seconds) > LONG:
                    continue
                torch.set_num_threads(threads)
                took = _seconds(rehearsal.step)
                seconds += [took] if turn or took > LONG else []  # the first one warms up
    finally:
        torch.set_num_threads(before)
    best = 1
    for threads, seconds in costs.items():
        if statistics.median(seconds) < WORTH * statistics.median(costs[best]):
            best = threads
    return best


def thread_counts(most: int) -> list[int]:
    """The numbers of threads that are rehearsed: 1, 2, 4, ... and all."""
    return sorted({*(2**k for k in range(most.bit_length()) if 2**k < most), most})


def optimiser_of(module: torch.nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """Adam, or AdamW where weights shall decay."""
    if recipe.weight_decay:
        return torch.optim.AdamW(module.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay, fused=True)
    return torch.optim.Adam(module.parameters(), lr=recipe.lr, fused=True)


def step_seconds(recipe: Recipe, train: Dataset) -> float:
    """How long one step of training takes here and now."""
    rehearsal = Rehearsal(recipe, train)
    return statistics.median([_seconds(rehearsal.step) for _ in range(TIMED + 1)][1:])


def training_memory_mb(recipe: Recipe, train: Dataset) -> float:
    """The most that the tensors of a model in training take at once: what it holds, and what a step allocates on top.

    It holds weights, constants and Adam's moments; a step adds activations, gradients and temporaries. The interpreter, its
    libraries and the data are not counted. Measured on the CPU, where every allocation is seen; 10^6 bytes are a megabyte.
    """
    rehearsal = Rehearsal(recipe, train)
    rehearsal.step()  # Adam makes its moments in the first step
    return (rehearsal.held_bytes + peak_bytes(rehearsal.step)) / MB


def peak_bytes(call: Callable[[], object]) -> int:
    """The most bytes that a call has allocated and not yet freed, at any moment, as the allocator of the CPU reports it."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # or the profiler announces itself on standard error
    with torch.autograd.profiler.profile(profile_memory=True) as profile:
        call()
    assert profile.kineto_results is not None
    live = peak = 0
    for event in profile.kineto_results.events():
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    return peak


class Rehearsal:
    """A fresh model with its optimiser and one batch to repeat; leaves torch's random numbers as they were."""

    def __init__(self, recipe: Recipe, train: Dataset):
        task = Task.of(train)
        with torch.random.fork_rng(devices=[]):
            self.module = build(task, recipe)
        self.recipe = recipe
        weights = dict.fromkeys(task.targets, 1.0) if len(task.targets) > 1 else {}
        self.objective = Objective(self.module, task, recipe.regulariser, ErrorUnits(weights=weights))
        self.optimiser = optimiser_of(self.module, recipe)
        self.batch = train.subset(min(recipe.batch, len(train))).batch()

    def step(self) -> None:
        """What training does in a step."""
        with torch.autocast("cpu", torch.bfloat16, enabled=self.recipe.precision == "bf16"):
            loss, _ = self.objective(self.module, self.batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.module.parameters(), self.recipe.clip)
        self.optimiser.step()
        self.optimiser.zero_grad()

    @property
    def held_bytes(self) -> int:
        """Bytes that stay between steps: weights, constants and the state of the optimiser."""
        state = (x for entry in self.optimiser.state.values() for x in entry.values() if isinstance(x, Tensor))
        return _bytes([*self.module.parameters(), *self.module.buffers(), *state])


def _bytes(tensors: Iterable[Tensor]) -> int:
    """Shared storages count once."""
    return sum({s.data_ptr(): s.nbytes() for s in (x.untyped_storage() for x in tensors)}.values())


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
