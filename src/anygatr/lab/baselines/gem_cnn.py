"""GEM-CNN: gauge-equivariant convolutions on a surface, at three scales.

Features of a node are fields on its tangent plane of angular order 0, 1 and 2: a number and the real and imaginary parts of
two complex numbers z_m, which turn as exp(i m angle) when the gauge does. A convolution turns the features of each neighbour
into the frame that points from the node to it, mixes orders and channels there freely, by a kernel that depends on the
distance, and turns the result back: this is the most general linear map that commutes with every change of gauge.
"""

from math import pi, sqrt

import torch
from jaxtyping import Float
from torch import Tensor, nn

from anygatr.lab.baselines.neighbours import PerMesh, array, samples, spacing
from anygatr.lab.baselines.surface_graph import Scale, SurfaceGraph, surface
from anygatr.lab.data.task import Task

# axes: n nodes, k neighbours, c channels, o orders (1, Re z1, Im z1, Re z2, Im z2), r rings
ORDERS = 2
SIZE = 2 * ORDERS + 1
RINGS = 2
SAMPLES = 7
MATRICES = 7
"""Channels that describe the shape of a neighbourhood."""


class GemCNN(nn.Module):
    """A U of residual blocks: `blocks` at each scale on the way down, twice as many on the way up, skip connections.

    Inputs are the shape of each neighbourhood (means of d d^T, n n^T and d n^T over displacements d and normals n of the
    neighbours, split into orders) and the scalar fields; the output of order 0 and 1 is a vector, normal and tangential
    part. Layer norms over the values of a node stand for the original's batch norms, because a batch may hold one mesh.
    Equivariant under rotations and translations up to the nonlinearity, which sees seven directions; not under mirrors.
    """

    def __init__(self, task: Task, channels: int, blocks: int, samples: int = SAMPLES):
        super().__init__()
        self.task = task
        self.place, self.wall, self.scalars = _fields(task)
        inputs = (MATRICES + len(self.scalars), channels, channels)
        self.down = nn.ModuleList(MeshScale(width, channels, blocks, samples) for width in inputs)
        self.up = nn.ModuleList(MeshScale(2 * channels, channels, 2 * blocks, samples) for _ in inputs[1:])
        self.out = GemConv(channels, len(task.targets))
        self.spacing: Tensor
        self.register_buffer("spacing", torch.tensor(float("nan")))
        self.prepare = PerMesh(surface)

    def forward(self, *, offsets: Tensor | None = None, gauge: Tensor | None = None, **fields: Tensor) -> dict[str, Tensor]:
        """The predicted fields by name; dense (B, n, ...) or packed with offsets.

        `gauge`, an angle per node, turns the frames in which the network works, and changes nothing but rounding and what
        the nonlinearity leaves of it.
        """
        turned = fields | {"gauge": torch.zeros_like(fields[self.place][..., 0]) if gauge is None else gauge}
        found = [self._one(sample) for sample in samples(turned, offsets)]
        join = torch.cat if offsets is not None else torch.stack
        return {name: join([one[name] for one in found]) for name in self.task.targets}

    def _one(self, fields: dict[str, Tensor]) -> dict[str, Tensor]:
        points, normals = array(fields[self.place]), array(fields[self.wall][..., :3])
        if self.spacing.isnan():
            self.spacing.fill_(spacing(points))
        mesh = self.prepare(points, normals, array(fields["gauge"]), spacing=float(self.spacing))
        weights = self.out.own.dtype
        phases = [Phases(scale, weights) for scale in mesh.scales]
        x = self._inputs(mesh, fields).to(weights)
        before = []
        for level, (phase, stage) in enumerate(zip(phases, self.down, strict=True)):
            x = stage(phase.pool(x) if level else x, phase)
            before.append(x)
        for level, stage in zip((1, 0), self.up, strict=True):
            x = stage(torch.cat([phases[level + 1].unpool(x), before[level]], 1), phases[level])
        return self._outputs(self.out(x, phases[0]), mesh.frames.to(x))

    def _inputs(self, mesh: SurfaceGraph, fields: dict[str, Tensor]) -> Float[Tensor, "n c o"]:
        shape = neighbourhood(mesh)
        scalars = [nn.functional.pad(fields[name].to(shape)[:, None], (0, SIZE - 1)) for name in self.scalars]
        return torch.cat([shape, *(x.unsqueeze(1) for x in scalars)], 1)

    def _outputs(self, x: Float[Tensor, "n c o"], frames: Tensor) -> dict[str, Tensor]:
        vectors = torch.einsum("nca,nax->ncx", x[..., [1, 2, 0]], frames)
        kinds = enumerate(self.task.targets.items())
        return {name: vectors[:, i] if kind == "vector" else x[:, i, 0] for i, (name, kind) in kinds}


