"""What may be fused with a linear map: steps in front of it as its prologue, the sum behind it as its epilogue."""

from collections.abc import Iterable

from anygatr.ops.linear import Linear
from anygatr.ops.stream import Add
from anygatr.program.program import Program, Step


def feeds_linear_maps_alone(program: Program, step: Step) -> bool:
    """Whether all readers of a step are linear maps that take its results where a prologue would make them."""
    for place, value in enumerate(step.outputs):
        for reader in program.readers[value]:
            if reader == len(program.steps) or not isinstance(program.steps[reader].op, Linear):
                return False
            if program.steps[reader].inputs[place] != value:
                return False
    return True


def epilogues(program: Program) -> Iterable[tuple[int, int]]:
    """Pairs of a linear map and the sum that adds its results, read by nothing else, to an older stream."""
    written = {value: n for n, step in enumerate(program.steps) for value in step.outputs}
    for total, step in enumerate(program.steps):
        if not isinstance(step.op, Add):
            continue
        *older, y, t = step.inputs
        maker = written.get(y)
        if maker is None or program.steps[maker].outputs != (y, t) or not isinstance(program.steps[maker].op, Linear):
            continue
        alone = program.readers[y] == (total,) == program.readers[t]
        same = [program.widths[v] for v in older] == [program.widths[v] for v in (y, t)]
        if alone and same and all(written.get(value, -1) < maker for value in older):
            yield maker, total
