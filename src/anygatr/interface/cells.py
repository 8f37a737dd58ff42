"""Neighbours as edges: pairs of tokens within a cutoff, in a periodic cell with all images, or with the nearest one."""

from collections.abc import Sequence
from itertools import pairwise
from math import floor
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

# axes: n tokens, d dimensions, e edges, i images
CANDIDATES = 2**20
"""Differences in memory at once."""


class Neighbours(NamedTuple):
    """Edges for `pairs`, with the difference r_sender + image @ cell - r_receiver, differentiable in positions and cell.

    `smooth` = (1 - (|shift| / cutoff)^2)^2 falls to 0 at the cutoff: features times `smooth` come and go without a jump. It
    is 1 without a cutoff.
    """

    edges: Int[Tensor, "2 e"]
    shift: Float[Tensor, "e d"]
    smooth: Float[Tensor, " e"]
    images: Int[Tensor, "e d"]


def neighbours(
    position: Float[Tensor, "*tokens d"],
    cutoff: float | None = None,
    cell: Float[Tensor, "*samples d d"] | None = None,
    pbc: bool | Sequence[bool] = True,
    mask: Bool[Tensor, "*tokens"] | None = None,
    offsets: Int[Tensor, " samples+1"] | None = None,
) -> Neighbours:
    """All pairs within the cutoff, with all images in a periodic cell; without a cutoff each pair by its nearest image.

    The rows of a cell are its vectors, one cell for all samples or one each; `pbc` says along which of them it repeats. A
    token is a neighbour of its own images. Found by brute force over the images that can be within the cutoff.
    """
    _check(position, cutoff, cell, mask, offsets)
    size = position.shape[-1]
    repeats = torch.tensor([pbc] * size if isinstance(pbc, bool) else list(map(bool, pbc)))
    if len(repeats) != size:
        raise ValueError(f"pbc={pbc!r} must be one boolean, or one for each of the {size} vectors of the cell")
    flat = position.reshape(-1, size)
    bounds = _bounds(position.shape[:-1], offsets)
    cells = None if cell is None else cell.to(flat).expand(len(bounds) - 1, size, size)
    points, real = flat.detach().double().cpu(), None if mask is None else mask.flatten().cpu()
    receivers, senders, images = [], [], []
    for sample, (start, stop) in enumerate(pairwise(bounds)):
        here = torch.arange(start, stop) if real is None else start + real[start:stop].nonzero().squeeze(1)
        lattice = None if cells is None else cells[sample].detach().double().cpu()
        i, j, image = _found(points[here], lattice, repeats, cutoff)
        receivers.append(here[i])
        senders.append(here[j])
        images.append(image)
    edges = torch.stack([torch.cat(senders), torch.cat(receivers)]).to(flat.device)
    image = torch.cat(images).to(flat.device)
    shift = flat[edges[0]] - flat[edges[1]]
    if cells is not None:
        of = torch.bucketize(edges[1], torch.tensor(bounds[1:], device=flat.device), right=True)
        shift = shift + torch.einsum("ei,eid->ed", image.to(flat), cells[of])
    square = shift.square().sum(-1)
    smooth = torch.ones_like(square) if cutoff is None else (1 - square / cutoff**2).clamp(min=0).square()
    return Neighbours(edges, shift, smooth, image)


def _check(position: Tensor, cutoff: float | None, cell: Tensor | None, mask: Tensor | None, offsets: Tensor | None) -> None:
    if not isinstance(position, Tensor) or not position.is_floating_point() or position.dim() < 2:
        raise ValueError("position must be a floating point tensor (..., n, d)")
    if cutoff is not None and not 0 < cutoff < float("inf"):
        raise ValueError(f"cutoff={cutoff!r} must be a positive length, or None for the nearest image of every pair")
    if mask is not None and (offsets is not None or mask.shape != position.shape[:-1]):
        raise ValueError(f"mask has shape {tuple(mask.shape)}; give one boolean for each token, and no offsets")
    if cell is None:
        return
    samples = len(offsets) - 1 if offsets is not None else position.shape[:-2].numel()
    size = position.shape[-1]
    if not isinstance(cell, Tensor) or cell.shape not in ((size, size), (samples, size, size)):
        found = tuple(cell.shape) if isinstance(cell, Tensor) else type(cell).__name__
        raise ValueError(f"cell is {found}; pass its vectors as rows, ({size}, {size}) or ({samples}, {size}, {size})")
    if bool((torch.linalg.det(cell.detach().double()).abs() < 1e-12).any()):
        raise ValueError("cell has no volume; give independent vectors, of any length along which it does not repeat")


def _bounds(tokens: torch.Size, offsets: Tensor | None) -> list[int]:
    if offsets is not None:
        return [int(x) for x in offsets]
    return list(range(0, tokens.numel() + 1, max(tokens[-1], 1)))


def _found(
    points: Float[Tensor, "n d"], cell: Float[Tensor, "d d"] | None, repeats: Bool[Tensor, " d"], cutoff: float | None
) -> tuple[Int[Tensor, " e"], Int[Tensor, " e"], Int[Tensor, "e d"]]:
    """Receivers, senders and images of one sample."""
    count, size = points.shape
    periodic = repeats & (cell is not None)
    cell = torch.eye(size, dtype=points.dtype) if cell is None else cell
    inverse = torch.linalg.inv(cell)
    # with every repeated fraction within a half, |shift| <= reach needs |fraction + image| <= reach * |row of the inverse|
    reach = float(cell.norm(dim=1).sum()) / 2 if cutoff is None else cutoff
    most = [floor(reach * float(row.norm()) + 0.5) if on else 0 for row, on in zip(inverse.T, periodic, strict=True)]
    images = torch.cartesian_prod(*(torch.arange(-m, m + 1) for m in most)).view(-1, size)
    lattice, out = images.to(points) @ cell, []
    for rows in torch.arange(count).split(max(1, CANDIDATES // max(count * len(images), 1))):
        difference = points[None] - points[rows, None]
        turns = torch.where(periodic, (difference @ inverse).round(), 0)
        square = (difference - turns @ cell).unsqueeze(-2).add(lattice).square().sum(-1)
        itself = rows[:, None] == torch.arange(count)
        if cutoff is None:
            chosen = torch.zeros_like(square, dtype=torch.bool).scatter_(-1, square.argmin(-1, keepdim=True), True)
            chosen &= ~itself.unsqueeze(-1)
        else:
            chosen = (square < cutoff**2) & ~(itself.unsqueeze(-1) & (images == 0).all(-1))
        i, j, image = chosen.nonzero(as_tuple=True)
        out.append((rows[i], j, images[image] - turns[i, j].long()))
    return tuple(torch.cat(part) for part in zip(*out, strict=True))  # type: ignore[return-value]
