"""Fusion for GPUs: norms and gates become part of how the next linear map loads its inputs, residual sums of how it starts.

Products stay kernels of their own: inside a linear map their registers would spill.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from anygatr.execution.fusion import epilogues, feeds_linear_maps_alone
from anygatr.execution.triton.row_source import supports
from anygatr.ops.attention import Attention
from anygatr.ops.gate import Gate
from anygatr.ops.linear import Linear, LinearPlan
from anygatr.ops.norm import Norm, NormPlan
from anygatr.ops.product import Product, ProductPlan
from anygatr.program.program import Program, Step


@dataclass(frozen=True)
class LoadPrologue:
    """What happens to multivectors and scalars while a linear map loads them: None, "norm", "gate", a form of GELU."""

    mv: str | None = None
    s: str | None = None
    norm: NormPlan | None = None


@dataclass(frozen=True)
class Kernel:
    """Steps that run as one node of autograd: the values they read and write, and the constants and parameters they take."""

    steps: tuple[Step, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    parameters: tuple[str, ...]  # those that kernels read; the constants of torch's steps are not among them

    @property
    def step(self) -> Step:
        """The step that names it."""
        return next(step for step in self.steps if isinstance(step.op, Linear | Product | Attention))

    @property
    def name(self) -> str:
        """What it is called in a message."""
        return type(self.step.op).__name__.lower()


@dataclass(frozen=True)
class LinearKernel(Kernel):
    """A linear map with its prologue; inputs are x, s and perhaps a residual stream that is added."""

    plan: LinearPlan
    prologue: LoadPrologue
    missing: tuple[bool, ...] = ()  # of the six parameters, those that the layer does not have
    precise: bool = False  # float32 under autocast


@dataclass(frozen=True)
class ProductKernel(Kernel):
    """All products of a stack of factors; inputs are the factors and the join reference."""

    plan: ProductPlan


@dataclass(frozen=True)
class AttentionKernel(Kernel):
    """The rows of queries, keys and values; attention itself is torch's. Inputs are x and s, or those of both sides."""

    op: Attention
    tables: tuple[str, ...]


Item = LinearKernel | ProductKernel | AttentionKernel | Step


@lru_cache(maxsize=256)
def schedule(program: Program) -> tuple[Item, ...]:
    """Kernels where there are any, single steps elsewhere, in the order of execution."""
    absorbed = {n for n, step in enumerate(program.steps) if _absorbable(program, step)}
    makers = {value: program.steps[n] for n in absorbed for value in program.steps[n].outputs}
    sums = dict(epilogues(program))
    items: list[Item] = []
    for number, step in enumerate(program.steps):
        if number in absorbed or number in sums.values():
            continue
        match step.op:
            case Linear():
                items.append(_linear(step, makers, program.steps[sums[number]] if number in sums else None))
            case Product(plan):
                items.append(ProductKernel((step,), step.inputs, step.outputs, (), plan))
            case Attention() as op if supports(op) and op.is_plain:
                names, learned = tuple(map(str, step.parameters)), sum(f.learned for f in op.features)
                items.append(AttentionKernel((step,), step.inputs, step.outputs, names[:learned], op, names[learned:]))
            case _:
                items.append(step)
    return tuple(items)


def _absorbable(program: Program, step: Step) -> bool:
    """Whether a step becomes part of the linear maps behind it."""
    is_prologue = isinstance(step.op, Gate) or (isinstance(step.op, Norm) and step.op.heads == 1)
    return is_prologue and feeds_linear_maps_alone(program, step)


def _linear(step: Step, makers: dict[int, Step], total: Step | None) -> LinearKernel:
    x, s = step.inputs
    mv, scalars, norm = None, None, None
    before = [makers.get(x), makers.get(s)]
    if before[0] is not None:
        mv, x = "norm" if isinstance(before[0].op, Norm) else "gate", before[0].inputs[0]
        norm = before[0].op.plan if isinstance(before[0].op, Norm) else None
    if before[1] is not None:
        scalars, s = "norm" if isinstance(before[1].op, Norm) else before[1].op.scalars, before[1].inputs[1]  # type: ignore[attr-defined]
    steps = [*_once(b for b in before if b is not None), step, *([] if total is None else [total])]
    residual = () if total is None else total.inputs[:2]
    count = len(Linear.parameter_names)
    names = tuple(name for name in step.parameters[:count] if name is not None)
    missing = tuple(name is None for name in step.parameters[:count])
    outputs = step.outputs if total is None else total.outputs
    assert isinstance(step.op, Linear)
    return LinearKernel(
        tuple(steps),
        (x, s, *residual),
        outputs,
        names,
        step.op.plan,
        LoadPrologue(mv, scalars, norm),
        missing,
        step.op.precise,
    )


def _once(steps: Iterable[Step]) -> Sequence[Step]:
    return list(dict.fromkeys(steps))
