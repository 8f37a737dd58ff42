"""Advise on a geometry without training: what it can represent of the data, mirrors, expressivity, cost."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from rich import box
from rich.table import Table

from anygatr.costs import summary
from anygatr.interface.model import model
from anygatr.lab.config.commands import AdviseConfig
from anygatr.lab.data.kinds import parse_fields
from anygatr.lab.report.theory import theory
from anygatr.lab.system.terminal import Terminal
from anygatr.nn.width import Width
from anygatr.spaces import kinds
from anygatr.spaces.geometry import Geometry
from anygatr.spaces.presets import geometry

NAMES = ("E", "P", "iP", "C")
SPACETIME = ("L",)
"""Asked only if the data speak of momenta."""
BLOCKS = 4


@dataclass(frozen=True)
class Verdict:
    """What one geometry makes of a task."""

    name: str
    group: str
    fields: dict[str, str]
    """For each field: exact, what stands for it, or why it cannot be represented."""
    possible: bool
    """Whether every field can be represented at all."""
    exact: bool
    """Whether every field is a multivector of its own, without a substitute."""
    needs_origin: bool
    """Whether translations act trivially, so that only positions relative to an origin make sense."""
    mirrors: bool
    """Whether mirrored inputs give mirrored predictions: every field is embedded as the group acts on it."""
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
    inputs, targets = parse_fields(config.inputs, "inputs"), parse_fields(config.target, "target")
    if not inputs or not targets:
        raise ValueError(
            "inputs and target must each name a field, for example --inputs position:point --target force:vector"
        )
    width = Width(config.mv, config.s)
    names = NAMES + SPACETIME * ("momentum" in (inputs | targets).values())
    verdicts = [_judge(geometry(name, dim=config.dim), inputs, targets, width, config.tokens) for name in names]
    sentence = recommend(verdicts)
    if config.json:
        print(json.dumps({"geometries": [asdict(verdict) for verdict in verdicts], "advice": sentence}))
        return verdicts
    console = Terminal()
    console.print(_field_table(verdicts))
    console.print(_cost_table(verdicts, config))
    console.print(sentence, highlight=False)
    return verdicts


def recommend(verdicts: Iterable[Verdict]) -> str:
    """One sentence: where to start, why, and what to try next."""
    able = [verdict for verdict in verdicts if verdict.possible]
    if not able:
        return "No geometry can represent these fields; declare them as simpler kinds, such as points and vectors."
    best = min(able, key=_preference)
    reasons = ["it represents every field exactly" if best.exact else "it represents these fields, some by substitutes"]
    if best.total is not None:
        reasons += ["builds every bilinear equivariant map" if best.complete else "builds most bilinear equivariant maps"]
    reasons += ["needs no origin"] if not best.needs_origin else ["is the cheapest, but depends on the origin you choose"]
    others = [verdict for verdict in sorted(able, key=_preference) if verdict is not best]
    text = f"Start with {best.name}: {', '.join(reasons[:-1])} and {reasons[-1]}."
    if others and best.flops and others[0].flops:
        ratio = others[0].flops / best.flops
        cost = f"{ratio:.1f} times the cost" if ratio >= 1 else f"{1 / ratio:.1f} times cheaper"
        text += f" Compare it with {others[0].name} ({cost}): anygatr compare --models {best.name} {others[0].name}"
    return text


def _preference(verdict: Verdict) -> tuple[bool, bool, bool, float]:
    """Nothing missing first, then no substitutes, then no origin to choose, then the cheapest."""
    return not verdict.complete, not verdict.exact, verdict.needs_origin, verdict.flops or float("inf")


def _judge(geo: Geometry, inputs: dict[str, str], targets: dict[str, str], width: Width, tokens: int) -> Verdict:
    declared = inputs | targets
    fields = {name: _representation(geo, kind) for name, kind in declared.items()}
    known, costs = theory(geo.name, geo.dim), None
    try:
        costs = summary(model(geo, inputs, targets, hidden=width, blocks=BLOCKS, heads=4), tokens)
    except ValueError as problem:  # a target that this geometry cannot predict from these inputs
        first = next(iter(targets))
        fields[first] = fields[first] if fields[first].startswith("no:") else f"no: {problem}"
    return Verdict(
        name=geo.name,
        group=geo.group,
        fields=fields,
        possible=costs is not None,
        exact=all(text == "exact" for text in fields.values()),
        needs_origin=not bool(geo.infinity.any()) and any("point" in kinds.lookup(k).pieces for k in declared.values()),
        mirrors=costs is not None and all(_follows_mirrors(geo, kind) for kind in declared.values()),
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


def _follows_mirrors(geo: Geometry, kind: str) -> bool:
    """Whether embed(M x) = act(M, embed(x)) for a mirror M; points of projective geometry get a sign."""
    mirror = torch.eye(len(geo.axes), dtype=torch.float64)
    mirror[-1, -1] = -1
    still = mirror.new_zeros(len(geo.axes))
    x = kinds.draw(geo, kind, generator=torch.Generator().manual_seed(0))
    moved = kinds.embed(geo, kind, kinds.move(geo, kind, x, mirror, still))
    versor = geo.transform(mirror, still) if geo.point else geo.algebra[geo.axes[-1]]
    acted = [geo.symmetry.act(versor, mv) for mv in kinds.embed(geo, kind, x)]
    return all(a.allclose(b, atol=1e-9) for a, b in zip(moved, acted, strict=True))


def _field_table(verdicts: list[Verdict]) -> Table:
    table = Table(title="What each geometry can represent", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("field", *(verdict.name for verdict in verdicts)):
        table.add_column(column)
    for field in verdicts[0].fields:
        table.add_row(field, *(verdict.fields[field].split(":")[0] for verdict in verdicts))
    return table


def _cost_table(verdicts: list[Verdict], config: AdviseConfig) -> Table:
    title = f"What it costs: {BLOCKS} blocks, {config.mv} + {config.s} channels, {config.tokens} tokens"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("", *(verdict.name for verdict in verdicts)):
        table.add_column(column, justify="left" if not column else "right")
    rows: dict[str, list[Any]] = {
        "group": [v.group for v in verdicts],
        "mirrors": ["followed" if v.mirrors else "not followed" for v in verdicts],
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
