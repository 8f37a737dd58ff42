"""The base of layers that are one operation: its description, its constants as buffers, its parameters."""

from functools import lru_cache
from typing import Any, Self

import torch
from torch import Tensor, nn

from anygatr.ops.op import Op


class Layer(nn.Module):
    """One operation with its parameters; `op` may be replaced by a narrowed one."""

    layout = "blades"

    def __init__(self, op: Op):
        super().__init__()
        self._op = self._whole = op
        self._tabulate(torch.get_default_dtype(), None)

    @property
    def op(self) -> Op:
        """What the layer computes."""
        return self._op

    @op.setter
    def op(self, op: Op) -> None:
        tables = self.tables
        floats = next((t.dtype for t in tables if t.is_floating_point()), torch.get_default_dtype())
        self._op = op
        self._tabulate(floats, tables[0].device if tables else None)

    def widen(self) -> None:
        """Compute all of the operation again that the layer was made for."""
        if self._op is not self._whole:
            self.op = self._whole

    @property
    def tables(self) -> tuple[Tensor, ...]:
        """The operation's constants, on the layer's device."""
        return tuple(self._buffers[name] for name in self._names)  # type: ignore[misc]

    def _tabulate(self, dtype: torch.dtype, device: torch.device | None) -> None:
        for name in getattr(self, "_names", ()):
            delattr(self, name)
        tables = _tables(self._op)
        self._names = tuple(tables)
        for name, table in tables.items():
            self.register_buffer(name, table.to(device, dtype if table.is_floating_point() else None), persistent=False)

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        for name, table in _tables(self._op).items():  # anew: to float32 and back would lose digits
            moved = self._buffers[name]
            if table.is_floating_point() and moved is not None:
                self._buffers[name] = table.to(moved)
        return self


@lru_cache(maxsize=256)
def _tables(op: Op) -> dict[str, Tensor]:
    """Made once for all layers that compute the same."""
    return op.tables()
