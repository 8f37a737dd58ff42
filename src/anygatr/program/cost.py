"""What a program costs: FLOPs per token of each step."""

from anygatr.ops.attention import Attention
from anygatr.ops.linear import Linear
from anygatr.ops.op import Op
from anygatr.ops.product import Product
from anygatr.program.program import Program, Step


def flops(program: Program, step: Step, tokens: int, op: Op | None = None) -> int:
    """FLOPs per token of a forward pass, two per multiply-add, in samples of `tokens` tokens.

    Linear maps, products and attention count; what is done once per number does not. `op` replaces the step's operation.
    """
    read = [program.widths[i] for i in step.inputs]
    written = [program.widths[i] for i in step.outputs]
    match op or step.op:
        case Linear(plan):
            (c, t), (d, u) = read, written
            u = u if plan.scalars else 0
            return 2 * (plan.multiply_adds * c * d + len(plan.outer) * t * d + len(plan.inner) * c * u + t * u)
        case Product(plan):
            return 2 * plan.multiply_adds * written[0] // plan.sizes[0]
        case Attention() as attend:
            compared = sum(f.size for f in attend.features) + len(attend.mixed)
            keys = min(tokens, 1 + sum(attend.sparse)) if any(attend.sparse) else tokens
            return 2 * keys * attend.heads * (compared * attend.head[0] + 2 * attend.head[1])
    return 0
