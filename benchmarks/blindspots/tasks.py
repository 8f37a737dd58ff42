"""Tasks of one line with closed forms: what is given, what is asked, and the formula that answers.

A formula takes the fields by name, (samples, tokens, columns) each, and returns the target of each token or, for tasks of a
cloud, of each sample. Fields are normal deviates of unit size, as `spaces.kinds.draw` makes them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from scipy.spatial import ConvexHull
from torch import Tensor

from anygatr import geometry
from anygatr.spaces import kinds

Fields = Mapping[str, Tensor]


@dataclass(frozen=True)
class Task:
    """Named fields with their kinds, the kind of the target, and the formula."""

    inputs: dict[str, str]
    target: str
    formula: Callable[..., Tensor]
    per: str = "token"
    tokens: int = 1
    dims: tuple[int, ...] = (3,)
    prepare: Callable[[dict[str, Tensor]], dict[str, Tensor]] = dict
    """What is done to the drawn fields before they are given."""

    def draw(self, samples: int, dim: int, generator: torch.Generator) -> tuple[dict[str, Tensor], Tensor]:
        """Fields and targets of new samples, in float64."""
        space = geometry("E", dim)
        shape = (samples, self.tokens)
        drawn = {name: kinds.draw(space, kind, *shape, generator=generator) for name, kind in self.inputs.items()}
        fields = self.prepare(drawn)
        return fields, self.formula(**fields)

    def mirrored(self, fields: Fields, dim: int) -> dict[str, Tensor]:
        """The fields in a mirror."""
        return {name: _mirror(self.inputs[name], x, dim) for name, x in fields.items()}

    def mirrored_target(self, y: Tensor, dim: int) -> Tensor:
        """What a network that follows mirrors would say of the mirrored fields."""
        kind, _, count = self.target.partition("*")
        return y if count or kind == "scalar" else _mirror(kind, y, dim)


def _mirror(kind: str, x: Tensor, dim: int) -> Tensor:
    flip = torch.eye(dim, dtype=x.dtype)
    flip[0, 0] = -1
    space = geometry("E", dim)
    bare = kinds.columns(space, kind) == 1
    moved = kinds.move(space, kind, x.unsqueeze(-1) if bare and x.shape[-1] != 1 else x, flip, x.new_zeros(dim))
    return moved.reshape(x.shape)


def dot(a: Tensor, b: Tensor) -> Tensor:
    """<a, b> on the last axis."""
    return (a * b).sum(-1)


def unit(a: Tensor) -> Tensor:
    """A vector of length one."""
    return torch.nn.functional.normalize(a, dim=-1)


def det(*vectors: Tensor) -> Tensor:
    """The signed volume of the box that they span."""
    return torch.linalg.det(torch.stack(vectors, -1))


def area(a: Tensor, b: Tensor) -> Tensor:
    """Of the triangle that two vectors span, in any dimension."""
    return (dot(a, a) * dot(b, b) - dot(a, b) ** 2).clamp(min=0).sqrt() / 2


def centred(x: Tensor) -> Tensor:
    """Relative to the mean of each sample."""
    return x - x.mean(-2, keepdim=True)


def pairs(x: Tensor) -> Tensor:
    """All differences x_i - x_j."""
    return x.unsqueeze(-2) - x.unsqueeze(-3)


def others(x: Tensor) -> Tensor:
    """Distances to all tokens, infinite to itself."""
    return pairs(x).norm(dim=-1) + torch.diag(torch.full((x.shape[-2],), torch.inf, dtype=x.dtype))


def hull(x: Tensor) -> Tensor:
    """The volume of the convex hull of each sample."""
    return torch.tensor([ConvexHull(sample).volume for sample in x.numpy()], dtype=x.dtype)


def inertia(x: Tensor) -> Tensor:
    """The mean of (x - mean)(x - mean)^T."""
    return centred(x).mT @ centred(x) / x.shape[-2]


def quaternion(r: Tensor) -> Tensor:
    """(x, y, z, w), w >= 0, of rotation matrices, by the largest eigenvector of their quadratic form."""
    m = [[r[..., i, j] for j in range(3)] for i in range(3)]
    t = m[0][0] + m[1][1] + m[2][2]
    axis = [m[2][1] - m[1][2], m[0][2] - m[2][0], m[1][0] - m[0][1]]
    rows = [[m[i][j] + m[j][i] - (t if i == j else 0) for j in range(3)] + [axis[i]] for i in range(3)] + [[*axis, t]]
    k = torch.stack([torch.stack(row, -1) for row in rows], -2)
    q = torch.linalg.eigh(k).eigenvectors[..., -1]
    return q * torch.where(q[..., 3:] < 0, -1.0, 1.0)


def kabsch(a: Tensor, b: Tensor) -> Tensor:
    """The rotation that takes one centred cloud nearest to another."""
    u, _, v = torch.linalg.svd(centred(b).mT @ centred(a))
    sign = torch.ones_like(u[..., 0])
    sign[..., -1] = torch.linalg.det(u @ v)
    return (u * sign.unsqueeze(-2)) @ v


def turned(fields: dict[str, Tensor]) -> dict[str, Tensor]:
    """The second cloud becomes the first, turned and shifted by what was drawn for it."""
    a, b = fields["a"], fields["b"]
    turn = torch.linalg.qr(b[:, :3]).Q
    turn = turn * torch.linalg.det(turn)[:, None, None]
    return {"a": a, "b": a @ turn.mT + b[:, :1]}


def beta(n: Tensor, a: Tensor, c: Tensor) -> Tensor:
    """The carbon that completes N, CA and C to a tetrahedron of the natural hand, for any three points."""
    b, d = a - n, c - a
    return a - 0.58273431 * torch.linalg.cross(b, d) + 0.56802827 * b - 0.54067466 * d


def sign_of(x: Tensor) -> Tensor:
    """+1 or -1."""
    return torch.where(x < 0, -1.0, 1.0).to(x)


P, V, S = "point", "vector", "scalar"
TWO_OR_THREE = (2, 3)
ATOMS = {"x": P, "q": S}

TASKS: dict[str, Task] = {
    "length": Task({"v": V}, S, lambda v: v.norm(dim=-1), dims=TWO_OR_THREE),
    "inner product": Task({"u": V, "v": V}, S, lambda u, v: dot(u, v)),
    "angle": Task({"u": V, "v": V}, S, lambda u, v: dot(unit(u), unit(v)).clamp(-1, 1).acos()),
    "distance": Task({"a": P, "b": P}, S, lambda a, b: (a - b).norm(dim=-1), dims=TWO_OR_THREE),
    "midpoint": Task({"a": P, "b": P}, P, lambda a, b: (a + b) / 2),
    "area": Task({"a": P, "b": P, "c": P}, S, lambda a, b, c: area(b - a, c - a), dims=TWO_OR_THREE),
    "circumradius": Task(
        {"a": P, "b": P, "c": P},
        S,
        lambda a, b, c: ((a - b).norm(dim=-1) * (b - c).norm(dim=-1) * (c - a).norm(dim=-1) / area(b - a, c - a) / 4).log(),
    ),
    "signed area": Task({"u": V, "v": V}, "pseudoscalar", lambda u, v: det(u, v) / 2, dims=(2,)),
    "signed volume": Task({"a": P, "b": P, "c": P, "d": P}, "pseudoscalar", lambda a, b, c, d: det(b - a, c - a, d - a) / 6),
    "signed volume, scalar": Task({"a": P, "b": P, "c": P, "d": P}, S, lambda a, b, c, d: det(b - a, c - a, d - a) / 6),
    "chirality": Task(
        {"a": P, "b": P, "c": P, "d": P}, "pseudoscalar", lambda a, b, c, d: sign_of(det(b - a, c - a, d - a))
    ),
    "cross product": Task({"u": V, "v": V}, V, lambda u, v: torch.linalg.cross(u, v)),
    "normal of three points": Task({"a": P, "b": P, "c": P}, V, lambda a, b, c: unit(torch.linalg.cross(b - a, c - a))),
    "plane to point": Task({"plane": "plane", "x": P}, S, lambda plane, x: dot(unit(plane[..., :3]), x - plane[..., 3:])),
    "reflection in a plane": Task(
        {"plane": "plane", "x": P},
        P,
        lambda plane, x: x - 2 * dot(unit(plane[..., :3]), x - plane[..., 3:]).unsqueeze(-1) * unit(plane[..., :3]),
    ),
    "line to line": Task(
        {"a": "line", "b": "line"},
        S,
        lambda a, b: dot(unit(torch.linalg.cross(a[..., 3:], b[..., 3:])), a[..., :3] - b[..., :3]).abs(),
    ),
    "foot on a line": Task(
        {"line": "line", "x": P},
        P,
        lambda line, x: line[..., :3] + dot(x - line[..., :3], unit(line[..., 3:])).unsqueeze(-1) * unit(line[..., 3:]),
    ),
    "gap of spheres": Task(
        {"a": "sphere", "b": "sphere"}, S, lambda a, b: (a[..., :-1] - b[..., :-1]).norm(dim=-1) - a[..., -1] - b[..., -1]
    ),
    "carbon beta": Task({"n": P, "ca": P, "c": P}, P, lambda n, ca, c: beta(n, ca, c)),
    "displacement": Task({"x": P, "v": V}, V, lambda x, v: v - centred(x) / 2, tokens=8, dims=TWO_OR_THREE),
    "centroid of heavy tokens": Task(ATOMS, P, lambda x, q: (q.square() * x).sum(-2) / q.square().sum(-2), "sample", 8),
    "nearest neighbour": Task({"x": P}, S, lambda x: others(x).amin(-1), tokens=8, dims=TWO_OR_THREE),
    "pair energy": Task({"x": P}, S, lambda x: (-dot(pairs(x), pairs(x))).exp().mean((-1, -2)), "sample", 8, TWO_OR_THREE),
    "molecule": Task(
        ATOMS,
        S,
        lambda x, q: ((q * q.mT) / (1 + dot(pairs(x), pairs(x))).sqrt()).mean((-1, -2)),
        "sample",
        8,
    ),
    "forces": Task({"x": P}, V, lambda x: (pairs(x) * (-dot(pairs(x), pairs(x))).exp().unsqueeze(-1)).mean(-2), tokens=8),
    "kinetic energy": Task({"v": V, "m": S}, S, lambda v, m: (m.squeeze(-1) * dot(v, v) / 2).mean(-1), "sample", 8),
    "angular momentum": Task({"x": P, "v": V}, V, lambda x, v: torch.linalg.cross(centred(x), v).mean(-2), "sample", 8),
    "gyration radius": Task({"x": P}, S, lambda x: dot(centred(x), centred(x)).mean(-1).sqrt(), "sample", 8, dims=(2, 3, 5)),
    "count inside": Task({"x": P}, S, lambda x: (centred(x).norm(dim=-1) < 1.5).double().mean(-1), "sample", 8),
    "inertia spectrum": Task({"x": P}, "scalar*3", lambda x: torch.linalg.eigvalsh(inertia(x)), "sample", 8),
    "rotation between clouds": Task(
        {"a": P, "b": P}, "rotation", lambda a, b: quaternion(kabsch(a, b)), "sample", 8, prepare=turned
    ),
    "hull volume": Task({"x": P}, S, hull, "sample", 16, dims=(3, 5)),
}
