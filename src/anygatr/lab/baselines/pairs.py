"""Pairs of bodies with a frame each, in which a kernel that commutes with rotations is sparse."""

import math
from dataclasses import dataclass
from functools import cache

import torch
from e3nn import o3
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anygatr.lab.baselines.bodies import Bodies

# axes: b samples, p pairs of all samples, m orders -l..l of a degree, e3nn's order: the polar axis is y


@dataclass(frozen=True, eq=False)
class Pairs:
    """The unordered pairs i < j of every sample. Edge 0 of a pair goes from j to i, edge 1 from i to j."""

    first: Int[Tensor, " pairs"]
    second: Int[Tensor, " pairs"]
    turns: tuple[Float[Tensor, "p m m"], ...]
    """For each degree the matrix that turns the direction x_i - x_j to the polar axis."""
    distance: Float[Tensor, " p"]
    invariants: Float[Tensor, "p 2"]
    """The product of the masses and the distance."""
    incoming: Int[Tensor, " edges"]
    """Where, among the 2 * pairs edges of a sample, those into body 0 are, then those into body 1, ..."""
    seen: Bool[Tensor, "b n n-1"]
    """Which of the incoming edges connect real bodies."""

    @classmethod
    def of(cls, bodies: Bodies, degree: int) -> "Pairs":
        """The pairs of a batch with matrices up to a degree."""
        n, device = bodies.count, bodies.place.device
        first, second = torch.triu_indices(n, n, offset=1, device=device)
        separation = (bodies.place[:, first] - bodies.place[:, second]).to(bodies.mass).flatten(0, 1)
        distance = separation.norm(dim=-1)
        products = (bodies.mass[:, first] * bodies.mass[:, second]).flatten()
        edge = torch.zeros(n, n, dtype=torch.long, device=device)
        count = torch.arange(len(first), device=device)
        edge[first, second], edge[second, first] = 2 * count, 2 * count + 1
        others = ~torch.eye(n, dtype=torch.bool, device=device)
        seen = bodies.real.unsqueeze(-1) & bodies.real.unsqueeze(-2)
        seen = seen[:, others].view(len(seen), n, n - 1)
        turns = turn_matrices(polar_frames(separation), degree)
        return cls(first, second, turns, distance, torch.stack([products, distance], -1), edge[others], seen)


def polar_frames(x: Float[Tensor, "p 3"]) -> Float[Tensor, "p 3 3"]:
    """Rotations R with R x = |x| (0, 1, 0)."""
    polar = torch.nn.functional.normalize(x, dim=-1)
    far = torch.nn.functional.one_hot(polar.abs().argmin(-1), 3).to(x)  # the axis least parallel to x
    across = torch.nn.functional.normalize(torch.linalg.cross(polar, far), dim=-1)
    return torch.stack([across, polar, torch.linalg.cross(across, polar)], -2)


def turn_matrices(rotation: Float[Tensor, "p 3 3"], degree: int) -> tuple[Float[Tensor, "p m m"], ...]:
    """Wigner's matrices D_0 ... D_degree of rotations: D_(l+1) is the part of D_1 x D_l of the highest degree."""
    found = [rotation.new_ones(*rotation.shape[:-2], 1, 1), rotation]
    for low in range(1, degree):
        project = highest_part(low).to(rotation)
        product = torch.einsum("pab,pcd->pacbd", rotation, found[-1]).flatten(1, 2).flatten(2)
        found.append(project.T @ product @ project)
    return tuple(found[: degree + 1])


@cache
def highest_part(low: int) -> Float[Tensor, "products m"]:
    """The isometry from degree low + 1 into the products of degrees 1 and low."""
    size = 2 * low + 3
    return math.sqrt(size) * o3.wigner_3j(1, low, low + 1, dtype=torch.float64).reshape(-1, size)


@cache
def polar_kernels(degree_out: int, degree_in: int) -> Float[Tensor, "m_coefficient frequency"]:
    """Coefficients of the kernels of all frequencies J, for a pair along the polar axis.

    K_J = sum_M Q_J[:, :, M] Y_J[M], where on the axis only Y_J[0] = sqrt((2J + 1) / 4 pi) remains. Such a kernel maps
    orders (m, -m) by [[a_m, b_m], [-b_m, a_m]]; rows are a_0, a_1, b_1, a_2, b_2, ...
    """
    frequencies = range(abs(degree_out - degree_in), degree_out + degree_in + 1)
    columns = []
    for j in frequencies:
        kernel = math.sqrt((2 * j + 1) / (4 * math.pi)) * o3.wigner_3j(degree_out, degree_in, j, dtype=torch.float64)[..., j]
        column = [kernel[degree_out, degree_in]]
        for m in range(1, min(degree_out, degree_in) + 1):
            column += [kernel[degree_out + m, degree_in + m], kernel[degree_out + m, degree_in - m]]
        columns.append(torch.stack(column))
    return torch.stack(columns, -1)
