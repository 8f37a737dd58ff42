"""The public test kit: how far a network is from equivariance, layer by layer and generator by generator.

Works on layers and networks of this library, on `model(...)`, and on a user's own module once it says what its inputs and
outputs are. A module is run on data and on moved data, as users run it: by the backend that networks choose. The outputs are
compared, and every value that the backend keeps in memory on the way, so that the first layer at fault is named. Layers of
this library need no hooks for that; a user's own layer is looked at by a hook where it declares a `layout`.
"""

import copy
import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from anygatr.execution import execute, watching
from anygatr.execution.observed import is_layer
from anygatr.interface.model import Model
from anygatr.networks.gatr import GATr
from anygatr.nn.width import Width
from anygatr.ops.attention import Rope
from anygatr.ops.batch import Batch, join_reference
from anygatr.program.program import Step
from anygatr.spaces import kinds as coordinate_kinds
from anygatr.spaces.geometry import Geometry
from anygatr.spaces.motions import Motion, act, inside, rigid_motions, versors

TOLERANCES = {torch.float64: 1e-10, torch.float32: 1e-3}  # relative to the largest coefficient of a layer's output
MULTIVECTOR, INVARIANT = "multivector", "invariant"
PAIRS = "pairs."  # before the names of fields of pairs


@dataclass(frozen=True)
class Deviation:
    """The relative error of one layer under one motion in one dtype."""

    layer: str
    motion: str
    dtype: str
    error: float
    tolerance: float

    @property
    def ok(self) -> bool:
        """Whether the error is within its tolerance; NaN is not."""
        return self.error <= self.tolerance


