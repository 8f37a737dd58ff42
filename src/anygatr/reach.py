"""Reachable grades: which can be non-zero and which are asked for at every layer, and networks narrowed to those.

A task that fills some grades and reads some leaves dead blades, above all in the first and the last block: in between, maps
and products soon fill all grades. Scalars count as one more grade. What is skipped is zero, or nobody asks for it, so that
predictions and the gradients of all parameters stay what they were.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple, Protocol

from anygatr.algebra import Algebra
from anygatr.nn.attention import Attend, CrossAttention, SelfAttention
from anygatr.nn.axial import AxialGATr
from anygatr.nn.bilinear import GeometricBilinear
from anygatr.nn.block import MLP, Block
from anygatr.nn.conditional import ConditionalBlock, ConditionalGATr
from anygatr.nn.gatr import GATr
from anygatr.nn.linear import EquiLinear
from anygatr.nn.width import Width
from anygatr.spaces.geometry import Geometry

Network = GATr | AxialGATr | ConditionalGATr


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


@dataclass(frozen=True)
class Row:
    """A layer: what may be non-zero in what it reads and in what it makes, what of that is asked for, and its cost."""

    name: str
    alive: Reach
    made: Reach
    needed: Reach
    before: int
    after: int


@dataclass(frozen=True)
class Report:
    """The layers and what narrowing saves, in multiply-adds of a forward pass per token; printable."""

    tokens: int
    rows: tuple[Row, ...]

    @property
    def before(self) -> int:
        """Multiply-adds per token of the whole network."""
        return sum(row.before for row in self.rows)

    @property
    def after(self) -> int:
        """Multiply-adds per token of the narrowed network."""
        return sum(row.after for row in self.rows)

    @property
    def saved(self) -> float:
        """The part of the multiply-adds that is skipped."""
        return 1 - self.after / max(self.before, 1)

    def __str__(self) -> str:
        lines: list[tuple[str, ...]] = [("layer", "alive in", "alive out", "needed", "before", "after", "saved")]
        for names, row in _alike(self.rows):
            lines += [(names, *map(str, (row.alive, row.made, row.needed)), *_cost(row.before, row.after))]
        lines += [(f"all, {self.tokens} tokens", "", "", "", *_cost(self.before, self.after))]
        widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
        text = [
            "  ".join(c.ljust(w) if i < 4 else c.rjust(w) for i, (c, w) in enumerate(zip(x, widths, strict=True)))
            for x in lines
        ]
        return "\n".join(text)


def narrow(
    net: Network, inputs: Iterable[int], outputs: Iterable[int], condition: Iterable[int] = (), tokens: int = 16
) -> Report:
    """From now on skip what a network cannot need when x has only the grades `inputs` and y is read at `outputs` only.

    y is zero in all other grades, which nobody is to read; the input's scalars count as filled, the output's as read.
    `condition` has the grades of a `ConditionalGATr`'s cx; `tokens` is the length of samples that attention is counted for.

    Inputs with other grades are refused, except by compiled code; where x is dead, so is the gradient in it. Parameters stay
    as they are, those of dead maps with zero gradients. Copies and pickles stay narrowed; a checkpoint holds parameters
    alone and loads into either network; exported programs skip what attention can, no more. Compiled networks compile
    again, once for each block that differs. Narrowing anew starts from the whole network; `widen` gives it back.
    """
    if not isinstance(net, GATr | AxialGATr | ConditionalGATr):
        raise ValueError(
            f"net={type(net).__name__} is no GATr, AxialGATr or ConditionalGATr; of a model call model.narrow()"
        )
    if not isinstance(tokens, int) or tokens < 1:
        raise ValueError(f"tokens={tokens!r} must be positive: the number of tokens in a sample")
    algebra = net.geometry.algebra
    given = _checked("inputs", inputs, algebra)
    asked = Reach(_checked("outputs", outputs, algebra), net.outputs.s > 0)
    widen(net)
    trace = _Trace()
    out = _network(trace, net, given, _checked("condition", condition, algebra))
    needed = trace.backwards(out, asked)
    names = {module: name for name, module in net.named_modules()}
    rows: list[Row] = []
    for number, (rule, sources) in enumerate(trace.steps):
        if isinstance(rule, _Layer):
            alive, before = [trace.alive[i] for i in sources], rule.layer.flops(tokens) // 2
            rule.narrow(needed[number], *alive)
            together = alive[0] if len(alive) == 1 else alive[0] | alive[1]
            after = rule.layer.flops(tokens) // 2
            rows.append(Row(names[rule.layer], together, trace.alive[number], needed[number], before, after))
    net.grades = tuple(sorted(given))
    if isinstance(net, ConditionalGATr):
        net.condition_grades = tuple(sorted(_checked("condition", condition, algebra)))
    return Report(tokens, tuple(rows))


def widen(net: Network) -> None:
    """Undo `narrow`."""
    for layer in net.modules():
        if isinstance(layer, EquiLinear | GeometricBilinear | Attend):
            layer.widen()
    net.grades = None
    if isinstance(net, ConditionalGATr):
        net.condition_grades = None


class _Rule(Protocol):
    """How a step passes on what is alive, and what it asks of its sources when `needed` is asked of it."""

    def made(self, *alive: Reach) -> Reach: ...

    def asked(self, needed: Reach, *alive: Reach) -> tuple[Reach, ...]: ...


class _Trace:
    """The steps of a network in order, each with the numbers of those it reads; an input is a step without a source."""

    def __init__(self) -> None:
        self.steps: list[tuple[_Rule | None, tuple[int, ...]]] = []
        self.alive: list[Reach] = []

    def given(self, alive: Reach) -> int:
        """An input."""
        self.steps.append((None, ()))
        self.alive.append(alive)
        return len(self.steps) - 1

    def __call__(self, rule: _Rule, *sources: int) -> int:
        self.steps.append((rule, sources))
        self.alive.append(rule.made(*(self.alive[i] for i in sources)))
        return len(self.steps) - 1

    def backwards(self, last: int, asked: Reach) -> list[Reach]:
        """What is asked of each step when `asked` is asked of the last."""
        needed = [NOTHING] * len(self.steps)
        needed[last] = asked
        for number in reversed(range(len(self.steps))):
            rule, sources = self.steps[number]
            if rule is not None:
                alive = [self.alive[i] for i in sources]
                for i, part in zip(sources, rule.asked(needed[number], *alive), strict=True):
                    needed[i] = needed[i] | part
        return needed


class _Add:
    def made(self, *alive: Reach) -> Reach:
        return alive[0] | alive[1]

    def asked(self, needed: Reach, *alive: Reach) -> tuple[Reach, ...]:
        return needed, needed


class _Beside:
    """Multivectors of the first, scalars of the second."""

    def made(self, *alive: Reach) -> Reach:
        return Reach(alive[0].grades, alive[1].scalars)

    def asked(self, needed: Reach, *alive: Reach) -> tuple[Reach, ...]:
        return Reach(needed.grades, False), Reach(frozenset(), needed.scalars)


class _Norm:
    """Keeps grades; the size that divides them is made of all those that the metric sees."""

    def __init__(self, geometry: Geometry):
        self.sized = _grades(geometry.algebra, geometry.algebra.metric.nonzero().flatten().tolist())

    def made(self, *alive: Reach) -> Reach:
        return alive[0]

    def asked(self, needed: Reach, *alive: Reach) -> tuple[Reach, ...]:
        return (Reach(needed.grades | self.sized, needed.scalars) if needed.grades else needed,)


class _Gate:
    """Every grade times a function of the scalar part that is zero at zero."""

    def made(self, *alive: Reach) -> Reach:
        return alive[0] if 0 in alive[0].grades else Reach(frozenset(), alive[0].scalars)

    def asked(self, needed: Reach, *alive: Reach) -> tuple[Reach, ...]:
        return (Reach(needed.grades | {0}, needed.scalars) if needed.grades else needed,)


class _Layer:
    """A step whose layer can be narrowed."""

    layer: EquiLinear | GeometricBilinear | Attend

    def narrow(self, needed: Reach, *alive: Reach) -> None:
        raise NotImplementedError


class _Linear(_Layer):
    """The solved maps between grades; scalars and biases feed the invariant blades, which feed the scalars."""

    layer: EquiLinear

    def __init__(self, layer: EquiLinear):
        self.layer, self.maps, self.biased = layer, layer.geometry.linear_basis.grades, layer.bias_mv is not None
        self.invariant = _grades(layer.geometry.algebra, layer.plan.invariant)

    def made(self, *alive: Reach) -> Reach:
        grades, fed = alive[0].grades, self.biased or alive[0].scalars
        made = {o for i, o in self.maps if i in grades} | (self.invariant if fed else frozenset())
        return _limited(Reach(frozenset(made), fed or bool(self.invariant & grades)), self.layer.outputs)

    def asked(self, needed: Reach, *alive: Reach) -> tuple[Reach, ...]:
        asked = {i for i, o in self.maps if o in needed.grades} | (self.invariant if needed.scalars else frozenset())
        scalars = needed.scalars or bool(self.invariant & needed.grades)
        return (_limited(Reach(frozenset(asked), scalars), self.layer.inputs),)

    def narrow(self, needed: Reach, *alive: Reach) -> None:
        algebra = self.layer.geometry.algebra
        self.layer.narrow(_blades(algebra, alive[0].grades), _blades(algebra, needed.grades), needed.scalars)


class _Products(_Layer):
    """Grades of two factors to grades of their products; odd products vanish without a reference."""

    layer: GeometricBilinear

    def __init__(self, layer: GeometricBilinear, referred: bool):
        self.layer, self.referred = layer, referred
        grades = layer.geometry.algebra.grades.tolist()
        kept = [term for term in layer.plan.terms if referred or not term.odd]
        self.triples = {(grades[k], grades[i], grades[j]) for term in kept for k, i, j, _ in term.entries}

    def made(self, *alive: Reach) -> Reach:
        grades = alive[0].grades
        return Reach(frozenset(o for o, a, b in self.triples if a in grades and b in grades), False)

    def asked(self, needed: Reach, *alive: Reach) -> tuple[Reach, ...]:
        grades = alive[0].grades
        pairs = [(a, b) for o, a, b in self.triples if o in needed.grades and a in grades and b in grades]
        return (Reach(frozenset(grade for pair in pairs for grade in pair), False),)

    def narrow(self, needed: Reach, *alive: Reach) -> None:
        algebra = self.layer.geometry.algebra
        self.layer.narrow(_blades(algebra, alive[0].grades), _blades(algebra, needed.grades), self.referred)


class _Attend(_Layer):
    """Queries are compared with keys by their features; values, which come with the keys, keep their blades."""

    layer: Attend

    def __init__(self, layer: Attend, algebra: Algebra):
        self.layer, self.algebra = layer, algebra
        every = range(algebra.dim)
        self.compared = _grades(algebra, {b for f in layer.features for b in getattr(f, "blades", every)})

    def made(self, *alive: Reach) -> Reach:
        return alive[-1]

    def asked(self, needed: Reach, *alive: Reach) -> tuple[Reach, ...]:
        compared = _limited(Reach(self.compared, True), self.layer.head) if needed else NOTHING
        return (compared, compared | needed)[-len(alive) :]

    def narrow(self, needed: Reach, *alive: Reach) -> None:
        compared, mixed = alive[0].grades & alive[-1].grades, alive[-1].grades & needed.grades
        self.layer.narrow(_blades(self.algebra, compared), _blades(self.algebra, mixed))


def _network(trace: _Trace, net: Network, given: frozenset[int], condition: frozenset[int]) -> int:
    """All steps of a network; the number of the last."""
    geometry = net.geometry
    inputs = trace.given(_limited(Reach(given, True), net.inputs))
    # without mirrors, or with a reference of its own, every product is even
    blade = geometry.reference_blade if geometry.needs_reference and geometry.join_reference == "data" else None
    referred = blade is None or int(geometry.algebra.grades[blade]) in given
    x = trace(_Linear(net.linear_in), inputs)
    c = None
    if isinstance(net, ConditionalGATr):
        c = trace(_Linear(net.condition_in), trace.given(_limited(Reach(condition, True), net.condition)))
    for block in net.blocks:
        assert isinstance(block, Block | ConditionalBlock)
        x = trace(_Add(), x, _self_attention(trace, block.attention, trace(_Norm(geometry), x), inputs))
        if isinstance(block, ConditionalBlock) and c is not None:
            x = trace(_Add(), x, _cross_attention(trace, block.cross, *(trace(_Norm(geometry), i) for i in (x, c))))
        x = trace(_Add(), x, _mlp(trace, block.mlp, trace(_Norm(geometry), x), referred))
    return trace(_Linear(net.linear_out), x)


def _self_attention(trace: _Trace, layer: SelfAttention, x: int, inputs: int) -> int:
    x = trace(_Linear(layer.qkv), x)
    if layer.again is not None:
        x = trace(_Add(), x, trace(_Linear(layer.again), inputs))
    if layer.norm is not None:
        x = trace(_Norm(layer.geometry), x)
    return trace(_Linear(layer.out), trace(_Attend(layer.attend, layer.geometry.algebra), x))


def _cross_attention(trace: _Trace, layer: CrossAttention, x: int, c: int) -> int:
    q, kv = trace(_Linear(layer.q), x), trace(_Linear(layer.kv), c)
    return trace(_Linear(layer.out), trace(_Attend(layer.attend, layer.geometry.algebra), q, kv))


def _mlp(trace: _Trace, layer: MLP, x: int, referred: bool) -> int:
    bilinear = layer.bilinear
    products = trace(_Products(bilinear, referred), trace(_Linear(bilinear.factors), x))
    y = trace(_Linear(bilinear.out), trace(_Beside(), products, x))
    if bilinear.norm is not None:
        y = trace(_Norm(layer.geometry), y)
    return trace(_Linear(layer.out), trace(_Gate(), y))


def _checked(label: str, grades: Iterable[int], algebra: Algebra) -> frozenset[int]:
    found = [grades] if isinstance(grades, int) else list(grades)
    for grade in found:
        if not isinstance(grade, int) or isinstance(grade, bool) or not 0 <= grade <= algebra.n:
            raise ValueError(f"{label}={found!r}: {grade!r} is not a grade of {algebra}; use integers from 0 to {algebra.n}")
    return frozenset(found)


def _limited(reach: Reach, width: Width) -> Reach:
    """Without multivectors or scalars where there are no channels for them."""
    return Reach(reach.grades if width.mv else frozenset(), reach.scalars and width.s > 0)


def _grades(algebra: Algebra, blades: Iterable[int]) -> frozenset[int]:
    grades = algebra.grades.tolist()
    return frozenset(grades[blade] for blade in blades)


def _blades(algebra: Algebra, grades: frozenset[int]) -> tuple[int, ...]:
    return tuple(blade for blade, grade in enumerate(algebra.grades.tolist()) if grade in grades)


def _cost(before: int, after: int) -> tuple[str, str, str]:
    return f"{before:,}", f"{after:,}", f"{100 * (before - after) / max(before, 1):.1f} %"


def _alike(rows: tuple[Row, ...]) -> list[tuple[str, Row]]:
    """Rows with their names, those of equal blocks in a row only once: blocks.2-8.mlp.out."""
    blocks: list[tuple[str, list[Row]]] = []
    for name, group in groupby(
        rows, lambda row: ".".join(row.name.split(".")[:2]) if row.name.startswith("blocks.") else ""
    ):
        blocks.append((name, list(group)))
    out: list[tuple[str, Row]] = []
    for _, same in groupby(blocks, lambda block: [_content(block[0], row) for row in block[1]]):
        first, *_, last = [*same] * 2
        for row in first[1]:
            numbers = first[0] if first is last else f"{first[0]}-{last[0].removeprefix('blocks.')}"
            out.append((row.name.replace(first[0], numbers, 1) if first[0] else row.name, row))
    return out


def _content(block: str, row: Row) -> tuple[object, ...]:
    return row.name.removeprefix(block), row.alive, row.made, row.needed, row.before, row.after
