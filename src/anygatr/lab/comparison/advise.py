"""Advise on a geometry without training: what it can represent, reach and see, mirrors, expressivity, cost."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich import box
from rich.table import Table

from anygatr.costs import summary
from anygatr.interface.model import model
from anygatr.interface.sight import TargetSight, sight
from anygatr.lab.comparison.probe import Remark, probe
from anygatr.lab.config.commands import AdviseConfig, DataOptions, command_line
from anygatr.lab.data.kinds import base_kind, parse_fields
from anygatr.lab.data.registry import spec_of
from anygatr.lab.report.theory import theory
from anygatr.lab.system.effort import check_effort
from anygatr.lab.system.terminal import Terminal
from anygatr.nn.width import Width
from anygatr.spaces import kinds
from anygatr.spaces.geometry import Geometry
from anygatr.spaces.presets import geometry

NAMES = ("E", "P", "iP", "C")
SPACETIME = ("L",)
"""Asked only if the data speak of momenta."""
BLOCKS = 4
CLASSES = 8
"""Of a category that does not say how many it has."""


@dataclass(frozen=True)
class Verdict:
    """What one geometry makes of a task."""

    name: str
    group: str
    fields: dict[str, str]
    """For each field: exact, what stands for it, or why it cannot be represented."""
    targets: dict[str, str]
    """For each target: from which order and depth on it depends on the inputs, and which of them it cannot see."""
    blind: tuple[str, ...]
    """Inputs that some target cannot depend on, whatever the weights."""
    possible: bool
    """Whether every field can be represented, and every target learned, at all."""
    exact: bool
    """Whether every field is a multivector of its own, without a substitute, and can be learned."""
    needs_origin: bool
    """Whether translations act trivially, so that only positions relative to an origin make sense."""
    mirrors: bool
    """Whether mirrored inputs always give mirrored predictions, so that what is chiral cannot be learned."""
    built: int | None
    """Bilinear equivariant maps that can be built."""
    total: int | None
    """Bilinear equivariant maps that exist."""
    maps: int
    """Equivariant linear maps."""
    blades: int
    products: int
    """Multiplications of coefficients in all the products of two multivectors."""
    flops: int | None
    """FLOPs per token of a forward pass."""
    parameters: int | None

    @property
    def complete(self) -> bool:
        """Whether every bilinear equivariant map can be built, as far as it was solved for."""
        return self.built == self.total


def advise(config: AdviseConfig) -> list[Verdict]:
    """The command: a table of verdicts and one sentence."""
    remarks: list[Remark] = []
    if config.data is not None:
        config, remarks = _probed(config, config.data)
    inputs, targets = parse_fields(config.inputs, "inputs"), parse_fields(config.target, "target")
    inputs = {name: f"{kind}*{CLASSES}" if kind == "category" else kind for name, kind in inputs.items()}
    if not inputs or not targets:
        raise ValueError(
            "inputs and target must each name a field, for example --inputs position:point --target force:vector"
        )
    width = Width(config.mv, config.s)
    for label, count in (("tokens", config.tokens), ("dim", config.dim)):
        if count < 1:
            raise ValueError(f"{label}={count} must be at least 1")
    check_effort(f"advice in {config.dim} dimensions", 2 ** min(config.dim + 2, 100), seconds=12 * 2.0 ** (config.dim - 4))
    names = NAMES + SPACETIME * ("momentum" in (inputs | targets).values())
    verdicts = [_judge(geometry(name, dim=config.dim), inputs, targets, width, config.tokens) for name in names]
    fields = DataOptions(config.data or "mine.npz", config.inputs, config.target)
    sentence = recommend(verdicts, command_line("compare", fields))
    if config.json:
        said = {"remarks": [asdict(remark) for remark in remarks]} if config.data is not None else {}
        print(json.dumps({"geometries": [asdict(verdict) for verdict in verdicts], "advice": sentence} | said))
        return verdicts
    console = Terminal()
    console.print(_field_table(verdicts))
    console.print(_sight_table(verdicts))
    console.print(_cost_table(verdicts, config))
    console.print(sentence, highlight=False, soft_wrap=True)
    for remark in remarks:
        console.print(f"- {remark}", highlight=False, soft_wrap=True)
    return verdicts


def _probed(config: AdviseConfig, path: str) -> tuple[AdviseConfig, list[Remark]]:
    """The fields as they are in the data, and what the data say."""
    default = AdviseConfig()
    is_declared = config.inputs != default.inputs
    options = DataOptions(path, config.inputs, config.target) if is_declared else DataOptions(path)
    spec = spec_of(options)
    data = spec.load()
    inputs, target = (tuple(f"{n}:{k}" for n, k in side.items()) for side in (data.input_kinds, data.target_kinds))
    tokens = int(data.counts.double().median())
    asked = replace(config, inputs=inputs, target=target, dim=data.dim, tokens=tokens)
    return asked, probe(spec, data, NAMES)


def recommend(verdicts: Iterable[Verdict], command: str = "anygatr compare") -> str:
    """One sentence: where to start, why, and what to try next, by a command that begins so."""
    able = [verdict for verdict in verdicts if verdict.possible]
    if not able:
        return "No geometry can represent these fields; declare them as simpler kinds, such as points and vectors."
    best = min(able, key=_preference)
    seeing = f"; it cannot see {', '.join(best.blind)}" if best.blind else ""
    reasons = ["it represents every field exactly" if best.exact else "it represents these fields, some by substitutes"]
    if best.total is not None:
        reasons += ["builds every bilinear equivariant map" if best.complete else "builds most bilinear equivariant maps"]
    reasons += ["needs no origin"] if not best.needs_origin else ["is the cheapest, but depends on the origin you choose"]
    others = [verdict for verdict in sorted(able, key=_preference) if verdict is not best]
    text = f"Start with {best.name}: {', '.join(reasons[:-1])} and {reasons[-1]}{seeing}."
    if others and best.flops and others[0].flops:
        ratio = others[0].flops / best.flops
        cost = f"{ratio:.1f} times the cost" if ratio >= 1 else f"{1 / ratio:.1f} times cheaper"
        text += f" Compare it with {others[0].name} ({cost}): {command} --models {best.name} {others[0].name}"
    return text


def _preference(verdict: Verdict) -> tuple[int, bool, bool, bool, float]:
    """Nothing unseen first, then nothing missing, then no substitutes, then no origin to choose, then the cheapest."""
    cost = verdict.flops or float("inf")
    return len(verdict.blind), not verdict.complete, not verdict.exact, verdict.needs_origin, cost


def _judge(geo: Geometry, inputs: dict[str, str], targets: dict[str, str], width: Width, tokens: int) -> Verdict:
    declared = {name: base_kind(kind) for name, kind in (inputs | targets).items()}
    fields = {name: _representation(geo, kind) for name, kind in declared.items()}
    known, costs, seen = theory(geo.name, geo.dim), None, dict[str, TargetSight]()
    try:
        seen = sight(geo, inputs, targets)
        costs = summary(model(geo, inputs, targets, hidden=width, blocks=BLOCKS, heads=4), tokens)
    except ValueError as problem:  # a target that this geometry cannot predict from these inputs
        unlearnable = [name for name in targets if name not in seen or not seen[name].learnable] or list(targets)
        for name in unlearnable:
            fields[name] = fields[name] if fields[name].startswith("no:") else f"no: {problem}"
    return Verdict(
        name=geo.name,
        group=geo.group,
        fields=fields,
        targets={name: str(seen[name]) if name in seen else fields[name] for name in targets},
        blind=tuple(name for name in inputs if any(name in target.blind for target in seen.values())),
        possible=costs is not None,
        exact=all(text == "exact" for text in fields.values()),
        needs_origin=not bool(geo.infinity.any()) and any("point" in kinds.lookup(k).pieces for k in declared.values()),
        mirrors=costs is not None and all(target.follows_mirrors for target in seen.values()),
        built=known.built,
        total=known.total,
        maps=known.maps,
        blades=known.blades,
        products=sum(int(geo.algebra.table(product).sign.count_nonzero()) for product in geo.products),
        flops=costs.flops if costs else None,
        parameters=costs.parameters if costs else None,
    )


def _representation(geo: Geometry, kind: str) -> str:
    try:
        parts = kinds.parts(geo, kind)
    except ValueError:
        return f"no: {geo.name} has no {kind}"
    return "exact" if parts == (kind,) else f"as {' + '.join(parts)}"


def _field_table(verdicts: list[Verdict]) -> Table:
    table = Table(title="What each geometry can represent", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("field", *(verdict.name for verdict in verdicts)):
        table.add_column(column)
    for field in verdicts[0].fields:
        table.add_row(field, *(verdict.fields[field].split(":")[0] for verdict in verdicts))
    return table


def _sight_table(verdicts: list[Verdict]) -> Table:
    title = "What each target can depend on, with invariants: lowest order, blocks until all of it is there"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("target", *(verdict.name for verdict in verdicts)):
        table.add_column(column)
    for name in verdicts[0].targets:
        table.add_row(name, *(verdict.targets[name].replace("; ", "\n") for verdict in verdicts))
    return table


def _cost_table(verdicts: list[Verdict], config: AdviseConfig) -> Table:
    title = f"What it costs: {BLOCKS} blocks, {config.mv} + {config.s} channels, {config.tokens} tokens"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("", *(verdict.name for verdict in verdicts)):
        table.add_column(column, justify="left" if not column else "right")
    rows: dict[str, list[Any]] = {
        "group": [v.group for v in verdicts],
        "mirrors": ["always followed" if v.mirrors else "not followed" if v.possible else "-" for v in verdicts],
        "needs origin": ["yes" if v.needs_origin else "no" for v in verdicts],
        "bilinear maps": [f"{v.built} of {v.total}" if v.total is not None else "not solved" for v in verdicts],
        "linear maps": [v.maps for v in verdicts],
        "blades": [v.blades for v in verdicts],
        "products": [v.products for v in verdicts],
        "FLOPs/token": [f"{v.flops:,}" if v.flops else "-" for v in verdicts],
        "parameters": [f"{v.parameters:,}" if v.parameters else "-" for v in verdicts],
    }
    for label, cells in rows.items():
        table.add_row(label, *map(str, cells))
    return table
