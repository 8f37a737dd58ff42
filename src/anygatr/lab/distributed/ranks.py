"""Ranks: what a process knows about the others of its training, and how they come to the same numbers."""

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from anygatr.lab.distributed.shares import rank_shares

Result = TypeVar("Result")


class LostRankError(ConnectionError):
    """Another process of the training has ended or cannot be reached."""


class Ranks:
    """The processes of a training as one of them sees them; one alone is the case of one rank, without communication."""

    def __init__(self, fabric: Any) -> None:
        self.fabric = fabric
        """Lightning Fabric: device, precision and connection of this process."""
        self.rank, self.count = int(fabric.global_rank), int(fabric.world_size)

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and speaks."""
        return self.rank == 0

    @property
    def on_this_machine(self) -> int:
        """Processes that share this machine's cores."""
        return 1 if self.count == 1 else max(1, self.count // int(self.fabric.strategy.num_nodes))

    def of_step(self, costs: Tensor, pieces: int) -> list[Tensor]:
        """The places of this rank's samples in a step, piece by piece."""
        if self.count == pieces == 1:
            return [torch.arange(len(costs))]
        return rank_shares(costs, self.count, self.rank, pieces)

    def seed(self, seed: int, step: int) -> None:
        """Random numbers of a step, other ones on each rank: a function of both, so that a resumed run has the same.

        A process that is alone goes on with its own, which are part of its state.
        """
        if self.count > 1:
            torch.manual_seed((seed * 1_000_003 + step) * 65_537 + self.rank)

    def sum_gradients(self, module: nn.Module, numbers: Sequence[float]) -> list[float]:
        """Replace the gradients by their sums over ranks, and return the sums of some numbers: one exchange for all.

        A parameter without a gradient on any rank stays without one.
        """
        if self.count == 1:
            return list(numbers)
        parameters = [p for p in module.parameters() if p.requires_grad]
        known = [float(p.grad is not None) for p in parameters]
        device = parameters[0].device
        parts = [torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in parameters]
        told = torch.tensor([*known, *numbers], dtype=torch.float64)
        # float64 halves of the numbers would not fit one buffer with float32 gradients: two small exchanges are cheap
        flat = self._sum(torch.cat(parts))
        sums = self._sum(told.to(device)).tolist()
        for p, part, ranks in zip(parameters, flat.split([p.numel() for p in parameters]), sums, strict=False):
            p.grad = part.view_as(p) if ranks else None
        return sums[len(parameters) :]

    def gathered(self, places: Tensor, values: Tensor, count: int) -> Tensor:
        """The values of all ranks, each at the place that it has among `count`."""
        if self.count == 1:
            return values.new_zeros(count).index_copy(0, places.to(values.device), values)
        return self._sum(values.new_zeros(count).index_copy(0, places.to(values.device), values))

    def first(self, work: Callable[[], Result]) -> Result:
        """What the first rank finds, on every rank; where it fails, the others end without a word."""
        if self.count == 1:
            return work()
        problem: Exception | None = None
        outcome: Any = None
        if self.is_first:
            try:
                outcome = work()
            except Exception as error:
                problem = error
        failed, outcome = self._guarded(lambda: self.fabric.broadcast((problem is not None, outcome)))
        if problem is not None:
            raise problem
        if failed:
            sys.exit(1)
        return outcome

    def wait(self) -> None:
        """Until every rank is here."""
        if self.count > 1:
            self._guarded(self.fabric.barrier)

    @contextmanager
    def connection(self) -> Iterator[None]:
        """End the connection to the others at the end, however that comes.

        Its threads drop the tensors that they have exchanged, for which they need the interpreter: left to the end of that,
        a process can end by SIGABRT.
        """
        try:
            yield
        finally:
            if self.count > 1:
                torch.distributed.destroy_process_group()

    @contextmanager
    def one_voice(self) -> Iterator[None]:
        """Let the first rank speak alone; the errors of others come through."""
        if self.is_first:
            yield
            return
        with redirect_stdout(StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield

    def _sum(self, tensor: Tensor) -> Tensor:
        self._guarded(lambda: torch.distributed.all_reduce(tensor))
        return tensor

    def _guarded(self, exchange: Callable[[], Result]) -> Result:
        try:
            return exchange()
        except RuntimeError as problem:
            if isinstance(problem, torch.OutOfMemoryError):
                raise
            raise LostRankError(
                f"rank {self.rank} of {self.count}: another rank has ended or cannot be reached; its own lines say why. "
                "The same command continues from the last saved step"
            ) from problem
