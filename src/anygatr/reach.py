"""Networks narrowed to the grades that a task can reach: what is skipped is zero, or nobody asks for it.

Predictions and the gradients of all parameters stay what they were.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from anygatr.algebra import Algebra
from anygatr.networks.conditional import ConditionalGATr
from anygatr.networks.network_program import NAMES, Network, network_program, step_tokens
from anygatr.nn.layer import Layer
from anygatr.program.cost import flops
from anygatr.program.reach import Reach, reach


@dataclass(frozen=True)
class LayerReach:
    """A layer: what is alive in what it reads and in its results, what is needed of its results, and its cost."""

    name: str
    alive_in: Reach
    alive_out: Reach
    needed: Reach
    before: int
    after: int


@dataclass(frozen=True)
class Narrowing:
    """The layers and what narrowing saves, in multiply-adds of a forward pass per token; printable."""

    tokens: int
    rows: tuple[LayerReach, ...]

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
            lines += [(names, *map(str, (row.alive_in, row.alive_out, row.needed)), *_cost(row.before, row.after))]
        lines += [(f"all, {self.tokens} tokens", "", "", "", *_cost(self.before, self.after))]
        widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
        text = [
            "  ".join(c.ljust(w) if i < 4 else c.rjust(w) for i, (c, w) in enumerate(zip(x, widths, strict=True)))
            for x in lines
        ]
        return "\n".join(text)


def narrow(
    net: Network, inputs: Iterable[int], outputs: Iterable[int], condition: Iterable[int] = (), tokens: int = 16
) -> Narrowing:
    """From now on skip what a network cannot need when x has only the grades `inputs` and y is read at `outputs` only.

    y is zero in all other grades, which nobody is to read; the input's scalars count as filled, the output's as read.
    `condition` has the grades of a `ConditionalGATr`'s cx; `tokens` is the length of samples that attention is counted for.

    Inputs with other grades are refused, except by compiled code; where x is dead, so is the gradient in it. Parameters stay
    as they are, those of dead maps with zero gradients. Copies and pickles stay narrowed; a checkpoint holds parameters
    alone and loads into either network. Compiled networks compile again, once for each block that differs. Narrowing anew
    starts from the whole network; `widen` gives it back.
    """
    if not isinstance(net, Network):
        raise ValueError(f"net={type(net).__name__} is none of {NAMES}; of a model call model.narrow()")
    if not isinstance(tokens, int) or tokens < 1:
        raise ValueError(f"tokens={tokens!r} must be positive: the number of tokens in a sample")
    if getattr(net, "pairs", None) is not None:
        raise ValueError(f"pairs={net.pairs}: pairs fill grades that tokens lack; a network with pairs is not narrowed")
    geometry, algebra = net.geometry, net.geometry.algebra
    filled, conditioned = _checked("inputs", inputs, algebra), _checked("condition", condition, algebra)
    needed_outputs = Reach(_checked("outputs", outputs, algebra), net.outputs.s > 0)
    widen(net)
    program, scalars = network_program(net), Reach(frozenset(), True)
    # without mirrors, or with a reference of its own, every product is even
    blade = geometry.reference_blade if geometry.needs_reference and geometry.join_reference == "data" else None
    referred = blade is None or int(algebra.grades[blade]) in filled
    x, cx = Reach(filled, False), Reach(conditioned, False)
    given = {"x": x, "px": x, "inputs": x, "cx": cx} | dict.fromkeys(("s", "ps", "cs", "scalars"), scalars)
    found = reach(program, algebra.grades.tolist(), given | {"reference": Reach(frozenset(), referred)}, needed_outputs)
    counts, rows = dict(zip(program.steps, step_tokens(net, program, tokens), strict=True)), []
    for step, alive_in, alive_out, needed, narrowed in found:
        layer = net.get_submodule(step.layer)
        assert isinstance(layer, Layer)
        layer.op = narrowed
        count, keys = counts[step]
        before, after = (count * flops(program, step, keys, op) // (2 * tokens) for op in (step.op, narrowed))
        rows.append(LayerReach(step.layer, alive_in, alive_out, needed, before, after))
    net.grades = tuple(sorted(filled))
    if isinstance(net, ConditionalGATr):
        net.condition_grades = tuple(sorted(conditioned))
    return Narrowing(tokens, tuple(rows))


def widen(net: Network) -> None:
    """Undo `narrow`."""
    for layer in net.modules():
        if isinstance(layer, Layer):
            layer.widen()
    net.grades = None
    if isinstance(net, ConditionalGATr):
        net.condition_grades = None


def _checked(label: str, grades: Iterable[int], algebra: Algebra) -> frozenset[int]:
    found = [grades] if isinstance(grades, int) else list(grades)
    for grade in found:
        if not isinstance(grade, int) or isinstance(grade, bool) or not 0 <= grade <= algebra.n:
            raise ValueError(f"{label}={found!r}: {grade!r} is not a grade of {algebra}; use integers from 0 to {algebra.n}")
    return frozenset(found)


def _cost(before: int, after: int) -> tuple[str, str, str]:
    return f"{before:,}", f"{after:,}", f"{100 * (before - after) / max(before, 1):.1f} %"


def _alike(rows: tuple[LayerReach, ...]) -> list[tuple[str, LayerReach]]:
    """Rows with their names, those of equal blocks in a row only once: blocks.2-8.mlp.out."""
    blocks: list[tuple[str, list[LayerReach]]] = []
    for name, group in groupby(
        rows, lambda row: ".".join(row.name.split(".")[:2]) if row.name.startswith("blocks.") else ""
    ):
        blocks.append((name, list(group)))
    out: list[tuple[str, LayerReach]] = []
    for _, same in groupby(blocks, lambda block: [_content(block[0], row) for row in block[1]]):
        first, *_, last = [*same] * 2
        for row in first[1]:
            numbers = first[0] if first is last else f"{first[0]}-{last[0].removeprefix('blocks.')}"
            out.append((row.name.replace(first[0], numbers, 1) if first[0] else row.name, row))
    return out


def _content(block: str, row: LayerReach) -> tuple[object, ...]:
    return row.name.removeprefix(block), row.alive_in, row.alive_out, row.needed, row.before, row.after
