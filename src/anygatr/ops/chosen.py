"""Which tokens are anchors and which are neighbours, chosen by distances alone, so that every motion chooses the same."""

import importlib

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anygatr.ops.near import Near
from anygatr.ops.ragged import pack

# axes: n tokens, d dimensions, b samples of a bucket, m places of a row
PAIRS = 2**22  # distances in memory at once where scipy, which has a tree, is missing


def farthest_points(
    points: Float[Tensor, "n d"], offsets: Int[Tensor, " samples+1"], count: int
) -> tuple[Int[Tensor, " a"], tuple[int, ...]]:
    """At most `count` tokens of each sample, and where each sample's begin.

    The first is the token farthest from the mean, each next one farthest from those before; among equals the first in order.
    """
    plan, points = pack(offsets), points.detach().to("cpu", torch.float64)
    numbers = [min(count, length) for length in plan.lengths.tolist()]
    found: dict[int, Tensor] = {}
    start = 0
    for rows, length, _ in plan.buckets.tolist():
        part = slice(start, start + rows * length)
        start += rows * length
        slots, real = plan.slots[part].view(rows, length), (plan.places[part] != len(points)).view(rows, length)
        samples = plan.sample[slots[:, 0]].tolist()
        places = _farthest(points[slots].movedim(-1, 0).contiguous(), real, max(numbers[i] for i in samples))
        for row, sample in enumerate(samples):
            found[sample] = slots[row, places[row, : numbers[sample]]]
    ends = torch.tensor([0, *numbers]).cumsum(0).tolist()
    return torch.cat([found[i] for i in range(len(numbers))]), tuple(ends)


def _farthest(points: Float[Tensor, "d b m"], real: Bool[Tensor, "b m"], count: int) -> Int[Tensor, "b a"]:
    """Places of tokens in rows; rows with fewer real ones repeat some at the end."""
    centre = (points * real).sum(-1, keepdim=True) / real.sum(-1, keepdim=True)
    nearest = _squares(points, centre).masked_fill(~real, -1.0)
    chosen = [nearest.argmax(-1, keepdim=True)]
    nearest = torch.full_like(nearest, torch.inf).masked_fill(~real, -1.0)
    while len(chosen) < count:
        last = chosen[-1]
        nearest = torch.minimum(nearest, _squares(points, points.gather(2, last.expand(len(points), -1, 1))))
        nearest.scatter_(1, last, -1.0)  # tokens at the same place are chosen once each
        chosen.append(nearest.argmax(-1, keepdim=True))
    return torch.cat(chosen, 1)


def _squares(points: Float[Tensor, "d b m"], centre: Float[Tensor, "d b 1"]) -> Float[Tensor, "b m"]:
    total = torch.zeros_like(points[0])
    for axis, place in zip(points, centre, strict=True):
        total.addcmul_(axis - place, axis - place)
    return total


def nearest_points(
    points: Float[Tensor, "n d"], offsets: Int[Tensor, " samples+1"], count: int
) -> tuple[Int[Tensor, "n j"], Bool[Tensor, "n j"]]:
    """Each token, then the `count` nearest others of its sample; False where there are fewer."""
    points, parts = points.detach().to("cpu", torch.float64), []
    for start, stop in zip(offsets.tolist(), offsets.tolist()[1:], strict=False):
        parts.append(_others(points[start:stop], count) + start)
    own, others = torch.arange(len(points))[:, None], torch.cat(parts)
    missing = others < 0
    return torch.cat([own, torch.where(missing, own, others)], 1), torch.cat([torch.ones_like(own) > 0, ~missing], 1)


def _others(points: Float[Tensor, "n d"], count: int) -> Int[Tensor, "n j"]:
    """The nearest others of one sample; a large negative number where there are none."""
    size, here = len(points), torch.arange(len(points))[:, None]
    ranked = _ranked(points, min(count + 1, size)) if size else here
    # a token itself goes behind the others; among tokens at one place it may not even be there
    order = (ranked == here).to(torch.uint8).argsort(dim=1, stable=True)
    others = ranked.gather(1, order)[:, :-1] if ranked.shape[1] > 1 else ranked[:, :0]
    return torch.nn.functional.pad(others, (0, count - others.shape[1]), value=-(2**60))


def _ranked(points: Float[Tensor, "n d"], count: int) -> Int[Tensor, "n j"]:
    """The nearest tokens, nearest first: by a tree, or tile by tile without scipy."""
    try:
        tree = importlib.import_module("scipy.spatial").cKDTree(points.numpy())
    except ImportError:
        tiles = points.split(max(1, PAIRS // len(points)))
        way = "donot_use_mm_for_euclid_dist"  # a matrix product would lose the digits of near ones
        return torch.cat([torch.cdist(tile, points, compute_mode=way).topk(count, largest=False).indices for tile in tiles])
    found = tree.query(points.numpy(), k=list(range(1, count + 1)), workers=torch.get_num_threads())[1]
    return torch.from_numpy(found).long()


def choose_near(
    points: Float[Tensor, "n d"],
    offsets: Int[Tensor, " samples+1"],
    neighbours: int,
    anchors: int,
    real: Bool[Tensor, " n"] | None = None,
) -> Near:
    """The keys of every token, on the device of the points; padding attends to the anchors of its sample alone.

    `offsets`, on the CPU, cut all tokens into samples, padding included; every sample has a real token.
    """
    device, bounds, every = points.device, offsets, torch.arange(len(points))
    if real is not None:
        every = real.cpu().nonzero().squeeze(1)
        counts = torch.cat([every.new_zeros(1), real.cpu().cumsum(0)])
        offsets, points = counts[offsets], points[every.to(device)]
    far, ends = farthest_points(points, offsets, anchors)
    around, there = nearest_points(points, offsets, neighbours)
    counted = there & ~torch.zeros(len(points), dtype=torch.bool).index_fill(0, far, True)[around]
    if real is not None:
        own = torch.arange(len(real))[:, None].expand(-1, around.shape[1])
        around = own.clone().index_copy_(0, every, every[around])
        counted = torch.zeros_like(around, dtype=torch.bool).index_copy_(0, every, counted)
        far = every[far]
    return Near(around.to(device), counted.to(device), far.to(device), tuple(bounds.tolist()), ends)


def few_of(tokens: int, most: int, share: int) -> int:
    """One of `share` tokens, and at most `most`."""
    return min(most, -(-tokens // share))


def choose_few(
    points: Float[Tensor, "b n d"], mask: Bool[Tensor, "b n"] | None, most: int, share: int
) -> tuple[Int[Tensor, "b p"], Bool[Tensor, "b p"] | None]:
    """Few tokens of every sample, far from each other, by their places in it; False where another sample has more."""
    batch, n = points.shape[:2]
    lengths = torch.full((batch,), n) if mask is None else mask.sum(-1).cpu()
    flat = points.flatten(0, 1) if mask is None else points[mask]
    numbers = [few_of(length, most, share) for length in lengths.tolist()]
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    far, ends = farthest_points(flat, offsets, max(numbers))
    place = torch.arange(n).repeat(batch) if mask is None else mask.cpu().nonzero()[:, 1]
    parts = [place[far[start : start + number]] for start, number in zip(ends, numbers, strict=False)]
    chosen = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True).to(points.device)
    real = torch.arange(chosen.shape[1]) < torch.tensor(numbers)[:, None]
    return chosen, None if bool(real.all()) else real.to(points.device)
