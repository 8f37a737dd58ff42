"""The base of all operations: a frozen, hashable description that can be called on tensors or recorded into a program."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from anygatr.ops.batch import Batch

Tensors = Sequence[Tensor | None]


class Op:
    """An operation from tensors to tensors.

    Subclasses are frozen dataclasses: equal descriptions are equal operations. `run` is the meaning, in torch functions
    alone; `tables` are the constants it needs, which a layer keeps as buffers and passes behind its parameters.
    """

    parameter_names: tuple[str, ...] = ()

    def __call__(self, *values: Any, parameters: Tensors = (), batch: Batch | None = None) -> Any:
        """Run on tensors; on symbols, which stand for tensors while a program is traced, add a step to their trace."""
        first = values[0]
        if isinstance(first, Tensor):
            return self.run(values, parameters, batch)
        return first.trace.add(self, values, parameters)

    def run(self, values: Sequence[Tensor], parameters: Tensors, batch: Batch | None) -> tuple[Tensor, ...]:
        """The results, differentiable any number of times."""
        raise NotImplementedError

    def tables(self) -> dict[str, Tensor]:
        """The constants that `run` takes after the parameters."""
        return {}