class Phases:
    """The angles of a scale as factors, ready for convolutions and pooling."""

    def __init__(self, scale: Scale, dtype: torch.dtype):
        self.scale = scale
        ring = _rings(scale.distance) * scale.weight.unsqueeze(-1)
        back = torch.einsum("nkr,nko->nork", ring, _waves(scale.direction)).flatten(1, 2)
        # from the neighbour's frame to that of the edge: each wave of that angle in one matrix with the waves back
        aligned = _waves(scale.transport - scale.direction).transpose(1, 2).to(dtype)
        turned = (back.to(dtype).unsqueeze(1) * aligned.unsqueeze(2)).unbind(1)
        self.back = [turned[0].contiguous(), *(torch.cat(turned[2 * n - 1 : 2 * n + 1], 1) for n in range(1, ORDERS + 1))]
        self.descent, self.ascent = _waves(scale.descent).to(dtype), _waves(-scale.descent).to(dtype)

    def gather(self, x: Float[Tensor, "n c o"]) -> Float[Tensor, "n or o*c"]:
        """Neighbours' features in the frames of the edges, summed with the waves that turn them back and the rings."""
        found = [self.back[0] @ self._near(x[..., 0])]
        for n in range(1, ORDERS + 1):
            both = self.back[n] @ self._near(torch.cat([x[..., 2 * n - 1], x[..., 2 * n]], 1))
            (cosine, sine), width = both.chunk(2, 1), x.shape[1]
            found += [cosine[..., :width] - sine[..., width:], sine[..., :width] + cosine[..., width:]]
        return torch.cat(found, -1)

    def _near(self, x: Float[Tensor, "n f"]) -> Float[Tensor, "n k f"]:
        return x.index_select(0, self.scale.near.flatten()).unflatten(0, self.scale.near.shape)

    def pool(self, x: Float[Tensor, "n c o"]) -> Float[Tensor, "m c o"]:
        """The mean over each cluster of the finer scale, transported to its centre."""
        moved = turn(x, self.descent.unsqueeze(1)) * self.scale.share.to(x)[:, None, None]
        return x.new_zeros(len(self.scale.kept), *x.shape[1:]).index_add(0, self.scale.cluster, moved)

    def unpool(self, x: Float[Tensor, "m c o"]) -> Float[Tensor, "n c o"]:
        """Every node of the finer scale gets what its cluster's centre has, transported."""
        return turn(x[self.scale.cluster], self.ascent.unsqueeze(1))


