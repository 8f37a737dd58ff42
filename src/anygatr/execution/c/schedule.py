"""Fusion: a program as kernels. Norms, gates and products become prologues of linear maps, residual sums their epilogues."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

from anygatr.execution.c.attention import supports
from anygatr.execution.c.prologue import Prologue
from anygatr.execution.fusion import epilogues, feeds_linear_maps_alone
from anygatr.ops.attention import Attention
from anygatr.ops.gate import Gate
from anygatr.ops.linear import Linear, LinearPlan
from anygatr.ops.norm import Norm
from anygatr.ops.product import Product, ScaledFactors, even
from anygatr.program.program import Program, Step


class FusedLinear(NamedTuple):
    """A linear map with its prologue and a residual added to its results; numbers are those of values and parameters."""

    step: Step
    prologue: Prologue
    x: int
    s: int
    reference: int | None
    outputs: tuple[int, int]
    residual: tuple[int, int] | None
    parameters: tuple[int | None, ...]

    @property
    def plan(self) -> LinearPlan:
        """Which blades its weights connect."""
        assert isinstance(self.step.op, Linear)
        return self.step.op.plan

    @property
    def reads(self) -> tuple[int, ...]:
        """All values it reads."""
        return (self.x, self.s, *(() if self.reference is None else (self.reference,)), *(self.residual or ()))


class FusedAttention(NamedTuple):
    """Attention from channels to channels."""

    step: Step
    reads: tuple[int, ...]
    outputs: tuple[int, int]
    parameters: tuple[int | None, ...]

    @property
    def op(self) -> Attention:
        """What it computes."""
        assert isinstance(self.step.op, Attention)
        return self.step.op


Kernel = FusedLinear | FusedAttention


@dataclass(frozen=True, eq=False)
class Segment:
    """Kernels that run as one node of autograd: the values they take and give, their parameters, and the same as steps."""

    kernels: tuple[Kernel, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    program: Program
    program_parameters: tuple[int, ...]  # the numbers of all that the program names, constants included

    @cached_property
    def made(self) -> tuple[int, ...]:
        """The values that its kernels write."""
        return tuple(value for kernel in self.kernels for value in kernel.outputs)

    @cached_property
    def parameters(self) -> tuple[int, ...]:
        """The numbers of all parameters of kernels."""
        return tuple(dict.fromkeys(p for kernel in self.kernels for p in kernel.parameters if p is not None))

    @cached_property
    def training_chains(self) -> tuple[tuple[Kernel, ...], ...]:
        """What one call runs where every result is kept for the backward pass: linear maps one behind the other."""
        return _chains(self.kernels, frozenset(), attention=False)

    @cached_property
    def inference_chains(self) -> tuple[tuple[Kernel, ...], ...]:
        """The same without a backward pass: results between maps never leave their tile."""
        return _chains(self.kernels, frozenset(self.outputs), attention=False)

    @cached_property
    def inference_chains_with_attention(self) -> tuple[tuple[Kernel, ...], ...]:
        """The same where samples are whole in a tile, so that attention runs among the maps."""
        return _chains(self.kernels, frozenset(self.outputs), attention=True)


@lru_cache(maxsize=256)
def schedule(program: Program, differentiable_reference: bool, sharded: bool = False) -> tuple[Segment | Step, ...]:
    """Kernels where there are any, single steps elsewhere, in the order of execution.

    Kernels do not differentiate the join reference: where that is asked for, torch scales the factors of odd products. Nor
    do they see keys of other processes, among which samples may be `sharded`.
    """
    program = _with_scaled_factors(program) if differentiable_reference else program
    absorbed = {n: step for n, step in enumerate(program.steps) if _absorbable(program, step)}
    makers = {value: n for n in absorbed for value in program.steps[n].outputs}
    sums = dict(epilogues(program))
    items: list[tuple[Kernel | Step, list[int]]] = []
    for number, step in enumerate(program.steps):
        if number in absorbed or number in sums.values():
            continue
        if isinstance(step.op, Linear):
            total = None if number not in sums else program.steps[sums[number]]
            before = sorted({makers[value] for value in step.inputs if value in makers})
            own = [*before, number, *([] if total is None else [sums[number]])]
            items.append((_linear(program, step, [absorbed[n] for n in before], total), own))
        elif isinstance(step.op, Attention) and supports(step.op.features) and step.op.is_plain and not sharded:
            items.append((FusedAttention(step, step.inputs, step.outputs, _learned(program, step)), [number]))  # type: ignore[arg-type]
        else:
            items.append((step, [number]))
    return tuple(_segments(program, items))


@lru_cache(maxsize=256)
def kernel_parameters(program: Program) -> tuple[int, ...]:
    """The numbers of the parameters that kernels read; the constants of a program are for torch."""
    segments = [item for item in schedule(program, False) if isinstance(item, Segment)]
    return tuple(dict.fromkeys(p for segment in segments for p in segment.parameters))


def _with_scaled_factors(program: Program) -> Program:
    """The same program, odd products made even by factors that have been multiplied by the join reference."""
    steps, widths = list[Step](), list(program.widths)
    for step in program.steps:
        if isinstance(step.op, Product) and any(term.odd for term in step.op.plan.terms):
            h, reference = step.inputs
            widths.append(widths[h])
            steps.append(Step(ScaledFactors(step.op.plan), step.inputs, (len(widths) - 1,), "", ()))
            step = replace(step, op=replace(step.op, plan=even(step.op.plan)), inputs=(len(widths) - 1, reference))
        steps.append(step)
    return replace(program, steps=tuple(steps), widths=tuple(widths))


def _absorbable(program: Program, step: Step) -> bool:
    """Whether a step becomes part of the linear maps behind it."""
    is_prologue = isinstance(step.op, Gate | Product) or (isinstance(step.op, Norm) and step.op.heads == 1)
    return is_prologue and feeds_linear_maps_alone(program, step)


def _linear(program: Program, step: Step, before: Sequence[Step], total: Step | None) -> FusedLinear:
    (x, s), prologue, reference = step.inputs, Prologue(), None
    for maker in before:
        if isinstance(maker.op, Product):
            referred = any(term.odd for term in maker.op.plan.terms)
            prologue = replace(prologue, products=maker.op.plan, referred=referred)
            x, reference = maker.inputs
            continue
        if x == maker.outputs[0]:
            x = maker.inputs[0]
            prologue = replace(prologue, norm=maker.op.plan) if isinstance(maker.op, Norm) else replace(prologue, gate=True)
        if s == maker.outputs[1]:
            s = maker.inputs[1]
            prologue = replace(prologue, scalars="norm" if isinstance(maker.op, Norm) else maker.op.scalars)  # type: ignore[attr-defined]
    outputs, residual = step.outputs, None
    if total is not None:
        outputs, residual = total.outputs, total.inputs[:2]
    places = _places(program, step)[: len(Linear.parameter_names)]
    return FusedLinear(step, prologue, x, s, reference, outputs, residual, places)  # type: ignore[arg-type]


def _learned(program: Program, step: Step) -> tuple[int | None, ...]:
    """The weights of attention's learned features; tables are for torch."""
    assert isinstance(step.op, Attention)
    return _places(program, step)[: sum(f.learned for f in step.op.features)]


