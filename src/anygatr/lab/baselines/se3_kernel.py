"""Kernels between bodies: the general linear map that commutes with rotations, weighted by radial networks."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from anygatr.lab.baselines.pairs import Pairs, polar_kernels

# axes: p pairs, k networks, h hidden units, r output slots x channels, c input degrees x channels

HIDDEN = 32
Steerable = dict[int, Float[Tensor, "... m c"]]
"""Features by degree l: 2l + 1 orders, then channels."""


class PairKernel(nn.Module):
    """From features of bodies to features of edges, slot by slot: each slot is one degree with `channels` channels.

    Every (slot, input degree) has a radial network of its own, which gives one weight for each frequency and pair of
    channels. Edges of a pair share distance and masses, so the networks run once per pair. In the frame of the pair the
    kernel couples only orders of equal size |m|, and reversing the edge only changes signs.
    """

    def __init__(self, inputs: dict[int, int], slots: list[int], channels: int):
        super().__init__()
        self.degrees, self.slots, self.channels = sorted(inputs), slots, channels
        (self.width,) = set(inputs.values())
        nets = [(out, low) for out in slots for low in self.degrees]
        self.radial = Radial(len(nets))
        self.frequencies = sorted({min(net) for net in nets})
        self.members = {f: [k for k, net in enumerate(nets) if min(net) == f] for f in self.frequencies}
        # float64 whatever the weights are: not a buffer, because a module's dtype would round it
        self.kernels = {f: torch.stack([polar_kernels(*nets[k]) for k in self.members[f]]) for f in self.frequencies}
        size = channels * self.width
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for f in self.frequencies:
            shape = (len(self.members[f]), 2 * f + 1, size)
            self.weights.append(nn.Parameter(_uniform((*shape, HIDDEN), math.sqrt(6 / HIDDEN))))
            self.biases.append(nn.Parameter(_uniform(shape, 1 / math.sqrt(HIDDEN))))
        self.orders = range(max(self.frequencies) + 1)
        self.nets = {m: [k for k, net in enumerate(nets) if min(net) >= m] for m in self.orders}
        for m in self.orders:
            self.register_buffer(f"signs_{m}", self._signs(m), persistent=False)

    def forward(self, x: Steerable, pairs: Pairs) -> list[Float[Tensor, "b edges m channels"]]:
        """The features of all edges by slot, in the edges' order in `pairs`."""
        framed = self._framed(x, pairs)
        hidden = self.radial(pairs.invariants)
        weight, bias = self._coefficients()
        parts: list[dict[int, Tensor]] = [{} for _ in self.slots]
        for m in self.orders:
            for slot, value in zip(self._rows(m), self._of_order(m, framed, hidden, weight, bias), strict=True):
                for order, column in zip((m, -m) if m else (0,), value.unbind(-1), strict=True):
                    parts[slot][order] = column
        return [self._unframed(degree, parts[i], pairs, len(pairs.seen)) for i, degree in enumerate(self.slots)]

    def _of_order(
        self, m: int, framed: dict[int, tuple[Tensor, ...]], hidden: Tensor, weight: Tensor, bias: Tensor
    ) -> tuple[Tensor, ...]:
        """Orders m and -m of every slot that has them, each (p, channels, edge, order)."""
        kinds = slice(0, 1) if m == 0 else slice(2 * m - 1, 2 * m + 1)
        nets, degrees, rows = self.nets[m], [low for low in self.degrees if low >= m], self._rows(m)
        w, b = (part[nets, kinds].flatten(1, 2) for part in (weight, bias))
        of_nets = hidden if len(nets) == len(hidden) else hidden.index_select(0, torch.tensor(nets, device=hidden.device))
        kernel = torch.baddbmm(b.unsqueeze(1), of_nets, w.transpose(1, 2))
        kernel = kernel.view(len(rows), len(degrees), -1, kinds.stop - kinds.start, self.channels, self.width)
        kernel = kernel.permute(2, 0, 4, 3, 1, 5).flatten(3).flatten(1, 2)
        orders = (m, -m) if m else (0,)
        column = torch.stack([torch.stack([framed[low][low + order] for order in orders], -1) for low in degrees], 1)
        # [a b] [[x+, x-], [x-, -x+]]: both orders in one product
        column = torch.stack([column, column.flip(-1)], 1) if m else column.unsqueeze(1)
        column = (column * getattr(self, f"signs_{m}")).flatten(1, 3)
        out = (kernel @ column.flatten(2)).unflatten(-1, column.shape[2:])
        out = out.unflatten(1, (len(rows), self.channels))
        turned = out.new_tensor([[1.0, (-1.0) ** self.slots[row]] for row in rows])[:, None, :, None]
        return (out * turned).unbind(1)

    def _framed(self, x: Steerable, pairs: Pairs) -> dict[int, tuple[Tensor, ...]]:
        """The features of each edge's sender in the frame of the pair: by degree and order, each (p, channels, edge)."""
        found = {}
        for low in self.degrees:
            senders = torch.stack([x[low][:, pairs.second], x[low][:, pairs.first]], -1).flatten(0, 1)
            found[low] = (pairs.turns[low] @ senders.flatten(2)).view_as(senders)
        if self.width > 1 and 1 in found:  # the place of the receiver as the sender sees it joins the first vector
            away = torch.zeros_like(found[1])
            away[:, 1, 0] = torch.stack([pairs.distance, -pairs.distance], -1)
            found[1] = found[1] + away
        # unbound: the gradient of a stack of parts is cheaper than that of parts cut out one by one
        return {low: value.unbind(1) for low, value in found.items()}

    def _unframed(self, degree: int, orders: dict[int, Tensor], pairs: Pairs, samples: int) -> Tensor:
        zero = torch.zeros_like(orders[0])
        framed = torch.stack([orders.get(m, zero) for m in range(-degree, degree + 1)], 1)
        back = (pairs.turns[degree].transpose(1, 2) @ framed.flatten(2)).view_as(framed)
        edges = back.permute(0, 3, 1, 2).unflatten(0, (samples, len(pairs.first))).flatten(1, 2)
        return edges.index_select(1, pairs.incoming)

    def _coefficients(self) -> tuple[Tensor, Tensor]:
        """Weights and biases of the last radial layer, from frequencies to the coefficients a_0, a_1, b_1, ..."""
        nets, kinds = len(self.nets[0]), 2 * max(self.frequencies) + 1
        size = self.channels * self.width
        weight = self.weights[0].new_zeros(nets, kinds, size, HIDDEN)
        bias = self.biases[0].new_zeros(nets, kinds, size)
        for f, w, b in zip(self.frequencies, self.weights, self.biases, strict=True):
            kernels = self.kernels[f].to(w)
            weight[self.members[f], : 2 * f + 1] = torch.einsum("kmj,kjsh->kmsh", kernels, w)
            bias[self.members[f], : 2 * f + 1] = torch.einsum("kmj,kjs->kms", kernels, b)
        return weight, bias

    def _rows(self, m: int) -> list[int]:
        return [i for i, out in enumerate(self.slots) if out >= m and any(low >= m for low in self.degrees)]

    def _signs(self, m: int) -> Tensor:
        """Of the inputs: -x+ in the second row, and for the reversed edge (-1)^l, times -1 for the b coefficients."""
        degrees = [low for low in self.degrees if low >= m]
        signs = torch.ones(2 if m else 1, len(degrees), self.width, 2, 2 if m else 1)
        for i, low in enumerate(degrees):
            signs[:, i, :, 1] *= (-1) ** low
        if m:
            signs[1, ..., 1] *= -1
            signs[1, ..., 1, :] *= -1
        return signs


