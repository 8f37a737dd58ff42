"""Sight: which inputs a model's predictions can depend on, and which targets it can reach, before any training.

The terms of the program (`program.influence`) say which coefficients of the output can be non-zero and what they vary with;
random multivectors made of those are read as the targets are, and once more in a mirror.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from anygatr.interface.fields import Field, Inputs, Targets
from anygatr.networks.gatr import GATr
from anygatr.networks.network_program import network_program
from anygatr.nn.width import Width
from anygatr.ops.stream import Add
from anygatr.program.influence import NEVER, Terms, influence, made_by
from anygatr.spaces import kinds
from anygatr.spaces.geometry import Geometry
from anygatr.spaces.presets import geometry

DRAWS = 8
BLOCKS = 8  # in every geometry of the library what can be reached is reached after fewer
SMALL = 1e-9
CANDIDATES = ("E", "P", "iP", "C")


class UnreachableError(ValueError):
    """No weights can make a model predict a target."""


@dataclass(frozen=True)
class TargetSight:
    """What can be predicted of one target, as mirrors do with it."""

    name: str
    kind: str
    reachable: bool
    """Whether the prediction can be other than zero, or in the wrong parity under mirrors, for some weights."""
    influences: dict[str, int]
    """Input fields that the prediction can depend on, each with the lowest order of a term that does."""
    blind: tuple[str, ...]
    """Input fields without any influence."""
    blocks: int | None
    """The blocks, each with one layer of products, after which all these influences are there."""
    follows_mirrors: bool
    """Whether mirrored data always give the mirrored prediction: what is chiral cannot be learned then."""

    @property
    def constant(self) -> bool:
        """Whether no input has any influence."""
        return not self.influences

    @property
    def learnable(self) -> bool:
        """Whether there is anything to learn."""
        return self.reachable and not self.constant

    def __str__(self) -> str:
        if not self.reachable:
            return "cannot be reached"
        if self.constant:
            return "cannot see any input"
        text = f"order {min(self.influences.values())}, {self.blocks} block{'s' * (self.blocks != 1)}"
        text += "; follows mirrors" if self.follows_mirrors else ""
        return text + (f"; cannot see {', '.join(self.blind)}" if self.blind else "")


def sight(
    geo: Geometry | str,
    inputs: Mapping[str, str],
    targets: Mapping[str, str],
    invariants: bool = True,
    origin: str | None = "mean",
    blocks: int | None = None,
) -> dict[str, TargetSight]:
    """For each target of `model(geo, inputs, targets, ...)`: can it be reached, from which inputs, does it follow mirrors?

    A theorem where it says no: such predictions are exactly zero, or the same for all values of a field, whatever the
    weights, in networks of any depth or of as many `blocks`. Samples of a single token, or points on a line, may show less.
    """
    geo = geometry(geo) if isinstance(geo, str) else geo
    declared = tuple(inputs.items()), tuple(targets.items())
    most = BLOCKS if blocks is None else min(blocks, BLOCKS)
    return dict(_sight(geo, *declared, invariants, origin is not None, most))


@lru_cache(maxsize=256)
def _sight(
    geo: Geometry,
    inputs: tuple[tuple[str, str], ...],
    targets: tuple[tuple[str, str], ...],
    invariants: bool,
    anchored: bool,
    most: int,
) -> dict[str, TargetSight]:
    into = Inputs(geo, dict(inputs), invariants, anchored)
    out = Targets(geo, dict(targets), signed=invariants and into.have_points)
    names, stages = [field.name for field in into.fields], _stages(geo, _given(into), most)
    found = {}
    for field in out.fields:
        looks = [_look(out, field, terms, names) for terms in stages]
        reachable, influences, follows = looks[-1]
        blocks = next(
            b for b, look in enumerate(looks) if (look[0], set(look[1]), look[2]) == (reachable, set(influences), follows)
        )
        blind = tuple(name for name in names if name not in influences)
        found[field.name] = TargetSight(field.name, field.kind, reachable, influences, blind, blocks, follows)
    return found


def _stages(geo: Geometry, given: dict[str, Terms], most: int) -> list[Terms]:
    """The terms of the output after 0, 1, ..., `most` blocks."""
    with torch.random.fork_rng(devices=[]):  # the weights of the user's own network must not depend on this one's
        program = network_program(GATr(geo, Width(1, 1), Width(1, 1), Width(1, 0), most, heads=1))
    mirror = _changes_sign(geo)
    values, last = influence(program, given, mirror), program.steps[-1]
    sums = [step.outputs for step in program.steps if isinstance(step.op, Add)]
    streams = [program.steps[0].outputs, *sums[1::2]]
    return [made_by(last, [values[i] for i in stream], mirror)[0] for stream in streams]


def require_sight(
    geo: Geometry, inputs: Mapping[str, str], targets: Mapping[str, str], invariants: bool, origin: str | None, blocks: int
) -> None:
    """Raise for a target that no weights can fit, with the reason and with what can."""
    for target in sight(geo, inputs, targets, invariants, origin, blocks).values():
        if target.learnable:
            continue
        remedies = _remedies(geo, inputs, target, invariants, origin)
        why = "none of them has any influence on it" if target.reachable else f"nothing made of them is a {target.kind}"
        raise UnreachableError(
            f"geometry {geo.name!r} cannot predict the {target.kind} {target.name!r} from "
            f"{', '.join(f'{name}:{kind}' for name, kind in inputs.items())}: {why}, whatever the weights; "
            + (f"use {' or '.join(remedies)}" if remedies else "no preset can: add an input that it depends on")
        )


def _remedies(
    geo: Geometry, inputs: Mapping[str, str], target: TargetSight, invariants: bool, origin: str | None
) -> list[str]:
    """What else would do: invariants, more blocks, another preset, a group without mirrors."""
    asked = {target.name: target.kind}
    deep = sight(geo, inputs, asked, invariants, origin)[target.name]
    found = [f"blocks={deep.blocks}"] if deep.learnable else []
    if not invariants and sight(geo, inputs, asked, True, origin)[target.name].learnable:
        found.append("invariants=True")
    for name, mirrors in ((name, mirrors) for mirrors in (True, False) for name in CANDIDATES):
        with suppress(ValueError):  # it does not have these kinds
            able = sight(geometry(name, geo.dim, mirrors), inputs, asked, invariants, origin)[target.name].learnable
            if able and not any(word.startswith(f"geometry {name!r}") for word in found):
                found.append(f"geometry {name!r}" + ("" if mirrors else " with mirrors=False"))
    return found


def _given(into: Inputs) -> dict[str, Terms]:
    """The terms of a network's inputs: each field's own, in all channels at once, and those of the scalars."""
    geo, sources, rng = into.geo, 1 + len(into.fields), torch.Generator().manual_seed(0)
    x, s = Terms.nothing(sources, geo.algebra.dim), Terms.nothing(sources, 1)
    drawn, other = ({f.name: f.draw(geo, DRAWS, generator=rng) for f in into.fields} for _ in range(2))
    still, mirrored = (into.embed(fields)[1] for fields in (drawn, _mirrored(into, drawn)))
    odd = [int(not a.allclose(b)) for a, b in zip(still.unbind(-1), mirrored.unbind(-1), strict=True)]
    signs = np.array(odd, dtype=int)
    for source, field in enumerate(into.fields, 1):
        _, scalars = into.embed({**drawn, field.name: other[field.name]})
        s.order[signs[(scalars != still).any(0).numpy()], source] = 1
        one = field.objects(geo, drawn[field.name])[0]
        for part in range(len(kinds.parts(geo, field.part))):
            order, constant = _orders(geo, field.part, one, part)
            for sign in _signs(geo, field.part, one, part):
                x.order[sign, source] = np.minimum(x.order[sign, source], order)
                x.order[sign, 0] = np.minimum(x.order[sign, 0], constant)
    reference = Terms.constant(sources)
    if geo.needs_reference and geo.join_reference == "data":
        reference = x.at([geo.reference_blade], _changes_sign(geo)[[geo.reference_blade]])
    return {"x": x, "inputs": x, "s": s, "scalars": s, "reference": reference}


def _mirrored(into: Inputs, fields: dict[str, Tensor]) -> dict[str, Tensor]:
    mirror, _ = _mirror(into.geo)
    still, out = mirror.new_zeros(len(mirror)), {}
    for f in into.fields:
        objects = [fields[f.name]] if f.is_coded else f.objects(into.geo, fields[f.name])
        out[f.name] = torch.cat([kinds.move(into.geo, f.kind, one, mirror, still) for one in objects], -1)
    return out


def _changes_sign(geo: Geometry) -> np.ndarray:
    """For each blade whether the mirror along the last axis changes its sign."""
    return (geo.basis.of(geo.algebra.action(_mirror(geo)[1])).diagonal() < 0).numpy()


def _orders(geo: Geometry, kind: str, x: Tensor, part: int) -> tuple[np.ndarray, np.ndarray]:
    """For each blade the order in which it grows with the data, and 0 where it is there without them."""
    mv, doubled, tiny = (kinds.embed(geo.stored, kind, scale * x)[part].abs().amax(0) for scale in (1.0, 2.0, 1e-6))
    varies = kinds.embed(geo.stored, kind, x)[part].std(0) > SMALL
    growth = (doubled / mv.clamp(min=SMALL)).clamp(min=1).log2().round().clamp(min=1)
    never = torch.full_like(mv, NEVER)
    return torch.where(varies, growth, never).numpy(), torch.where(tiny > 1e-3, 0 * mv, never).numpy()


def _signs(geo: Geometry, kind: str, x: Tensor, part: int) -> tuple[int, ...]:
    """0 if mirrored data become the mirrored multivector, 1 if minus that, both if neither."""
    mirror, versor = _mirror(geo)
    moved = kinds.embed(geo.stored, kind, kinds.move(geo, kind, x, mirror, mirror.new_zeros(len(mirror))))[part]
    acted = kinds.embed(geo.stored, kind, x)[part] @ geo.basis.of(geo.algebra.action(versor)).T
    even, odd = (bool((moved - sign * acted).abs().max() < SMALL) for sign in (1, -1))
    return (0, 1) if even == odd else (0,) if even else (1,)


def _mirror(geo: Geometry) -> tuple[Tensor, Tensor]:
    """The mirror along the last axis, as a matrix and as a versor."""
    matrix = torch.eye(len(geo.axes), dtype=torch.float64)
    matrix[-1, -1] = -1
    return matrix, geo.algebra[geo.axes[-1]]


def _look(out: Targets, field: Field, terms: Terms, names: list[str]) -> tuple[bool, dict[str, int], bool]:
    """Whether a target can be other than zero, the fields it depends on with their orders, whether it follows mirrors."""
    geo, rng = out.geo, torch.Generator().manual_seed(0)
    alive = torch.from_numpy(terms.alive)[:, None, None]
    mv, other = torch.randn(2, 2, DRAWS, out.width.mv, geo.algebra.dim, generator=rng, dtype=torch.float64)
    right, wrong = _read(out, field, mv * alive)
    influences = {}
    for source, name in enumerate(names, 1):
        orders = torch.from_numpy(terms.order[:, source])[:, None, None]
        for order in sorted(set(orders[orders < NEVER].tolist())):
            changed = (mv + 0.1 * torch.where(orders <= order, other, 0)) * alive
            if float((_read(out, field, changed)[0] - right).abs().max()) > SMALL:
                influences[name] = int(order)
                break
    return float(right.abs().max()) > SMALL, influences, float(wrong.abs().max()) < SMALL


def _read(out: Targets, field: Field, mv: Tensor) -> tuple[Tensor, Tensor]:
    """What is read of the sum of an even and an odd part, split into what follows mirrors and what goes the other way."""
    geo, (mirror, versor) = out.geo, _mirror(out.geo)
    y = out.read(mv[0] + mv[1])[field.name]
    mirrored = out.read((mv[0] - mv[1]) @ geo.basis.of(geo.algebra.action(versor)).T)[field.name]
    back = [kinds.move(geo, field.kind, one, mirror, mirror.new_zeros(len(mirror))) for one in field.objects(geo, mirrored)]
    return (y + torch.cat(back, -1)) / 2, (y - torch.cat(back, -1)) / 2