class GemConv(nn.Module):
    """out_n = sum over neighbours of exp(i n direction) sum_m A_nm(distance) z_m in the edge's frame, and a map of z."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.outputs = outputs
        fan = RINGS * inputs * SIZE
        self.zero = nn.Parameter(torch.randn(fan, outputs) * sqrt(2 / fan))
        self.waves = nn.Parameter(torch.randn(ORDERS, fan, 2 * outputs) * sqrt(1 / fan))
        self.own = nn.Parameter(torch.randn(SIZE, inputs, outputs) * sqrt(1 / inputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Float[Tensor, "n c o"], phases: Phases) -> Float[Tensor, "n c o"]:
        """The features after the convolution."""
        seen = phases.gather(x).unflatten(1, (SIZE, RINGS)).flatten(2)  # node, wave, ring * order * channel
        found = [(seen[:, 0] @ self.zero + self.bias + x[..., 0] @ self.own[0]).unsqueeze(-1)]
        for n in range(1, ORDERS + 1):
            cosine, sine = (seen[:, 2 * n - 1 : 2 * n + 1] @ self.waves[n - 1]).unbind(1)
            (cu, cv), (su, sv) = cosine.split(self.outputs, -1), sine.split(self.outputs, -1)
            real, imaginary = x[..., 2 * n - 1], x[..., 2 * n]
            a, b = self.own[2 * n - 1], self.own[2 * n]
            found.append(torch.stack([cu - sv + real @ a - imaginary @ b, su + cv + real @ b + imaginary @ a], -1))
        return torch.cat(found, -1)


class MeshScale(nn.Module):
    """Residual blocks one after the other, all at one scale."""

    def __init__(self, inputs: int, outputs: int, blocks: int, samples: int):
        super().__init__()
        self.blocks = nn.ModuleList(Residual(outputs if i else inputs, outputs, samples) for i in range(blocks))

    def forward(self, x: Float[Tensor, "n c o"], phases: Phases) -> Float[Tensor, "n c o"]:
        """The features after all blocks."""
        for block in self.blocks:
            x = block(x, phases)
        return x


class Residual(nn.Module):
    """x + convolve(nonlinear(convolve(x))), then nonlinear; the shortcut is a map of its own where widths differ."""

    def __init__(self, inputs: int, outputs: int, samples: int):
        super().__init__()
        self.first, self.second = GemConv(inputs, outputs), GemConv(outputs, outputs)
        self.regular = RegularNonlinearity(samples), RegularNonlinearity(samples)
        self.short = nn.Parameter(torch.randn(inputs, outputs) / sqrt(inputs)) if inputs != outputs else None

    def forward(self, x: Float[Tensor, "n c o"], phases: Phases) -> Float[Tensor, "n c o"]:
        """The features after the block."""
        y = self.second(self.regular[0](self.first(x, phases)), phases)
        x = x if self.short is None else torch.einsum("nco,cd->ndo", x, self.short)
        return self.regular[1](x + y)


class RegularNonlinearity:
    """ReLU of the signal on the circle of directions that the orders make up, at `samples` directions, and back to orders.

    Commutes with turns by a sample exactly, and with any turn the better the more samples there are.
    """

    def __init__(self, samples: int):
        self.circle = _waves(2 * pi / samples * torch.arange(samples, dtype=torch.float64))
        norm = torch.tensor([1.0] + [2.0] * (SIZE - 1), dtype=torch.float64)
        self.analysis = self.circle * norm / samples

    def __call__(self, x: Float[Tensor, "n c o"]) -> Float[Tensor, "n c o"]:
        """Normalised over the values of each node, so that no gauge is preferred, then rectified."""
        signal = x @ self.circle.to(x).T
        centred = x.clone()
        mean = x[..., :1].mean(1, keepdim=True)
        centred[..., :1] = x[..., :1] - mean
        power = (centred.square() * centred.new_tensor([1.0] + [0.5] * (SIZE - 1))).sum(-1).mean(1)
        signal = (signal - mean) / (power + 1e-5).sqrt()[:, None, None]
        return torch.relu(signal) @ self.analysis.to(x)


def turn(x: Float[Tensor, "*n c o"], waves: Float[Tensor, "*n 1 o"]) -> Float[Tensor, "*n c o"]:
    """z_m -> exp(i m angle) z_m, with the waves of the angle: 1, cos, sin, cos 2, sin 2."""
    zero, *parts = x.unbind(-1)
    _, *factors = waves.unbind(-1)
    out = [zero]
    for n in range(ORDERS):
        (real, imaginary), (cosine, sine) = parts[2 * n : 2 * n + 2], factors[2 * n : 2 * n + 2]
        out += [cosine * real - sine * imaginary, sine * real + cosine * imaginary]
    return torch.stack(out, -1)


def neighbourhood(mesh: SurfaceGraph) -> Float[Tensor, "n c o"]:
    """The means of d d^T, n n^T and d n^T over the neighbours, split into the orders of turns about the normal."""
    weight = mesh.scales[0].weight
    pairs = ((mesh.offsets, mesh.offsets), (mesh.normals, mesh.normals), (mesh.offsets, mesh.normals))
    means = [torch.einsum("nk,nka,nkb->nab", weight, a, b) for a, b in pairs]
    zero, one, two = [], [], []
    for matrix, symmetric in zip(means, (True, True, False), strict=True):
        zero += [matrix[:, 0, 0] + matrix[:, 1, 1], matrix[:, 2, 2]]
        zero += [] if symmetric else [matrix[:, 0, 1] - matrix[:, 1, 0]]
        one += [matrix[:, :2, 2]] if symmetric else [matrix[:, :2, 2], matrix[:, 2, :2]]
        two.append(torch.stack([matrix[:, 0, 0] - matrix[:, 1, 1], matrix[:, 0, 1] + matrix[:, 1, 0]], -1))
    out = weight.new_zeros(len(weight), MATRICES, SIZE)
    out[:, :, 0] = torch.stack(zero, 1)
    out[:, : len(one), 1:3] = torch.stack(one, 1)
    out[:, : len(two), 3:5] = torch.stack(two, 1)
    return out


def _fields(task: Task) -> tuple[str, str, list[str]]:
    found = {kind: [name for name, own in task.inputs.items() if own == kind] for kind in ("point", "plane", "scalar")}
    if not (found["point"] and found["plane"] and task.dim == 3 and task.per == "token"):
        raise ValueError(f"model='gem_cnn' works on surfaces: a point and a plane at each token in 3D; the task has {task}")
    if not set(task.targets.values()) <= {"vector", "scalar"}:
        raise ValueError(f"model='gem_cnn' predicts vectors and scalars; the targets are {task.targets}")
    return found["point"][0], found["plane"][0], found["scalar"]


def _waves(angle: Tensor) -> Float[Tensor, "*n o"]:
    """1, cos, sin, cos 2, sin 2 of an angle."""
    waves = [torch.ones_like(angle)]
    for n in range(1, ORDERS + 1):
        waves += [(n * angle).cos(), (n * angle).sin()]
    return torch.stack(waves, -1)


def _rings(distance: Float[Tensor, "n k"]) -> Float[Tensor, "n k r"]:
    """The share of each ring at a distance in parts of the radius: linear between rings at equal steps from 0 to 1."""
    centres = torch.linspace(0, 1, RINGS, dtype=distance.dtype)
    return (1 - (distance.unsqueeze(-1) - centres).abs() * max(RINGS - 1, 1)).clamp(min=0)
