"""How a program is run: the one place where a backend is chosen.

`execute(module, ...)` is what networks call for each of their blocks. It runs the module's program on the fastest backend
that accepts it, or the module itself where somebody looks inside: a hook, a subclass, a layer of one's own.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

import torch
from torch import Tensor, nn

from anygatr.execution.c.backend import CBackend
from anygatr.execution.interpreter import TorchBackend
from anygatr.execution.observed import Traced, traced
from anygatr.execution.triton.backend import TritonBackend
from anygatr.ops.batch import Batch
from anygatr.program.program import Program, Step

Name = Literal["auto", "torch", "c", "triton"]
Watch = Callable[[nn.Module, Step, Sequence[Tensor]], None]


class Backend(Protocol):
    """A way to run programs."""

    name: str

    def available(self) -> str | None:
        """None where it can be used here, else why not."""

    def accepts(self, program: Program, values: Sequence[Tensor], parameters: Sequence[Tensor]) -> bool:
        """Whether it can run the program on these tensors: device, dtype, autocast, transforms."""

    def run(
        self,
        program: Program,
        values: Sequence[Tensor],
        parameters: Sequence[Tensor],
        batch: Batch | None,
        watch: Callable[[Step, Sequence[Tensor]], None] | None = None,
    ) -> tuple[Tensor, ...]:
        """The outputs; `watch` is told of every value in memory, with the step that wrote it."""


BACKENDS: tuple[Backend, ...] = (CBackend(), TritonBackend(), TorchBackend())
"""In the order of preference; the last accepts everything."""

_chosen: ContextVar[Name] = ContextVar("anygatr_backend", default="auto")
_watch: ContextVar[Watch | None] = ContextVar("anygatr_watch", default=None)


def execute(module: nn.Module, *arguments: Any) -> Any:
    """What `module(*arguments)` returns, computed by the best backend that accepts it."""
    if torch.compiler.is_compiling():  # compilers and exporters see the torch operations
        return module(*arguments)
    found = traced(module, arguments)
    if found is None:
        return module(*arguments)
    values, parameters, batch = found.bind(arguments)
    watch = _watch.get()
    told = None if watch is None else lambda step, made: watch(module, step, made)
    for backend in _candidates():
        if backend.accepts(found.program, values, parameters):
            return backend.run(found.program, values, parameters, batch, told)
    raise AssertionError("the torch backend accepts everything")


def _candidates() -> tuple[Backend, ...]:
    name = _chosen.get()
    return BACKENDS if name == "auto" else tuple(b for b in BACKENDS if b.name in (name, "torch"))


class backend:  # noqa: N801  reads as a statement: with anygatr.backend("torch"): ...
    """Choose how blocks run: "torch", "c", "triton" or "auto", from now on or within a `with` statement.

    A named backend that does not accept a call leaves it to "torch"; `backends()` says what is available here.
    """

    def __init__(self, name: Name):
        if name not in get_args(Name):
            raise ValueError(f"backend={name!r} is not one of {', '.join(map(repr, get_args(Name)))}")
        reason = next((b.available() for b in BACKENDS if b.name == name), None)
        if reason is not None:
            raise ValueError(f"backend={name!r} is not available here: {reason}; use 'auto'")
        self._before = _chosen.set(name)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        _chosen.reset(self._before)


@dataclass(frozen=True)
class Available:
    """The backends of this machine, each with None or the reason why it cannot be used; printable."""

    reasons: dict[str, str | None]

    def __str__(self) -> str:
        return "\n".join(f"{name:<7} {'available' if why is None else f'not available: {why}'}" for name, why in self)

    def __iter__(self) -> Iterator[tuple[str, str | None]]:
        return iter(self.reasons.items())


def backends() -> Available:
    """What can run programs here, and why not: print(anygatr.backends())."""
    return Available({backend.name: backend.available() for backend in BACKENDS})


@contextmanager
def watching(watch: Watch) -> Iterator[None]:
    """Have `watch(module, step, values)` told of every value that backends keep in memory, in the order of execution."""
    token = _watch.set(watch)
    try:
        yield
    finally:
        _watch.reset(token)


__all__ = ["BACKENDS", "Available", "Backend", "Traced", "backend", "backends", "execute", "watching"]
