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
from anygatr.lab.training.objective import Objective

TIMED = 5
"""Steps of which the median is taken, after one that warms up."""
MB = 10**6


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
        self.objective = Objective(self.module, task, recipe.regulariser)
        self.optimiser = torch.optim.Adam(self.module.parameters(), lr=recipe.lr, foreach=True)
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
