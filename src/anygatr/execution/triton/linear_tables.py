"""The tables of a linear map for its kernels: which blades feed which, by which part of the packed weights.

All weights of a layer lie one behind the other in one buffer: the effective weights (e, c_out, c_in), then s_to_mv, mv_to_s,
s_to_s and the biases, as `LinearWeights` has them. A scalar stream counts as one more target and one more source, behind the
blades.
"""

from functools import lru_cache
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anygatr.ops.linear import LinearPlan

NONE = -1


class Widths(NamedTuple):
    """Channels of what a linear map reads and writes."""

    c_in: int
    s_in: int
    c_out: int
    s_out: int


class Reads(NamedTuple):
    """What each target adds up.

    `targets` has, for each blade and the scalars, where its entries begin and end, the weight that takes scalars to it and
    its bias; `entries` the source blade and the weight of each entry. Weights are places in the packed buffer; NONE: none.
    """

    targets: Int[Tensor, "k+1 4"]
    entries: Int[Tensor, "p 2"]
    factors: Float[Tensor, " p"]


class WeightTiles(NamedTuple):
    """What the gradient of each tile of a weight adds up.

    `tiles` has the target's kind (0 multivectors, 1 scalars), the source's (2: the constant one), where its pairs begin and
    end, its first output and input channel, the weight's place and its row length; `pairs` are (target blade, source blade).
    """

    tiles: Int[Tensor, "tiles 8"]
    pairs: Int[Tensor, "p 2"]
    factors: Float[Tensor, " p"]


class PackedTables(NamedTuple):
    """Tables for results, for gradients of inputs, and for gradients of weights; `size` numbers are packed."""

    forward: Reads
    backward: Reads
    weights: WeightTiles
    mixing: Float[Tensor, "m e"]
    size: int


class _Layout(NamedTuple):
    """Where each weight begins."""

    effective: list[int]
    s_to_mv: list[int]
    mv_to_s: list[int]
    s_to_s: int
    bias_mv: list[int]
    bias_s: int
    size: int


@lru_cache(maxsize=256)
def linear_tables(
    plan: LinearPlan, widths: Widths, biased: bool, tile: int, real: torch.dtype, device: torch.device
) -> PackedTables:
    """The tables on a device, moved once; factors in the type that sums are taken in."""
    at = _layout(plan, widths, biased)
    invariant, k = plan.invariant, plan.blades
    forward: list[list[tuple[int, int, float]]] = [[] for _ in range(k + 1)]
    backward: list[list[tuple[int, int, float]]] = [[] for _ in range(k + 1)]
    fed: dict[str, dict[int, int]] = {"forward": {}, "backward": {}, "bias": {}}
    for e in plan.entries:
        forward[e.target].append((e.source, at.effective[e.weight], e.factor))
        backward[e.source].append((e.target, at.effective[e.weight], e.factor))
    for j in plan.outer:
        fed["forward"][invariant[j]] = at.s_to_mv[j]
        backward[k].append((invariant[j], at.s_to_mv[j], 1.0))
        fed["bias"][invariant[j]] = at.bias_mv[j]
    if plan.scalars:
        for j in plan.inner:
            forward[k].append((invariant[j], at.mv_to_s[j], 1.0))
            fed["backward"][invariant[j]] = at.mv_to_s[j]
        fed["forward"][k] = fed["backward"][k] = at.s_to_s
        fed["bias"][k] = at.bias_s
    return PackedTables(
        _reads(forward, fed["forward"], fed["bias"] if biased else {}, real, device),
        _reads(backward, fed["backward"], {}, real, device),
        _weight_tiles(plan, widths, biased, at, tile, real, device),
        torch.tensor(plan.mixing, dtype=torch.float64).reshape(plan.maps, -1).to(device, real),
        at.size,
    )


def _layout(plan: LinearPlan, widths: Widths, biased: bool) -> _Layout:
    c_in, s_in, c_out, s_out = widths
    weights, invariants = len(plan.mixing[0]) if plan.mixing else 0, len(plan.invariant)
    sizes = [c_out * c_in] * weights + [c_out * s_in] * invariants + [s_out * c_in] * invariants + [s_out * s_in]
    sizes += [c_out] * invariants + [s_out] if biased else []
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + size)
    first, cut = iter(starts), [weights, invariants, invariants, 1, invariants if biased else 0, int(biased)]
    parts = [[next(first) for _ in range(count)] for count in cut]
    return _Layout(
        parts[0], parts[1], parts[2], parts[3][0], parts[4] or [NONE] * invariants, (parts[5] or [NONE])[0], starts[-1]
    )


def _reads(
    lists: list[list[tuple[int, int, float]]],
    fed: dict[int, int],
    bias: dict[int, int],
    real: torch.dtype,
    device: torch.device,
) -> Reads:
    targets, start = [], 0
    for target, entries in enumerate(lists):
        targets.append([start, start + len(entries), fed.get(target, NONE), bias.get(target, NONE)])
        start += len(entries)
    flat = [e for entries in lists for e in entries]
    ints = torch.tensor([[source, place] for source, place, _ in flat], dtype=torch.int32).reshape(-1, 2)
    return Reads(
        torch.tensor(targets, dtype=torch.int32).to(device),
        ints.to(device),
        torch.tensor([factor for *_, factor in flat], dtype=real).to(device),
    )


def _weight_tiles(
    plan: LinearPlan,
    widths: Widths,
    biased: bool,
    at: _Layout,
    tile: int,
    real: torch.dtype,
    device: torch.device,
) -> WeightTiles:
    c_in, s_in, c_out, s_out = widths
    invariant = plan.invariant
    # place, target's kind, source's kind, pairs
    weights: list[tuple[int, int, int, list[tuple[int, int, float]]]] = []
    for weight, place in enumerate(at.effective):
        weights.append((place, 0, 0, [(e.target, e.source, e.factor) for e in plan.entries if e.weight == weight]))
    for j, blade in enumerate(invariant):
        weights.append((at.s_to_mv[j], 0, 1, [(blade, 0, 1.0)] if j in plan.outer else []))
        weights.append((at.mv_to_s[j], 1, 0, [(0, blade, 1.0)] if plan.scalars and j in plan.inner else []))
    weights.append((at.s_to_s, 1, 1, [(0, 0, 1.0)] if plan.scalars else []))
    if biased:
        weights += [(at.bias_mv[j], 0, 2, [(b, 0, 1.0)] if j in plan.outer else []) for j, b in enumerate(invariant)]
        weights.append((at.bias_s, 1, 2, [(0, 0, 1.0)] if plan.scalars else []))
    tiles, pairs, start = [], list[tuple[int, int, float]](), 0
    for place, target, source, own in weights:
        rows, columns = (c_out, s_out)[target], (c_in, s_in, 1)[source]
        for o in range(0, rows, tile):
            tiles += [[target, source, start, start + len(own), o, i, place, columns] for i in range(0, columns, tile)]
        pairs += own
        start += len(own)
    return WeightTiles(
        torch.tensor(tiles, dtype=torch.int32).reshape(-1, 8).to(device),
        torch.tensor([p[:2] for p in pairs], dtype=torch.int32).reshape(-1, 2).to(device),
        torch.tensor([p[2] for p in pairs], dtype=real).to(device),
    )
