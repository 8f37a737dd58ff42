"""Operations on whole streams: residual sums, reinserted inputs, dropout of grades."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from anygatr.ops.batch import Batch
from anygatr.ops.op import Op, Tensors

Stream = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Add(Op):
    """The sum of two streams: (x, s, y, t) -> (x + y, s + t). Channels that y or t lack count as zero."""

    def run(self, values: Sequence[Tensor], parameters: Tensors = (), batch: Batch | None = None) -> Stream:
        """The residual stream and what a branch adds to it."""
        x, s, y, t = values
        return _sum(x, y), _sum(s, t)


def add(stream: Stream, branch: Stream) -> Stream:
    """The sum of two streams."""
    return Add()(*stream, *branch)


def _sum(a: Tensor, b: Tensor) -> Tensor:
    missing = a.shape[-1] - b.shape[-1]
    return a + (functional.pad(b, (0, missing)) if missing else b)


@dataclass(frozen=True)
class Dropout(Op):
    """Drop each grade of each multivector channel, and each scalar, with probability `chances`: (x, s) -> (x, s).

    What is left transforms as before.
    """

    grades: tuple[int, ...]  # of each blade
    chances: tuple[float]  # in a tuple, a constant to torch's tracing, which begins anew for a number by itself

    def tables(self) -> dict[str, Tensor]:
        """The grade of each blade."""
        return {"grades": torch.tensor(self.grades)}

    def run(self, values: Sequence[Tensor], parameters: Tensors, batch: Batch | None = None) -> Stream:
        """What is kept is scaled up, so that means stay what they were."""
        (x, s), (grades,), (p,) = values, parameters, self.chances
        kept = functional.dropout(x.new_ones(max(self.grades) + 1, *x.shape[1:]), p)
        return x * torch.index_select(kept, 0, grades), functional.dropout(s, p)  # type: ignore[arg-type]
