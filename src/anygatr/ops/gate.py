"""Multivectors gated by the GELU of their own scalar part; scalars through GELU."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from anygatr.ops.batch import Batch
from anygatr.ops.op import Op, Tensors

GELU = {"exact": "none", "tanh": "tanh"}
"""What torch calls the forms."""


@dataclass(frozen=True)
class Gate(Op):
    """x gelu_tanh(x_0) and gelu(s), the latter in its "exact" or its "tanh" form: (x, s) -> (x, s)."""

    scalars: str = "exact"

    def run(self, values: Sequence[Tensor], parameters: Tensors = (), batch: Batch | None = None) -> tuple[Tensor, Tensor]:
        """Each channel by itself."""
        x, s = values
        return x * functional.gelu(x[0], approximate="tanh"), functional.gelu(s, approximate=GELU[self.scalars])
