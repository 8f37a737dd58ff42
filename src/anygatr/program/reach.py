"""Reachable grades: which are alive and which are needed at every value of a program, and operations cut to those.

Alive is what may be non-zero, found from the inputs onwards; needed is what is read of the results, found from them back.

A task that fills some grades and reads some leaves dead blades, above all in the first and the last block: in between, maps
and products soon fill all grades. Scalars count as one more grade.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from anygatr.ops import linear, product
from anygatr.ops.attention import Attention, Rope
from anygatr.ops.gate import Gate
from anygatr.ops.linear import Linear
from anygatr.ops.norm import Norm
from anygatr.ops.op import Op
from anygatr.ops.product import Product
from anygatr.ops.stream import Add, Dropout
from anygatr.program.program import Program, Step


class Reach(NamedTuple):
    """Some grades of the multivectors, and perhaps the scalars."""

    grades: frozenset[int]
    scalars: bool

    def __or__(self, other: "Reach") -> "Reach":
        return Reach(self.grades | other.grades, self.scalars or other.scalars)

    def __bool__(self) -> bool:
        return bool(self.grades) or self.scalars

    def __str__(self) -> str:
        return " ".join([*map(str, sorted(self.grades)), *(["s"] if self.scalars else [])]) or "-"


NOTHING = Reach(frozenset(), False)


class StepReach(NamedTuple):
    """A step: what is alive in what it reads and in its results, what is needed of its results, the operation cut to it."""

    step: Step
    alive_in: Reach
    alive_out: Reach
    needed: Reach
    narrowed: Op


def reach(program: Program, grades: Sequence[int], given: Mapping[str, Reach], needed_outputs: Reach) -> list[StepReach]:
    """The analysis of all steps that can be narrowed, for inputs where only what is `given` by name is alive.

    `grades` has the grade of each blade. Values are counted one by one: a multivector's has grades, a scalar's scalars.
    """
    alive = [
        given.get(name, NOTHING) if width else NOTHING for name, width in zip(program.inputs, program.widths, strict=False)
    ]
    alive += [NOTHING] * (len(program.widths) - len(alive))
    rules = [_Rule(step, grades) for step in program.steps]
    for step, rule in zip(program.steps, rules, strict=True):
        for value, part in zip(step.outputs, rule.alive_out([alive[i] for i in step.inputs]), strict=True):
            alive[value] = part if program.widths[value] else NOTHING
    needed = [NOTHING] * len(program.widths)
    for value in program.outputs:
        needed[value] = needed_outputs
    for step, rule in reversed(list(zip(program.steps, rules, strict=True))):
        results = [needed[i] for i in step.outputs]
        for value, part in zip(step.inputs, rule.needed_in(results, [alive[i] for i in step.inputs]), strict=True):
            needed[value] = needed[value] | part if program.widths[value] else NOTHING
    found = []
    for step, rule in zip(program.steps, rules, strict=True):
        if isinstance(step.op, Linear | Product | Attention):
            inputs, needed_out = [alive[i] for i in step.inputs], _together([needed[i] for i in step.outputs])
            out, read = _together([alive[i] for i in step.outputs]), inputs[:1] if isinstance(step.op, Product) else inputs
            found.append(StepReach(step, _together(read), out, needed_out, rule.narrowed(needed_out, inputs)))
    return found


class _Rule:
    """How a step passes on what is alive to its outputs, and what is needed back to its inputs."""

    def __init__(self, step: Step, grades: Sequence[int]):
        self.op, self.step, self.grade = step.op, step, tuple(grades)

    def alive_out(self, alive: Sequence[Reach]) -> list[Reach]:
        """What is alive in each output, from what is alive in each input."""
        match self.op:
            case Linear(plan):
                grades, biased = alive[0].grades, self.step.parameters[4] is not None
                fed = biased or alive[1].scalars
                reached = {o for i, o in self._maps() if i in grades} | (self._of(plan.invariant) if fed else set())
                return [_grades(reached), _scalars(fed or bool(self._of(plan.invariant) & grades))]
            case Product():
                pairs = [o for o, a, b, odd in self._triples() if {a, b} <= alive[0].grades and (alive[1] or not odd)]
                return [_grades(pairs)]
            case Attention():
                return [_grades(alive[-2].grades), _scalars(alive[-1].scalars)]
            case Gate():  # a function of the scalar part that is zero at zero
                return [alive[0] if 0 in alive[0].grades else NOTHING, alive[1]]
            case Add():
                return [alive[0] | alive[2], alive[1] | alive[3]]
            case Norm() | Dropout() | Rope():
                return list(alive)
        raise self._unknown()

    def needed_in(self, needed: Sequence[Reach], alive: Sequence[Reach]) -> list[Reach]:
        """What is needed of each input, from what is needed of each output and alive in each input."""
        union = _together(needed)
        match self.op:
            case Linear(plan):
                invariant = self._of(plan.invariant)
                sources = {i for i, o in self._maps() if o in union.grades} | (invariant if union.scalars else set())
                return [_grades(sources), _scalars(union.scalars or bool(invariant & union.grades))]
            case Product():
                triples = [t for t in self._triples() if t[0] in union.grades and {t[1], t[2]} <= alive[0].grades]
                factors = [grade for _, a, b, odd in triples if alive[1] or not odd for grade in (a, b)]
                return [_grades(factors), _scalars(any(odd for *_, odd in triples))]
            case Attention(features=features):
                every = range(len(self.grade))
                compared = _grades(self._of(b for f in features for b in getattr(f, "blades", every)))
                parts = [compared, _scalars(True)] if union else [NOTHING, NOTHING]
                values = [parts[0] | _grades(union.grades), parts[1] | _scalars(union.scalars)]
                return [*parts, *values] if self.op.cross else values
            case Norm(plan):  # the size that divides is made of all grades that the metric sees
                sized = _grades(self._of(b for group in plan.groups for b, *_ in group))
                return [needed[0] | sized if needed[0] else NOTHING, needed[1]]
            case Gate():
                return [needed[0] | _grades({0}) if needed[0] else NOTHING, needed[1]]
            case Add():
                return [*needed, *needed]
            case Dropout() | Rope():
                return list(needed)
        raise self._unknown()

    def _unknown(self) -> TypeError:
        return TypeError(f"{type(self.op).__name__} has no rule for reachable grades; add one to program/reach.py")

    def narrowed(self, needed: Reach, alive: Sequence[Reach]) -> Op:
        """The operation without what is dead."""
        match self.op:
            case Linear(plan) as op:
                reads, writes = self._blades(alive[0].grades), self._blades(needed.grades)
                return replace(op, plan=linear.narrowed(plan, reads, writes, needed.scalars))
            case Product(plan) as op:
                reads, writes = self._blades(alive[0].grades), self._blades(needed.grades)
                return replace(op, plan=product.narrowed(plan, reads, writes, bool(alive[1])))
            case Attention() as op:
                mixed = alive[-2].grades & needed.grades
                return op.narrowed(self._blades(alive[0].grades & alive[-2].grades), self._blades(mixed))
        return self.op

    def _maps(self) -> set[tuple[int, int]]:
        return {(self.grade[e.source], self.grade[e.target]) for e in self.op.plan.entries}  # type: ignore[attr-defined]

    def _triples(self) -> set[tuple[int, int, int, bool]]:
        grade = self.grade
        return {(grade[k], grade[i], grade[j], t.odd) for t in self.op.plan.terms for k, i, j, _ in t.entries}  # type: ignore[attr-defined]

    def _of(self, blades: Iterable[int]) -> set[int]:
        return {self.grade[b] for b in blades}

    def _blades(self, grades: frozenset[int]) -> tuple[int, ...]:
        return tuple(b for b, grade in enumerate(self.grade) if grade in grades)


def _grades(grades: Iterable[int]) -> Reach:
    return Reach(frozenset(grades), False)


def _scalars(scalars: bool) -> Reach:
    return Reach(frozenset(), scalars)


def _together(parts: Sequence[Reach]) -> Reach:
    out = NOTHING
    for part in parts:
        out = out | part
    return out