@dataclass(frozen=True)
class Certificate:
    """Every row, the first layer where symmetry is lost, and what is not claimed."""

    rows: tuple[Deviation, ...]
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every layer is equivariant under every motion in every dtype."""
        return all(row.ok for row in self.rows)

    @property
    def culprit(self) -> Deviation | None:
        """The first failing row in the order of execution."""
        return next((row for row in self.rows if not row.ok), None)

    def to_json(self) -> str:
        """All rows and the verdict."""
        return json.dumps({"ok": self.ok, "notes": self.notes, "rows": [asdict(row) | {"ok": row.ok} for row in self.rows]})

    def __str__(self) -> str:
        layers, motions = dict.fromkeys(r.layer for r in self.rows), dict.fromkeys(r.motion for r in self.rows)
        table = {(r.layer, r.motion, r.dtype): r for r in self.rows}
        width = max(map(len, layers), default=5)
        lines = []
        for dtype in dict.fromkeys(r.dtype for r in self.rows):
            lines.append(f"{dtype:<{width}}  " + "  ".join(f"{_short(m):>12}" for m in motions))
            for layer in layers:
                found = [table.get((layer, motion, dtype)) for motion in motions]
                cells = ["" if r is None else f"{r.error:.1e}{'' if r.ok else ' !'}" for r in found]
                lines.append(f"{layer:<{width}}  " + "  ".join(f"{cell:>12}" for cell in cells))
        verdict = "equivariant" if self.ok else "NOT equivariant"
        if self.culprit:
            c = self.culprit
            verdict += f": first lost at {c.layer} under {c.motion} ({c.dtype}, {c.error:.1e} > {c.tolerance:.0e})"
        return "\n".join([*lines, *self.notes, verdict])


def certify(
    module: nn.Module,
    geo: Geometry | None = None,
    inputs: Mapping[str, Tensor] | None = None,
    kinds: Mapping[str, str] | None = None,
    outputs: Sequence[str] | Mapping[str, str] | None = None,
    dtypes: Sequence[torch.dtype] | None = None,
    seed: int = 0,
) -> Certificate:
    """Run a module on data and on data moved by each generator and mirror; compare every layer.

    Networks of this library and `model(...)` need no more arguments. For your own module give example `inputs` by keyword,
    their `kinds` ("multivector", "invariant", or a kind of coordinates such as "point") and the kinds of its `outputs`.
    """
    geo = _geometry(module, geo)
    probe = _probe(module, geo, inputs, kinds, outputs, seed)
    working = next((p.dtype for p in module.parameters()), torch.get_default_dtype())
    rows: list[Deviation] = []
    motions, notes = probe.motions(geo, 1.0, seed)
    for dtype in dtypes or dict.fromkeys((torch.float64, working)):
        ready = copy.deepcopy(module).to(dtype).eval()
        still = _run(ready, geo, probe.inputs(dtype), probe)
        columns = {m: _run(ready, geo, probe.moved(geo, m, dtype), probe) for m in motions}
        for number, (layer, value) in enumerate(still):
            # reading a point divides by its weight, which an untrained network may leave near zero
            read = 10.0 if probe.on_coordinates and number == len(still) - 1 else 1.0
            tolerance = read * TOLERANCES.get(dtype, 0.1)
            for motion, trace in columns.items():
                error = probe.error(geo, motion, value, trace[number][1])
                rows.append(Deviation(layer, motion.name, str(dtype).removeprefix("torch."), error, tolerance))
    return Certificate(tuple(rows), tuple(notes))


def equivariance_error(
    module: nn.Module, geo: Geometry | None = None, scale: float = 1.0, seed: int = 0, **example: Any
) -> float:
    """The largest relative error of a module's output over all generators and mirrors, in its own dtype.

    `scale` is the length of the translations; `example` may hold `inputs`, `kinds` and `outputs` as in `certify`.
    """
    geo = _geometry(module, geo)
    probe = _probe(module, geo, example.get("inputs"), example.get("kinds"), example.get("outputs"), seed)
    dtype = next((p.dtype for p in module.parameters()), torch.get_default_dtype())
    ready = copy.deepcopy(module).eval()  # a copy: a model would take its units from the example
    _, still = _run(ready, geo, probe.inputs(dtype), probe)[-1]
    motions, _ = probe.motions(geo, scale, seed)
    moved = [(m, _run(ready, geo, probe.moved(geo, m, dtype), probe)[-1][1]) for m in motions]
    return max((probe.error(geo, m, still, value) for m, value in moved), default=0.0)


def assert_equivariant(
    module: nn.Module,
    geo: Geometry | None = None,
    tolerance: float | None = None,
    scales: Sequence[float] | None = None,
    **example: Any,
) -> None:
    """Raise AssertionError unless the module is equivariant under rotations, mirrors, near and far translations.

    `scales` are the lengths of the translations: 1 and 100 in float64, 1 in less, where far points have no digits left.
    """
    dtype = next((p.dtype for p in module.parameters()), torch.get_default_dtype())
    for scale in scales or ((1.0, 100.0) if dtype is torch.float64 else (1.0,)):
        error = equivariance_error(module, geo, scale, **example)
        # coefficients grow with the square of the distance, and so does what their cancellation leaves
        allowed = (tolerance if tolerance is not None else TOLERANCES.get(dtype, 0.1)) * max(1.0, scale**2)
        assert error <= allowed, (
            f"{type(module).__name__}: equivariance error {error:.1e} > {allowed:.0e} at scale {scale:g}"
        )


@dataclass(frozen=True)
class _Probe:
    """What goes into a module, what comes out, and how both move."""

    example: dict[str, Tensor]
    kinds: dict[str, str]
    outputs: Sequence[str] | Mapping[str, str]
    layout: str
    centred: bool = False  # the module subtracts an origin, so its layers never see a translation

    @property
    def on_coordinates(self) -> bool:
        return any(kind not in (MULTIVECTOR, INVARIANT) for kind in self.kinds.values())

    def inputs(self, dtype: torch.dtype) -> dict[str, Tensor]:
        return {name: x.to(dtype) if x.is_floating_point() else x for name, x in self.example.items()}

    def motions(self, geo: Geometry, scale: float, seed: int) -> tuple[list[Motion], list[str]]:
        return (rigid_motions(geo, scale, seed)) if self.on_coordinates else (versors(geo, scale, seed), [])

    def moved(self, geo: Geometry, motion: Motion, dtype: torch.dtype) -> dict[str, Tensor]:
        """The inputs after the motion, computed in float64."""
        out = {name: self._moved(geo, motion, self.kinds[name], x) for name, x in self.example.items()}
        return {name: x.to(dtype) if x.is_floating_point() else x for name, x in out.items()}

    def _moved(self, geo: Geometry, motion: Motion, kind: str, x: Tensor) -> Tensor:
        if kind == INVARIANT:
            return x
        if kind == MULTIVECTOR:
            return act(geo, motion.versor, x, self.layout)
        assert motion.matrix is not None
        assert motion.translation is not None
        columns = coordinate_kinds.columns(geo, kind)
        x = x.double() if columns > 1 or x.shape[-1] == 1 else x.double().unsqueeze(-1)
        objects = x.split(columns, -1)
        moved = torch.cat([coordinate_kinds.move(geo, kind, o, motion.matrix, motion.translation) for o in objects], -1)
        return moved if columns > 1 else moved.squeeze(-1)

    def error(self, geo: Geometry, motion: Motion, still: "_Value", moved: "_Value") -> float:
        """The relative difference between the moved output and the output of the moved input."""
        worst = 0.0
        for (kind, layout, a), (_, _, b) in zip(still, moved, strict=True):
            a, b = a.double(), b.double()
            if kind == MULTIVECTOR:
                a = act(geo, inside(geo, motion) if self.centred else motion.versor, a, layout)
            elif kind != INVARIANT:
                a = self._moved(geo, motion, kind, a)
            if a.numel():
                scale = max(float(a.abs().max()), float(b.abs().max()), 1e-30)
                difference = float((a - b).abs().max()) / scale
                worst = max(worst, difference) if difference == difference else float("nan")
        return worst


_Value = list[tuple[str, str, Tensor]]  # kind, layout, tensor


def _short(motion: str) -> str:
    """A column title: "rotation e12" -> "rot e12"."""
    first, _, rest = motion.partition(" ")
    return f"{first[:3]} {rest}"[:12] if rest and first in ("rotation", "translation", "mirror", "boost") else motion[:12]


def _geometry(module: nn.Module, geo: Geometry | None) -> Geometry:
    if geo is not None:
        return geo
    for layer in module.modules():
        found = getattr(layer, "geometry", None)
        if isinstance(found, Geometry):
            return found
    raise ValueError("geo=None and no layer of the module names its geometry; pass geo=geometry(...)")


def _probe(
    module: nn.Module,
    geo: Geometry,
    inputs: Mapping[str, Tensor] | None,
    kinds: Mapping[str, str] | None,
    outputs: Sequence[str] | Mapping[str, str] | None,
    seed: int,
) -> _Probe:
    if inputs is not None:
        names = dict(kinds) if kinds is not None else {name: MULTIVECTOR if name == "x" else INVARIANT for name in inputs}
        if set(names) != set(inputs):
            raise ValueError(f"kinds names {sorted(names)}, inputs {sorted(inputs)}; give one kind per input")
        layout = getattr(module, "layout", "tokens")
        return _Probe({name: x.cpu() for name, x in inputs.items()}, names, outputs or (MULTIVECTOR, INVARIANT), layout)
    generator = torch.Generator().manual_seed(seed)
    if isinstance(module, Model):
        return _model_probe(module, generator)
    layout = getattr(module, "layout", None)
    if layout not in ("blades", "tokens"):
        raise ValueError(
            f"{type(module).__name__} does not say what it takes; pass inputs={{...}}, kinds={{...}} and outputs=(...)"
        )
    width = getattr(module, "inputs", Width(3, 2))
    example = _example(geo, layout, width, generator)
    missing = _required(module) - set(example) - {"reference", "batch"}
    if missing:
        raise ValueError(f"{type(module).__name__}.forward also takes {sorted(missing)}; pass inputs={{...}}")
    names = {"x": MULTIVECTOR, "s": INVARIANT}
    if isinstance(module, GATr) and module.pairs is not None:
        pairs = _example(geo, layout, module.pairs, generator, 5)
        example, names = {**example, "px": pairs["x"], "ps": pairs["s"]}, {**names, "px": MULTIVECTOR, "ps": INVARIANT}
    return _Probe(example, names, (MULTIVECTOR, INVARIANT), layout)


def _model_probe(module: Model, generator: torch.Generator) -> _Probe:
    """Random values of every input field; scalars are positive, as masses have to be."""
    geo, example, names = module.geo, {}, {}
    for field in module.inputs.fields:
        values = field.draw(geo, 2, 5, generator=generator)
        example[field.name] = values.abs() + 0.1 if field.kind == "scalar" else values
        names[field.name] = INVARIANT if field.part == "scalar" else field.kind
    for field in () if module.pairs is None else module.pairs.fields:
        example[PAIRS + field.name] = field.draw(geo, 2, 5, 5, generator=generator)
        names[PAIRS + field.name] = INVARIANT if field.part == "scalar" else field.kind
    outputs = {field.name: INVARIANT if field.kind == "scalar" else field.kind for field in module.targets.fields}
    return _Probe(example, names, outputs, "tokens", centred=module.origin is not None)


def _required(module: nn.Module) -> set[str]:
    """The arguments of a module's forward that have no default."""
    parameters = inspect.signature(module.forward).parameters.values()
    return {p.name for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD}


