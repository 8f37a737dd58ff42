"""Trained networks as graphs for other programs: `torch.export` and ONNX, for any number of samples and tokens.

The graph takes dense batches, masked or not. It is traced in evaluation mode from pure operations, so it needs neither this
package nor a solver to run. What depends on the data cannot be traced: packed samples (`offsets`), and the checks for
NaN. Nor are pairs of tokens part of a graph.
"""

import inspect
import os
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from anygatr.files.whole import check_parent, replacing
from anygatr.interface.model import Model
from anygatr.interface.scaled import ScaledModel
from anygatr.networks.gatr import GATr

AXES = {0: Dim("samples", min=1), 1: Dim("tokens", min=1)}
SAMPLES, TOKENS = 3, 7  # of the inputs that are traced: unlike each other, and unlike 1, which tracers take for a constant


def program(net: GATr | Model | ScaledModel, mask: bool = False) -> ExportedProgram:
    """The graph of a network as `torch.export` has it: `program(net).module()(x=x, s=s)`, `torch.export.save(...)`.

    It takes what the network takes, by keyword: x (samples, tokens, c, k) and s, where there are scalars, or the fields of a
    model, (samples, tokens, columns) and (samples, tokens) for single numbers. With `mask=True` it needs a mask as well.
    """
    if getattr(getattr(net, "model", net), "pairs", None) is not None:
        raise ValueError("pairs cannot be exported: graphs take tokens alone; export a network without pairs")
    traced, inputs = _Keywords(net, mask), _example(net, mask)
    modes = {module: module.training for module in net.modules()}
    try:
        with torch.no_grad():
            return torch.export.export(traced.eval(), (), inputs, dynamic_shapes=dict.fromkeys(inputs, AXES))
    finally:
        for module, training in modes.items():
            module.training = training


def to_onnx(net: GATr | Model | ScaledModel, path: str | os.PathLike[str], mask: bool = False) -> None:
    """Write the graph as one ONNX file; needs `pip install anygatr[onnx]`.

    Its inputs are named as the arguments of `program`, its outputs "y" and "t", or as the targets of a model.
    """
    path = Path(path)
    check_parent(path)
    if find_spec("onnxscript") is None:
        raise ImportError("to_onnx needs onnxscript: pip install anygatr[onnx]", name="onnxscript")
    names = [field.name for field in net.targets.fields] if isinstance(net, Model | ScaledModel) else ["y", "t"]
    graph, axes = program(net, mask), dict.fromkeys(_example(net, mask), AXES)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "# The axis name")  # all inputs have the same two, which it remarks on
        written = torch.onnx.export(graph, output_names=names, dynamic_shapes=axes, dynamo=True, verbose=False)
    assert written is not None
    with replacing(path) as temporary:
        written.save(temporary)


class _Keywords(nn.Module):
    """The network with a signature that lists its inputs: exporters do not take **fields."""

    forward: Callable[..., Any]

    def __init__(self, net: GATr | Model | ScaledModel, mask: bool):
        super().__init__()
        self.net = net
        if not isinstance(net, GATr | Model | ScaledModel):
            raise ValueError(f"net is a {type(net).__name__}; pass a GATr or what model(...) returns, perhaps with units")

        def forward(**inputs: Tensor) -> Any:
            return net(**inputs)

        names = _example(net, mask)
        forward.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
        )
        self.forward = forward


def _example(net: GATr | Model | ScaledModel, mask: bool) -> dict[str, Tensor]:
    """Inputs to trace, by name."""
    like = next(net.parameters())
    inputs: dict[str, Tensor] = {}
    if isinstance(net, Model | ScaledModel):
        for field in net.inputs.fields:
            values = field.draw(net.geo, SAMPLES, TOKENS).to(like)
            inputs[field.name] = values.squeeze(-1) if values.shape[-1] == 1 else values
    else:
        inputs["x"] = like.new_zeros(SAMPLES, TOKENS, net.inputs.mv, net.geometry.algebra.dim)
        if net.inputs.s:
            inputs["s"] = like.new_zeros(SAMPLES, TOKENS, net.inputs.s)
    if mask:
        inputs["mask"] = torch.ones(SAMPLES, TOKENS, dtype=torch.bool, device=like.device)
    return inputs
