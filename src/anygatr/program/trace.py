"""Programs from modules: the module's own forward, called once on symbols that stand for its tensors."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from anygatr.ops.attention import Attention
from anygatr.ops.batch import Batch
from anygatr.ops.linear import Linear
from anygatr.ops.op import Op, Tensors
from anygatr.ops.product import Product
from anygatr.program.program import Program, Step

BATCH_VALUES = ("reference", "inputs", "scalars")
"""The tensors of a batch that steps read as values; mask and ragged layout are told to attention."""


@dataclass(frozen=True, eq=False)
class Symbol:
    """Stands for a tensor while a program is traced; of its shape only the channels are known."""

    trace: "Trace"
    number: int

    def transpose(self, *axes: int) -> "Symbol":
        """Tokens in another order are the same to every step."""
        return self


@dataclass
class Trace:
    """The steps recorded so far, with the module's parameters, buffers and layers by identity."""

    tensors: dict[int, str]
    layers: dict[int, str]
    steps: list[Step] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    widths: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, module: nn.Module) -> "Trace":
        """An empty trace of a module."""
        tensors = {id(t): name for name, t in (*module.named_parameters(), *module.named_buffers())}
        layers = {id(m.op): name for name, m in module.named_modules() if isinstance(getattr(m, "op", None), Op)}
        return cls(tensors, layers)

    def input(self, name: str, width: int) -> Symbol:
        """A value that the program is given."""
        self.inputs.append(name)
        return self._value(width)

    def add(self, op: Op, values: Sequence[Symbol], parameters: Tensors) -> tuple[Symbol, ...]:
        """Record a step; called by operations on symbols."""
        read = tuple(value.number for value in values)
        outputs = tuple(self._value(width) for width in self._written(op, read, parameters))
        if any(t is not None and id(t) not in self.tensors for t in parameters):
            raise TypeError(f"{type(op).__name__} is given a tensor that is neither a parameter nor a buffer of the module")
        names = tuple(None if t is None else self.tensors[id(t)] for t in parameters)
        self.steps.append(Step(op, read, tuple(v.number for v in outputs), self.layers.get(id(op), ""), names))
        return outputs

    def finish(self, outputs: Any) -> Program:
        """The program that returns these symbols."""
        made = outputs if isinstance(outputs, tuple) else (outputs,)
        return Program(tuple(self.inputs), tuple(self.steps), tuple(v.number for v in made), tuple(self.widths))

    def _value(self, width: int) -> Symbol:
        self.widths.append(width)
        return Symbol(self, len(self.widths) - 1)

    def _written(self, op: Op, read: tuple[int, ...], parameters: Tensors) -> list[int]:
        """The channels of what an operation writes."""
        widths = [self.widths[i] for i in read]
        match op:
            case Linear():
                mv, s_to_s = parameters[0], parameters[3]
                assert mv is not None
                assert s_to_s is not None
                return [len(mv), len(s_to_s)]
            case Product(plan):
                return [widths[0] // plan.sizes[1] * plan.sizes[0]]
            case Attention():
                return [op.heads * width for width in op.head]
        return widths[:2]  # what it reads first


def trace(
    module: nn.Module,
    arguments: Sequence[Any],
    call: Callable[..., Any] | None = None,
    names: Sequence[str] | None = None,
) -> Program:
    """The program of a module called with these arguments: tensors, of which only the channels matter, and a `Batch`.

    `call` replaces the module's forward; `names` are those of the arguments, by default as the forward names them.
    """
    recorded, forward = Trace.of(module), module.forward if call is None else call
    names = names or _argument_names(forward, len(arguments))
    told: list[Any] = []
    for name, argument in zip(names, arguments, strict=True):
        if isinstance(argument, Batch):
            given = {key: getattr(argument, key) for key in BATCH_VALUES}
            symbols = {key: None if t is None else recorded.input(key, t.shape[-1]) for key, t in given.items()}
            told.append(Batch(**symbols))  # type: ignore[arg-type]
        else:
            told.append(recorded.input(name, argument.shape[-1]))
    return recorded.finish(forward(*told))


def _argument_names(forward: Callable[..., Any], count: int) -> list[str]:
    """The names of that many positional arguments; those behind a * are numbered."""
    names: list[str] = []
    for parameter in inspect.signature(forward).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}_{i}" for i in range(count - len(names))]
        names.append(parameter.name)
    return names[:count]


def values_of(arguments: Sequence[Any]) -> tuple[list[Tensor], Batch | None]:
    """The tensors of a call in the order of a program's inputs, and its batch."""
    values: list[Tensor] = []
    batch = None
    for argument in arguments:
        if isinstance(argument, Batch):
            batch = argument
            values += [t for key in BATCH_VALUES if (t := getattr(argument, key)) is not None]
        else:
            values.append(argument)
    return values, batch
