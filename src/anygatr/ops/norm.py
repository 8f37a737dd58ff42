"""Division of multivectors by their invariant size over channels; scalars by mean and variance."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from anygatr.ops.batch import Batch
from anygatr.ops.op import Op, Tensors
from anygatr.ops.precision import lengthened, without_autocast
from anygatr.spaces.stream_basis import Pair, StreamBasis

NORMS = ("inner", "abs", "grade_abs", "balanced", "weight")
FORMS = ("add", "clamp")


@dataclass(frozen=True)
class NormPlan:
    """size(x) = mean over channels of sum_g |sum_{b in g} sign_b x_b x_partner(b)|; `absolute` is that absolute value.

    `floor` ("add", eps) divides by sqrt(size + eps), ("clamp", eps) by sqrt(max(size, eps)).
    """

    blades: int
    groups: tuple[tuple[Pair, ...], ...]
    absolute: bool
    floor: tuple[str, float]  # a tuple is a constant to torch's tracing, which begins anew for a number by itself

    @property
    def diagonal(self) -> bool:
        """Whether every blade meets itself."""
        return all(pair.blade == pair.partner for group in self.groups for pair in group)


def norm_plan(basis: StreamBasis, norm: str, eps: float, form: str) -> NormPlan:
    """The paper's three norms: "inner" <x, x>, "abs" |<x, x>|, "grade_abs" sum over grades of |<<x>_k, <x>_k>|.

    "balanced" adds to the last what null multivectors hide and no motion changes: the squares of the coefficients of blades
    with o and without infinity. A point has size one.

    "weight" is those squares and that of the scalar alone, and "abs" where there is no o: what translations leave alone. It
    does not grow with the distances between tokens whose points are mixed.
    """
    if norm not in NORMS:
        raise ValueError(f"norm={norm!r} is unknown; choose from {', '.join(map(repr, NORMS))}")
    if form not in FORMS:
        raise ValueError(f"norm_form={form!r} is unknown; choose from {', '.join(map(repr, FORMS))}")
    if not eps > 0:
        raise ValueError(f"norm_eps={eps!r} must be positive; the default is 0.01")
    algebra = basis.algebra
    by_grade = norm in ("grade_abs", "balanced")
    blades = [range(s.start, s.stop) for s in algebra.slices] if by_grade else [range(algebra.dim)]
    groups = tuple(tuple(pair for pair in basis.metric if pair.blade in group) for group in blades)
    weights = tuple(Pair(b, b, 1.0) for b in basis.weights)
    if norm == "balanced":
        groups += (weights,)
    if norm == "weight" and weights:
        groups = ((Pair(0, 0, 1.0), *weights),)
    return NormPlan(algebra.dim, tuple(g for g in groups if g), norm != "inner", (form, eps))


@dataclass(frozen=True)
class Norm(Op):
    """x / sqrt(size(x)), scalars by mean and variance: (x, s) -> (x, s), in float32 under autocast.

    `heads` equal parts of the channels are normalised one by one.
    """

    plan: NormPlan
    heads: int = 1

    def tables(self) -> dict[str, Tensor]:
        """The signs of all groups, so that one matrix product sums them; which blades meet, unless each meets itself."""
        plan = self.plan
        pairs = [(g, pair) for g, group in enumerate(plan.groups) for pair in group]
        if plan.diagonal:
            signs = torch.zeros(len(plan.groups), plan.blades, dtype=torch.float64)
            for g, pair in pairs:
                signs[g, pair.blade] = pair.sign
            return {"signs": signs}
        signs = torch.zeros(len(plan.groups), len(pairs), dtype=torch.float64)
        for i, (g, pair) in enumerate(pairs):
            signs[g, i] = pair.sign
        sides = (torch.tensor([pair[side] for _, pair in pairs], dtype=torch.int64) for side in (0, 1))
        return {"signs": signs} | dict(zip(("blades", "partners"), sides, strict=True))

    def run(self, values: Sequence[Tensor], parameters: Tensors, batch: Batch | None = None) -> tuple[Tensor, Tensor]:
        """Each token by itself."""
        (x, s), (signs, *sides) = values, parameters
        with without_autocast(x):
            x, s = lengthened(x, s)
            if self.heads > 1:
                x, s = x.unflatten(-1, (self.heads, -1)), s.unflatten(-1, (self.heads, -1))
            if x.shape[-1]:
                left, right = (x.index_select(0, side) for side in sides) if sides else (x, x)  # type: ignore[arg-type]
                x = x * self._scale(left * right, signs.to(x))  # type: ignore[union-attr]
            if s.shape[-1]:
                s = functional.layer_norm(s, s.shape[-1:])
            return (x.flatten(-2), s.flatten(-2)) if self.heads > 1 else (x, s)

    def _scale(self, pairs: Tensor, signs: Tensor) -> Tensor:
        """1 / sqrt(size); where an indefinite form is negative, eps alone is left."""
        # not a matrix product, whose gradient is an outer one, for whose size inductor asks; ONNX gets torch.mv wrong
        if len(signs) == 1 and not torch.compiler.is_exporting():
            squares = torch.mv(pairs.flatten(1).mT, signs[0]).view(pairs.shape[1:])
            size = squares.abs() if self.plan.absolute else squares
        else:
            squares = torch.tensordot(signs, pairs, 1)
            size = squares.abs().sum(0) if self.plan.absolute else squares.sum(0)
        mean, (form, eps) = size.mean(-1, keepdim=True), self.plan.floor
        return (mean.clamp(min=eps) if form == "clamp" else mean.clamp(min=0) + eps).rsqrt()
