"""A program: operations in order, the values they read and write, the parameters they take by name."""

from dataclasses import dataclass
from functools import cached_property

from anygatr.ops.attention import Attention, Rope
from anygatr.ops.gate import Gate
from anygatr.ops.linear import Linear
from anygatr.ops.norm import Norm
from anygatr.ops.op import Op
from anygatr.ops.product import Product
from anygatr.ops.stream import Add, Dropout


@dataclass(frozen=True)
class Step:
    """One operation: the numbers of the values it reads and writes, the layer it belongs to and its parameters by name."""

    op: Op
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    layer: str
    parameters: tuple[str | None, ...]


@dataclass(frozen=True)
class Program:
    """What a module computes. Values are numbered: first the inputs, named, then what the steps write.

    `widths` has the channels of each value; parameters are named as in the module's state dict, constants as its buffers.
    """

    inputs: tuple[str, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
    widths: tuple[int, ...]

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.inputs, self.steps, self.outputs, self.widths))

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The names of all parameters and constants, each once."""
        return tuple(dict.fromkeys(name for step in self.steps for name in step.parameters if name is not None))

    @cached_property
    def readers(self) -> tuple[tuple[int, ...], ...]:
        """For each value the steps that read it; an output of the program counts as read by one step more."""
        out: list[list[int]] = [[] for _ in self.widths]
        for number, step in enumerate(self.steps):
            for value in step.inputs:
                out[value].append(number)
        for value in self.outputs:
            out[value].append(len(self.steps))
        return tuple(map(tuple, out))

    def __str__(self) -> str:
        names = [*self.inputs, *(f"%{i}" for i in range(len(self.inputs), len(self.widths)))]
        lines = [f"program({', '.join(f'{n}[{w}]' for n, w in zip(self.inputs, self.widths, strict=False))})"]
        for step in self.steps:
            written = ", ".join(f"{names[i]}[{self.widths[i]}]" for i in step.outputs)
            read = ", ".join(names[i] for i in step.inputs)
            lines.append(f"  {written} = {describe(step.op)}({read}){f'  # {step.layer}' if step.layer else ''}")
        return "\n".join([*lines, f"  return {', '.join(names[i] for i in self.outputs)}"])


def describe(op: Op) -> str:
    """The name of an operation with what sets it apart."""
    match op:
        case Linear(plan):
            return f"linear<{plan.maps} maps, {plan.multiply_adds} entries>"
        case Norm(plan, heads):
            return f"norm<{plan.floor[0]} {plan.floor[1]:g}{f', {heads} heads' if heads > 1 else ''}>"
        case Gate(scalars):
            return f"gate<{scalars} gelu>"
        case Product(plan):
            return f"product<{plan.multiply_adds} terms>"
        case Attention():
            features = ", ".join(f"{type(f).__name__}({f.size})" for f in op.features)
            keys = f", {op.sparse[0]} neighbours, {op.sparse[1]} anchors" if any(op.sparse) else ", pairs" * op.paired
            return f"{'cross_' if op.cross else ''}attention<{op.heads} heads, {features}{keys}>"
        case Rope():
            return "rope"
        case Add():
            return "add"
        case Dropout(_, (p,)):
            return f"dropout<{p:g}>"
    return type(op).__name__.lower()