def _places(program: Program, step: Step) -> tuple[int | None, ...]:
    return tuple(None if name is None else program.parameters.index(name) for name in step.parameters)


def _segments(program: Program, items: Sequence[tuple[Kernel | Step, list[int]]]) -> Iterable[Segment | Step]:
    """Runs of kernels as segments; what a segment gives is what somebody behind it reads."""
    run: list[tuple[Kernel, list[int]]] = []
    for at, (item, own) in enumerate([*items, (None, [])]):
        if isinstance(item, FusedLinear | FusedAttention):
            run.append((item, own))
            continue
        if run:
            later = {v for other, _ in items[at:] for v in (other.inputs if isinstance(other, Step) else other.reads)}
            later |= set(program.outputs)
            yield _segment(program, run, later)
            run = []
        if item is not None:
            yield item


def _segment(program: Program, run: Sequence[tuple[Kernel, list[int]]], later: set[int]) -> Segment:
    kernels = tuple(kernel for kernel, _ in run)
    made = [value for kernel in kernels for value in kernel.outputs]
    inputs = tuple(dict.fromkeys(v for kernel in kernels for v in kernel.reads if v not in made))
    outputs = tuple(value for value in made if value in later)
    steps = [program.steps[n] for n in sorted({n for _, own in run for n in own})]
    part = subprogram(program, steps, inputs, outputs)
    return Segment(kernels, inputs, outputs, part, tuple(program.parameters.index(name) for name in part.parameters))


def subprogram(program: Program, steps: Sequence[Step], inputs: Sequence[int], outputs: Sequence[int]) -> Program:
    """Some steps of a program as a program of their own, its values numbered anew."""
    # a step whose operand comes from a prologue reads what that read; unread outputs keep their place
    order = dict.fromkeys([*inputs, *(v for step in steps for v in (*step.inputs, *step.outputs) if v not in inputs)])
    number = {value: n for n, value in enumerate(order)}
    renamed = [
        replace(s, inputs=tuple(number[v] for v in s.inputs), outputs=tuple(number[v] for v in s.outputs)) for s in steps
    ]
    names = tuple(program.inputs[v] if v < len(program.inputs) else f"v{v}" for v in inputs)
    return Program(names, tuple(renamed), tuple(number[v] for v in outputs), tuple(program.widths[v] for v in order))


def _chains(kernels: Sequence[Kernel], needed: frozenset[int], attention: bool) -> tuple[tuple[Kernel, ...], ...]:
    """Kernels that one call runs tile by tile: each reads what the one before it wrote.

    With `needed` values (those that leave the segment), results between are dropped, so nothing else may read them.
    """
    reads: dict[int, int] = {}
    for kernel in kernels:
        for value in kernel.reads:
            reads[value] = reads.get(value, 0) + 1
    chains: list[list[Kernel]] = []
    for kernel in kernels:
        if chains and _continues(chains[-1], kernel, reads, needed, attention):
            chains[-1].append(kernel)
        else:
            chains.append([kernel])
    return tuple(map(tuple, chains))


def _continues(
    chain: Sequence[Kernel], kernel: Kernel, reads: dict[int, int], needed: frozenset[int], attention: bool
) -> bool:
    last = chain[-1]
    if isinstance(chain[0], FusedAttention) or (isinstance(last, FusedLinear) and last.residual is not None):
        return False
    y, t = last.outputs
    if needed and (y in needed or t in needed or reads.get(y, 0) > 1 or reads.get(t, 0) > 1):
        return False
    if isinstance(kernel, FusedAttention):
        return attention and kernel.reads == (y, t)
    if isinstance(last, FusedAttention) and not attention:
        return False
    inside = {value for other in chain for value in other.outputs}
    beside = {other.s for other in chain[1:] if isinstance(other, FusedLinear) and other.s not in inside}
    if kernel.x != y or (kernel.residual is not None and inside & set(kernel.residual)):
        return False
    return kernel.s == t or (kernel.s not in inside and beside <= {kernel.s})
