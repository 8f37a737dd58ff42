"""SE(3)-Transformer: attention with equivariant keys and values (Fuchs et al., 2020) on features of degrees 0 to 3."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from anygatr.lab.baselines.bodies import Bodies, BodyNetwork
from anygatr.lab.baselines.pairs import Pairs
from anygatr.lab.baselines.se3_kernel import PairKernel, Steerable
from anygatr.lab.data.task import Task

DEGREE = 3
DIVISOR = 4
"""Channels of the stream over channels of keys and values."""
FLOOR = 1e-12


class SE3Transformer(BodyNetwork):
    """Attention layers on the complete graph; predicts displacements from velocities, differences and products of masses.

    Equivariant under rotations and translations, not mirrors. Vectors are (x, y, z) as e3nn orders degree 1.
    """

    def __init__(self, task: Task, channels: int, layers: int):
        super().__init__(task)
        stream = dict.fromkeys(range(DEGREE + 1), channels)
        inputs = {1: 1}
        self.layers, self.gates = nn.ModuleList(), nn.ModuleList()
        for _ in range(layers):
            self.layers.append(FiberAttention(inputs, stream, max(1, channels // DIVISOR)))
            self.gates.append(NormGate(stream))
            inputs = stream
        # of the two vectors put out, as published, the second is left unused
        self.last = FiberAttention(inputs, {1: 2}, 2, attentive=True)

    def displacement(self, bodies: Bodies) -> Float[Tensor, "b n 3"]:
        """One vector per body, equivariant under rotations, the same under translations."""
        pairs = Pairs.of(bodies, DEGREE)
        x: Steerable = {1: bodies.velocity.unsqueeze(-1)}
        for layer, gate in zip(self.layers, self.gates, strict=True):
            x = gate(layer(x, pairs))
        return self.last(x, pairs)[1][..., 0]


class FiberAttention(nn.Module):
    """softmax(q k) v over incoming edges, beside the input, mixed per degree; one head."""

    def __init__(self, inputs: dict[int, int], outputs: dict[int, int], inner: int, attentive: bool = False):
        super().__init__()
        self.keys, self.values = [low for low in outputs if low in inputs], list(outputs)
        self.kernel = PairKernel(inputs, self.keys + self.values, inner)
        self.query = Mix({low: inputs[low] for low in self.keys}, dict.fromkeys(self.keys, inner))
        joined = {low: inner + inputs.get(low, 0) for low in outputs}
        self.mix = AttentiveMix(joined, outputs) if attentive else Mix(joined, outputs)
        self.scale = 1 / math.sqrt(inner * sum(2 * low + 1 for low in self.keys))

    def forward(self, x: Steerable, pairs: Pairs) -> Steerable:
        """The features after attention."""
        n, others = pairs.seen.shape[1:]
        edges = [edge.unflatten(1, (n, others)) for edge in self.kernel(x, pairs)]
        query = self.query(x)
        keys = zip(self.keys, edges[: len(self.keys)], strict=True)
        logits = sum((k * query[low].unsqueeze(2)).sum((-1, -2)) for low, k in keys)
        logits = (self.scale * logits).masked_fill(~pairs.seen, -torch.inf)
        weights = logits.softmax(-1).masked_fill(~pairs.seen, 0.0)  # a lone body has no edges, and no message
        values = zip(self.values, edges[len(self.keys) :], strict=True)
        found = {low: (v * weights[..., None, None]).sum(2) for low, v in values}
        return self.mix({low: torch.cat([v, x[low]], -1) if low in x else v for low, v in found.items()})


class Mix(nn.Module):
    """One matrix over channels for each degree."""

    def __init__(self, inputs: dict[int, int], outputs: dict[int, int]):
        super().__init__()
        self.degrees = list(outputs)
        self.weights = nn.ParameterList(
            nn.Parameter(torch.randn(inputs[low], outputs[low]) / math.sqrt(inputs[low])) for low in outputs
        )

    def forward(self, x: Steerable) -> Steerable:
        """The mixed features."""
        return {low: x[low] @ weight for low, weight in zip(self.degrees, self.weights, strict=True)}


class AttentiveMix(nn.Module):
    """Convex combinations of channels, with weights from the inner products of all channels."""

    def __init__(self, inputs: dict[int, int], outputs: dict[int, int]):
        super().__init__()
        self.outputs = outputs
        self.nets = nn.ModuleList(_inner_products_to_weights(inputs[low], outputs[low]) for low in outputs)

    def forward(self, x: Steerable) -> Steerable:
        """The mixed features."""
        found = {}
        for (low, out), net in zip(self.outputs.items(), self.nets, strict=True):
            products = x[low].transpose(-1, -2) @ x[low]
            weights = net(products.flatten(-2)).unflatten(-1, (out, -1)).softmax(-1)
            found[low] = x[low] @ weights.transpose(-1, -2)
        return found


class NormGate(nn.Module):
    """x -> ReLU(|x| + bias) x / |x| for each channel of each degree."""

    def __init__(self, widths: dict[int, int]):
        super().__init__()
        self.degrees = list(widths)
        self.biases = nn.ParameterList(nn.Parameter(torch.randn(width)) for width in widths.values())

    def forward(self, x: Steerable) -> Steerable:
        """The gated features."""
        found = {}
        for low, bias in zip(self.degrees, self.biases, strict=True):
            norm = x[low].square().sum(-2, keepdim=True).clamp(min=FLOOR).sqrt()
            found[low] = x[low] * (torch.relu(norm + bias) / norm)
        return found


def _inner_products_to_weights(inputs: int, outputs: int) -> nn.Module:
    linear = nn.Linear(inputs**2, inputs * outputs)
    nn.init.kaiming_uniform_(linear.weight)
    return nn.Sequential(nn.LayerNorm(inputs**2), nn.LeakyReLU(), linear)
