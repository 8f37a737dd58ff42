"""SEGNN: steerable E(3)-equivariant message passing (Brandstetter et al., 2022) with features of degree 0 and 1."""

import math
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from anygatr.lab.baselines.bodies import Bodies, BodyNetwork
from anygatr.lab.data.task import Task

# axes: b samples, n bodies, x coordinates, c channels; edges are (b, receiver, sender)

EXTRA = 2
"""Numbers that a message is told of its edge besides the direction: the distance and the product of the masses."""


class Features(NamedTuple):
    """c_s scalars (irrep 0e) and c_v vectors (1o) per node or edge."""

    s: Float[Tensor, "... c_s"]
    v: Float[Tensor, "... 3 c_v"]


class Attribute(NamedTuple):
    """What steers a product: the spherical harmonics of degree 0, a number, and of degree 1, a vector."""

    scalar: float
    vector: Float[Tensor, "... 3"]


class SEGNN(BodyNetwork):
    """Embedding, message passing layers, read-out on the complete graph; predicts displacements.

    `channels` is the width of a scalar network with as many weights, as published: half of it are scalars and vectors each.
    Nodes know their place relative to the mean, their velocity and its length; masses enter only as products on edges.
    """

    def __init__(self, task: Task, channels: int, layers: int):
        super().__init__(task)
        width = math.ceil(channels / 2)
        self.embed = SteeredProduct((1, 2), (width, width))
        self.layers = nn.ModuleList(SteerableLayer(width) for _ in range(layers))
        self.gated = SteeredProduct((width, width), (2 * width, width))
        self.read = SteeredProduct((width, width), (0, 1))

    def displacement(self, bodies: Bodies) -> Float[Tensor, "b n 3"]:
        """One vector per body, equivariant under rotations and mirrors, the same under translations."""
        towards = (bodies.place.unsqueeze(-3) - bodies.place.unsqueeze(-2)).to(bodies.velocity)
        edges, nodes, seen = _attributes(bodies, towards)
        extra = torch.stack([towards.norm(dim=-1), bodies.mass.unsqueeze(-1) * bodies.mass.unsqueeze(-2)], -1)
        x = self.embed(_inputs(bodies), nodes)
        for layer in self.layers:
            x = layer(x, edges, nodes, extra, seen)
        return self.read(gate(self.gated(x, nodes)), nodes).v.squeeze(-1)


class SteerableLayer(nn.Module):
    """x_i += update(x_i, sum_j message(x_i, x_j, edge))."""

    def __init__(self, width: int):
        super().__init__()
        self.message = SteeredProduct((2 * width + EXTRA, 2 * width), (2 * width, width))
        self.message_again = SteeredProduct((width, width), (2 * width, width))
        self.update = SteeredProduct((2 * width, 2 * width), (2 * width, width))
        self.update_again = SteeredProduct((width, width), (width, width))
        self.width = width

    def forward(self, x: Features, edges: Attribute, nodes: Attribute, extra: Tensor, seen: Tensor) -> Features:
        """The features after one round of messages; `seen` is 1 on the edges that exist, 0 elsewhere."""
        m = gate(self.message.steer(*self._projected(x, extra), edges))
        m = gate(self.message_again(m, edges))
        summed = Features((m.s * seen).sum(-2), (m.v * seen.unsqueeze(-1)).sum(-3))
        both = Features(torch.cat([x.s, summed.s], -1), torch.cat([x.v, summed.v], -1))
        y = self.update_again(gate(self.update(both, nodes)), nodes)
        return Features(x.s + y.s, x.v + y.v)

    def _projected(self, x: Features, extra: Tensor) -> tuple[Tensor, Tensor]:
        """The linear half of the first product, done per node before it is spread over edges: it is linear in each."""
        width, (scalars, vectors) = self.width, (self.message.scalars, self.message.vectors)
        p = (x.s @ scalars[:width]).unsqueeze(-2) + (x.s @ scalars[width:-EXTRA]).unsqueeze(-3) + extra @ scalars[-EXTRA:]
        q = (x.v @ vectors[:width]).unsqueeze(-3) + (x.v @ vectors[width:]).unsqueeze(-4)
        return p, q