def _completed(module: nn.Module, geo: Geometry, inputs: dict[str, Tensor]) -> dict[str, Any]:
    """The inputs of a layer, with what a network would tell it about the batch."""
    required = _required(module) - set(inputs)
    if not required & {"reference", "batch"}:
        return dict(inputs)
    x, s = inputs["x"], inputs["s"]
    number = join_reference(x, geo)
    told = {"reference": number, "batch": Batch(number, x[..., :0], scalars=s[..., :0])}
    return inputs | {name: told[name] for name in required & set(told)}


def _example(geo: Geometry, layout: str, width: Width, generator: torch.Generator, *pairs: int) -> dict[str, Tensor]:
    """A small batch of random multivectors and scalars, of tokens or of pairs."""
    samples, tokens, k = 2, 5, geo.algebra.dim
    x = torch.randn(samples, tokens, *pairs, width.mv, k, generator=generator, dtype=torch.float64)
    s = torch.randn(samples, tokens, *pairs, width.s, generator=generator, dtype=torch.float64)
    return {"x": x.movedim(-1, 0).contiguous() if layout == "blades" else x, "s": s}


def _run(module: nn.Module, geo: Geometry, inputs: dict[str, Tensor], probe: _Probe) -> list[tuple[str, _Value]]:
    """Every value on the way, in the order of execution, then the output of a run that nobody looked into.

    The module runs where it is; motions and comparisons are computed on the CPU, in float64, which not every device has.
    """
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    inputs = {name: x.to(device) for name, x in inputs.items()}
    names, trace = {layer: name for name, layer in module.named_modules()}, list[tuple[str, _Value]]()

    def record(name: str, layout: str, kinds: Sequence[str], tensors: Sequence[Tensor]) -> None:
        times = sum(known.partition(" #")[0] == name for known, _ in trace)
        values = [(kind, layout, t.detach().cpu()) for kind, t in zip(kinds, tensors, strict=False)]
        trace.append((f"{name} #{times + 1}" if times else name, values))

    def watch(layer: nn.Module, step: Step, values: Sequence[Tensor]) -> None:
        if step.layer or names.get(layer):
            kinds = (INVARIANT,) if isinstance(step.op, Rope) else (MULTIVECTOR, INVARIANT)
            record(".".join(part for part in (names.get(layer), step.layer) if part), "blades", kinds, values)

    def hook(layer: nn.Module, arguments: Any, output: Any) -> None:
        tensors = output if isinstance(output, tuple) else (output,)
        record(names[layer], str(layer.layout), (MULTIVECTOR, INVARIANT), tensors)

    given = _completed(module, geo, inputs)
    with torch.no_grad():
        output = _call(module, given)
        handles = [layer.register_forward_hook(hook) for layer in names if _is_foreign(layer) and layer is not module]
        try:
            with watching(watch):
                _call(module, given)
        finally:
            for handle in handles:
                handle.remove()
    if isinstance(output, Mapping):
        assert isinstance(probe.outputs, Mapping)
        final = [(probe.outputs[name], probe.layout, t.cpu()) for name, t in output.items()]
    else:
        tensors = output if isinstance(output, tuple) else (output,)
        final = [(kind, probe.layout, t.cpu()) for kind, t in zip(probe.outputs, tensors, strict=False)]
    return [*trace, ("output", final)]


def _call(module: nn.Module, given: Mapping[str, Any]) -> Any:
    """What users run: a layer of this library as networks run it, anything else by calling it."""
    if is_layer(module):
        return execute(module, *inspect.signature(module.forward).bind(**given).args)
    joined = {name.removeprefix(PAIRS): x for name, x in given.items() if name.startswith(PAIRS)}
    fields = {name: x for name, x in given.items() if not name.startswith(PAIRS)}
    return module(**fields, pairs=joined) if joined else module(**fields)


def _is_foreign(layer: nn.Module) -> bool:
    """Whether it is a user's own layer that says what its output is."""
    return not type(layer).__module__.startswith("anygatr.") and getattr(layer, "layout", None) in ("blades", "tokens")
