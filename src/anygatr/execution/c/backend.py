"""The C backend: programs scheduled as fused kernels on the CPU, one node of autograd for each run of kernels."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from anygatr.execution.c import build
from anygatr.execution.c.run import Known, backward, forward
from anygatr.execution.c.schedule import Segment, kernel_parameters, schedule
from anygatr.execution.interpreter import interpret
from anygatr.ops.batch import Batch
from anygatr.ops.precision import autocast_type
from anygatr.ops.torch_state import transformed
from anygatr.program.program import Program, Step

PLAIN = (Tensor, torch.nn.Parameter)
REALS = (torch.float32, torch.float64)
Watch = Callable[[Step, Sequence[Tensor]], None]


class CBackend:
    """Plain CPU tensors of one real type, outside autocast and function transforms."""

    name = "c"

    def available(self) -> str | None:
        """None, or why there is no working C compiler."""
        return None if build.available() else build.reason()

    def accepts(self, program: Program, values: Sequence[Tensor], parameters: Sequence[Tensor]) -> bool:
        """Whether kernels can read these tensors; there must be tokens."""
        real = values[0].dtype
        if real not in REALS or not values[0].is_cpu or not build.available() or autocast_type(values[0]) is not None:
            return False
        given = [*values, *(parameters[p] for p in kernel_parameters(program))]
        for t in given:
            if type(t) not in PLAIN or t.dtype is not real or not t.is_cpu:
                return False
        return not any(0 in t.shape[:-1] for t in values) and not transformed(given)

    def run(
        self,
        program: Program,
        values: Sequence[Tensor],
        parameters: Sequence[Tensor],
        batch: Batch | None,
        watch: Watch | None = None,
    ) -> tuple[Tensor, ...]:
        """The outputs; steps that have no kernel run as torch operations, and all do where a kernel cannot be built."""
        try:
            return _run(program, values, parameters, batch, watch)
        except build.BuildError:
            return interpret(program, values, parameters, batch, watch)


def _run(
    program: Program,
    values: Sequence[Tensor],
    parameters: Sequence[Tensor],
    batch: Batch | None,
    watch: Watch | None,
) -> tuple[Tensor, ...]:
    known, grad = dict(enumerate(values)), torch.is_grad_enabled()
    inputs = zip(program.inputs, values, strict=True)
    differentiable = grad and any(name == "reference" and t.requires_grad for name, t in inputs)
    for item in schedule(program, differentiable, batch is not None and batch.shard is not None):
        if isinstance(item, Segment):
            given = [*(known[i] for i in item.inputs), *(parameters[p] for p in item.parameters)]
            keep = watch is not None or (grad and any(t.requires_grad for t in given))
            made = SegmentFunction.apply(item, batch, parameters, keep, watch, *given)
        else:
            named = dict(zip(program.parameters, parameters, strict=True))
            made = item.op.run([known[i] for i in item.inputs], [name and named[name] for name in item.parameters], batch)  # type: ignore[misc]
            if watch is not None:
                watch(item, made)
        known.update(zip(item.outputs, made, strict=True))
    return tuple(known[i] for i in program.outputs)


class SegmentFunction(torch.autograd.Function):
    """A segment: saves the results of its kernels; differentiated twice, it is the program of its steps."""

    @staticmethod
    def forward(
        ctx: Any,
        segment: Segment,
        batch: Batch | None,
        all_parameters: Sequence[Tensor],
        keep: bool,
        watch: Watch | None,
        *given: Tensor,
    ) -> tuple[Tensor, ...]:
        """The values that leave the segment; `given` are its inputs, then its parameters."""
        known, parameters = _split(segment, given)
        extra = forward(segment, known, parameters, batch, keep)
        if watch is not None:
            for kernel in segment.kernels:
                watch(kernel.step, [known[value] for value in kernel.outputs])
        if keep:
            ctx.segment, ctx.batch, ctx.all_parameters, ctx.sizes = segment, batch, all_parameters, (len(given), len(extra))
            ctx.save_for_backward(*given, *extra, *(known[value] for value in segment.made))
            ctx.set_materialize_grads(False)
        return tuple(known[value] for value in segment.outputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """The gradients of inputs and parameters."""
        segment, (size, extra) = ctx.segment, ctx.sizes
        saved = ctx.saved_tensors  # asked for once: where blocks are recomputed it is a hook that runs once
        given, rest = saved[:size], saved[size:]
        grads_of = {v: g for v, g in zip(segment.outputs, grads, strict=True) if g is not None}
        if torch.is_grad_enabled():
            found = _differentiable(segment, given, ctx.all_parameters, ctx.batch, grads_of)
        else:
            known, parameters = _split(segment, given)
            known.update(zip(segment.made, rest[extra:], strict=True))
            needed = {v for v, asked in zip(segment.inputs, ctx.needs_input_grad[5:], strict=False) if asked}
            try:
                found = backward(segment, known, parameters, list(rest[:extra]), ctx.batch, dict(grads_of), needed)
            except build.BuildError:
                with torch.enable_grad():
                    found = _differentiable(segment, given, ctx.all_parameters, ctx.batch, grads_of)
                found = [None if t is None else t.detach() for t in found]
        return None, None, None, None, None, *found


def _split(segment: Segment, given: Sequence[Tensor]) -> tuple[Known, Known]:
    """Values and parameters by their numbers."""
    count = len(segment.inputs)
    return dict(zip(segment.inputs, given[:count], strict=True)), dict(zip(segment.parameters, given[count:], strict=True))


def _differentiable(
    segment: Segment, given: Sequence[Tensor], all_parameters: Sequence[Tensor], batch: Batch | None, grads_of: Known
) -> list[Tensor | None]:
    """The gradients as functions that can be differentiated again: those of the segment's program on torch operations."""
    # new nodes: where one input was computed from another, a gradient in the latter would run through the former as well
    nodes, count = [t.view_as(t) for t in given], len(segment.inputs)
    own = dict(zip(segment.parameters, nodes[count:], strict=True))
    parameters = [own.get(number, all_parameters[number]) for number in segment.program_parameters]
    made = interpret(segment.program, nodes[:count], parameters, batch)
    asked = [t for t in nodes if t.requires_grad]
    pairs = [(y, grads_of[v]) for v, y in zip(segment.outputs, made, strict=True) if v in grads_of and y.requires_grad]
    if pairs:
        outputs, grads = zip(*pairs, strict=True)
        found = iter(torch.autograd.grad(outputs, asked, grads, create_graph=True, materialize_grads=True))
    else:  # a narrowed plan may leave a result zero whatever goes in
        found = iter([torch.zeros_like(t) for t in asked])
    return [next(found) if t.requires_grad else None for t in nodes]