class SteeredProduct(nn.Module):
    """The fully connected tensor product of features with an attribute, biased on scalars.

    Paths are 0 x 0 -> 0, 1 x 1 -> 0, 0 x 1 -> 1 and 1 x 0 -> 1 with e3nn's component normalisation; weights and biases
    start uniform within 1 / sqrt(fan in), as a linear layer's do.
    """

    def __init__(self, inputs: tuple[int, int], outputs: tuple[int, int]):
        super().__init__()
        self.outputs = outputs
        bound = 1 / math.sqrt(sum(inputs))
        self.scalars = nn.Parameter(torch.empty(inputs[0], sum(outputs)).uniform_(-bound, bound))
        self.vectors = nn.Parameter(torch.empty(inputs[1], sum(outputs)).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(outputs[0]).uniform_(-bound, bound))

    def forward(self, x: Features, attribute: Attribute) -> Features:
        """The product."""
        return self.steer(x.s @ self.scalars, x.v @ self.vectors, attribute)

    def steer(self, p: Tensor, q: Tensor, attribute: Attribute) -> Features:
        """The product of projected scalars p (..., c) and vectors q (..., 3, c) with the attribute."""
        p_s, p_v = p.split(self.outputs, -1)
        q_s, q_v = q.split(self.outputs, -1)
        direction = attribute.vector.unsqueeze(-1)
        s = attribute.scalar * p_s + (q_s * direction).sum(-2) / math.sqrt(3) + self.bias
        return Features(s, p_v.unsqueeze(-2) * direction + attribute.scalar * q_v)


def gate(x: Features) -> Features:
    """The first half of the scalars through a SiLU; the others, through a sigmoid, multiply the vectors."""
    s, gates = x.s.chunk(2, -1)
    return Features(SILU * nn.functional.silu(s), x.v * (SIGMOID * gates.sigmoid()).unsqueeze(-2))


def _inputs(bodies: Bodies) -> Features:
    real = bodies.real.unsqueeze(-1)
    centre = bodies.place.sum(-2, keepdim=True) / real.sum(-2, keepdim=True)
    place = ((bodies.place - centre) * real).to(bodies.velocity)
    return Features(bodies.velocity.norm(dim=-1, keepdim=True), torch.stack([place, bodies.velocity], -1))


def _attributes(bodies: Bodies, towards: Float[Tensor, "b n n 3"]) -> tuple[Attribute, Attribute, Tensor]:
    """The attributes of edges and of nodes, and 1 for each edge that exists."""
    seen = bodies.real.unsqueeze(-1) & bodies.real.unsqueeze(-2)
    seen = (seen & ~torch.eye(bodies.count, dtype=torch.bool, device=seen.device)).unsqueeze(-1).to(bodies.velocity)
    edges = degree_one(towards) * seen
    mean = edges.sum(-2) / seen.sum(-2).clamp(min=1)
    return Attribute(DEGREE_ZERO, edges), Attribute(1.0, mean + degree_one(bodies.velocity)), seen


def degree_one(x: Float[Tensor, "... 3"]) -> Float[Tensor, "... 3"]:
    """The spherical harmonics of degree 1, orthonormal on the sphere, in the direction of x; 0 for x = 0."""
    return math.sqrt(3 / (4 * math.pi)) * nn.functional.normalize(x, dim=-1)


def _unit_moment(values: np.ndarray, weights: np.ndarray) -> float:
    return float(np.sqrt(weights.sum() / (weights * values**2).sum()))


# factors after which f(z), z standard normal, has second moment one, as e3nn's gate normalises
_Z, _WEIGHTS = np.polynomial.hermite_e.hermegauss(80)
SILU = _unit_moment(_Z / (1 + np.exp(-_Z)), _WEIGHTS)
SIGMOID = _unit_moment(1 / (1 + np.exp(-_Z)), _WEIGHTS)
DEGREE_ZERO = 1 / math.sqrt(4 * math.pi)