class Radial(nn.Module):
    """Networks from two invariants to hidden units: linear, norm, ReLU, twice; all of them side by side."""

    def __init__(self, networks: int):
        super().__init__()
        self.first = nn.Parameter(_uniform((networks, 2, HIDDEN), math.sqrt(6 / 2)))
        self.first_bias = nn.Parameter(_uniform((networks, 1, HIDDEN), 1 / math.sqrt(2)))
        self.second = nn.Parameter(_uniform((networks, HIDDEN, HIDDEN), math.sqrt(6 / HIDDEN)))
        self.second_bias = nn.Parameter(_uniform((networks, 1, HIDDEN), 1 / math.sqrt(HIDDEN)))
        self.scales = nn.Parameter(torch.ones(2, networks, 1, HIDDEN))
        self.shifts = nn.Parameter(torch.zeros(2, networks, 1, HIDDEN))

    def forward(self, invariants: Float[Tensor, "p 2"]) -> Float[Tensor, "k p h"]:
        """The hidden units of each network."""
        x = torch.baddbmm(self.first_bias, invariants.expand(len(self.first), -1, -1), self.first)
        x = torch.baddbmm(self.second_bias, self._normed(x, 0), self.second)
        return self._normed(x, 1)

    def _normed(self, x: Tensor, which: int) -> Tensor:
        x = nn.functional.layer_norm(x, (HIDDEN,))
        return torch.relu(torch.addcmul(self.shifts[which], x, self.scales[which]))


def _uniform(shape: tuple[int, ...], bound: float) -> Tensor:
    return torch.empty(shape).uniform_(-bound, bound)
