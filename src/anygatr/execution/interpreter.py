"""The torch backend: a program's operations one after the other, as torch functions."""

from collections.abc import Callable, Sequence

from torch import Tensor

from anygatr.ops.batch import Batch
from anygatr.program.program import Program, Step


class TorchBackend:
    """Any device, any dtype, any derivative."""

    name = "torch"

    def available(self) -> str | None:
        """Always."""
        return None

    def accepts(self, program: Program, values: Sequence[Tensor], parameters: Sequence[Tensor]) -> bool:
        """Everything."""
        return True

    def run(
        self,
        program: Program,
        values: Sequence[Tensor],
        parameters: Sequence[Tensor],
        batch: Batch | None,
        watch: Callable[[Step, Sequence[Tensor]], None] | None = None,
    ) -> tuple[Tensor, ...]:
        """The outputs."""
        return interpret(program, values, parameters, batch, watch)


def interpret(
    program: Program,
    values: Sequence[Tensor],
    parameters: Sequence[Tensor | None],
    batch: Batch | None,
    watch: Callable[[Step, Sequence[Tensor]], None] | None = None,
) -> tuple[Tensor, ...]:
    """Run a program step by step."""
    known: dict[int, Tensor] = dict(enumerate(values))
    named = dict(zip(program.parameters, parameters, strict=True))
    for step in program.steps:
        given = tuple(None if name is None else named[name] for name in step.parameters)
        made = step.op.run([known[i] for i in step.inputs], given, batch)
        known.update(zip(step.outputs, made, strict=True))
        if watch is not None:
            watch(step, made)
    return tuple(known[i] for i in program.outputs)
