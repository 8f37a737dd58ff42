"""All equivariant linear and multilinear maps of an algebra under a group, as null spaces, grade block by grade block."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations, product

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from anygatr.equivariance.formulas import named_maps
from anygatr.equivariance.invariant_tensors import InvariantTensors, invariant_tensors, minors
from anygatr.equivariance.linalg import echelon
from anygatr.equivariance.symmetry import Symmetry

Block = tuple[int, ...]  # input grades, then the output grade
Progress = Callable[[int, int], None]

MAX_BLOCKS = 2_000_000
CHUNK = 32  # explicit tensors transformed at a time: bounds the memory of a block to little more than its result


@dataclass(frozen=True, eq=False)
class LinearBasis:
    """A basis of the equivariant linear maps, each from one grade to one grade and, where possible, with a formula.

    `tensor[m]` is the matrix of map m, y = W x; `names[m]` its formula; `grades[m]` its (in, out) grades; `residual` the
    largest entry of any commutator with a generator or mirror.
    """

    symmetry: Symmetry
    tensor: Float[Tensor, "m k k"]
    names: tuple[str, ...]
    grades: tuple[tuple[int, int], ...]
    residual: float

    def __len__(self) -> int:
        return len(self.names)

    @property
    def counts(self) -> dict[Block, int]:
        """How many maps each pair of grades (in, out) has."""
        return {pair: self.grades.count(pair) for pair in product(range(self.symmetry.algebra.n + 1), repeat=2)}

    @property
    def paper(self) -> "LinearBasis":
        """The maps the paper lists: grade projections and products with invariants, without joins."""
        kept = [m for m, name in enumerate(self.names) if " v " not in name and not name.startswith("map_")]
        names, grades = tuple(self.names[m] for m in kept), tuple(self.grades[m] for m in kept)
        return LinearBasis(self.symmetry, self.tensor[kept], names, grades, self.residual)

    def __str__(self) -> str:
        n = self.symmetry.algebra.n
        width = max(map(len, self.names), default=0)
        lines = [f"{len(self)} equivariant linear maps of {self.symmetry.algebra}, residual {self.residual:.1e}"]
        lines += [f"  {name:<{width}}   {i} -> {o}" for name, (i, o) in zip(self.names, self.grades, strict=True)]
        lines += ["by grade (rows in, columns out):"]
        lines += ["  " + " ".join(str(self.counts[i, o]) for o in range(n + 1)) for i in range(n + 1)]
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class MultilinearBasis:
    """The equivariant maps of `order` multivectors to one: counted at once, explicit block by block on demand."""

    symmetry: Symmetry
    order: int
    counts: dict[Block, int]

    def __len__(self) -> int:
        return sum(self.counts.values())

    @property
    def residual(self) -> float:
        """The largest defect |A^T A v| of any solution found for this symmetry so far."""
        return self._engine.residual

    def block(self, grades: Block) -> Float[Tensor, "n dim_o *dim_i"]:
        """The maps with input grades grades[:-1] and output grade grades[-1], output axis first."""
        alg, grades = self.symmetry.algebra, tuple(grades)
        if grades not in self.counts:
            raise ValueError(
                f"grades={grades!r} must be {self.order} input grades and one output grade of {alg}, each 0 to {alg.n}"
            )
        *inputs, out = grades
        slots = [out, *(alg.n - i for i in inputs)]
        order = sorted(range(len(slots)), key=slots.__getitem__)
        canonical = tuple(slots[s] for s in order)
        components = self._engine.solve(canonical, self.order % 2)
        frame = self._engine.expand(canonical, components).transpose(0, *(1 + np.argsort(order)))
        matrices = [self._read_out(out), *(self._read_in(i) for i in inputs)]
        result = np.empty((len(frame), *(len(m) for m in matrices)))
        for start in range(0, len(frame), CHUNK):
            part = frame[start : start + CHUNK]
            for s, matrix in enumerate(matrices):
                part = np.moveaxis(np.tensordot(part, matrix, ([s + 1], [1])), -1, s + 1)
            result[start : start + CHUNK] = part
        return torch.from_numpy(result)

    def blocks(self) -> Iterator[tuple[Block, Tensor]]:
        """Every non-empty block with its tensor."""
        for grades, count in self.counts.items():
            if count:
                yield grades, self.block(grades)

    @cached_property
    def tensor(self) -> Float[Tensor, "m k *k"]:
        """All maps as dense tensors, output axis first; only for small orders."""
        alg = self.symmetry.algebra
        size = 8.0 * len(self) * alg.dim ** (self.order + 1)
        if size > 2**31:
            raise ValueError(
                f"order={self.order}: all maps as dense tensors need {size / 2**30:.0f} GiB; use .block(grades)"
            )
        out = torch.zeros(len(self), *(alg.dim,) * (self.order + 1), dtype=torch.float64)
        start = 0
        for grades, tensor in self.blocks():
            window = (alg.slices[grades[-1]], *(alg.slices[i] for i in grades[:-1]))
            out[(slice(start, start + len(tensor)), *window)] = tensor
            start += len(tensor)
        return out

    def __str__(self) -> str:
        n = self.symmetry.algebra.n
        lines = [
            f"{len(self)} equivariant maps of {self.order} multivectors of {self.symmetry.algebra}",
            "by output grade:",
        ]
        lines += [f"  {o}: {sum(c for g, c in self.counts.items() if g[-1] == o)}" for o in range(n + 1)]
        return "\n".join(lines)

    @property
    def _engine(self) -> InvariantTensors:
        return invariant_tensors(self.symmetry)

    def _read_out(self, k: int) -> np.ndarray:
        """Coefficients in the frame's exterior power to components of the algebra, on grade k."""
        alg = self.symmetry.algebra
        subsets = list(combinations(range(alg.n), k))
        # the engine's frame, not ours: an equal symmetry built in another frame may have created it
        return minors(self._engine.symmetry.frame.vectors, self._engine.blades(k), subsets).T

    def _read_in(self, i: int) -> np.ndarray:
        """Coefficients of grade n - i to the dual of grade i: x -> the t with x ^ t = (t, x) pseudoscalar."""
        alg = self.symmetry.algebra
        undual = alg.undual(torch.eye(alg.dim, dtype=torch.float64)).T
        return undual[alg.slices[i], alg.slices[alg.n - i]].numpy() @ self._read_out(alg.n - i)


@lru_cache(maxsize=128)
def linear_maps(symmetry: Symmetry) -> LinearBasis:
    """A basis of all linear maps W with rho(g) W = W rho(g) for every g of the group."""
    alg = symmetry.algebra
    solved = multilinear_maps(symmetry, 1)
    constants = [(int(alg.grades[row.abs().argmax()]), row) for row in invariants(symmetry)]
    maps = []
    for (i, o), tensor in solved.blocks():
        rows = echelon(tensor.numpy().reshape(len(tensor), -1))
        maps.append(((i, o), torch.from_numpy(rows).reshape(tensor.shape)))
    names, matrices, grades = named_maps(symmetry, maps, constants)
    tensor = torch.stack(matrices) if matrices else torch.zeros(0, alg.dim, alg.dim, dtype=torch.float64)
    return LinearBasis(symmetry, tensor, tuple(names), tuple(grades), equivariance_defect(symmetry, tensor))


def multilinear_maps(symmetry: Symmetry, order: int = 2, progress: Progress | None = None) -> MultilinearBasis:
    """All maps phi of `order` multivectors with g phi(x, y, ...) = phi(g x, g y, ...) for every g of the group.

    `progress(done, total)` is called after each independent block.
    """
    if not isinstance(order, int) or order < 1:
        raise ValueError(f"order={order!r} must be an integer >= 1: the number of multivectors the map takes")
    n, engine = symmetry.algebra.n, invariant_tensors(symmetry)
    if (n + 1) ** (order + 1) > MAX_BLOCKS:
        raise ValueError(
            f"order={order} has {(n + 1) ** (order + 1):,} grade blocks in {symmetry.algebra}; use a lower order"
        )
    blocks = {g: tuple(sorted([*(n - i for i in g[:-1]), g[-1]])) for g in product(range(n + 1), repeat=order + 1)}
    canonical = sorted(set(blocks.values()))
    sizes = {}
    for done, grades in enumerate(canonical, 1):
        sizes[grades] = engine.count(grades, order % 2)
        if progress:
            progress(done, len(canonical))
    return MultilinearBasis(symmetry, order, {g: sizes[c] for g, c in blocks.items()})


@lru_cache(maxsize=128)
def invariants(symmetry: Symmetry) -> Float[Tensor, "m k"]:
    """A basis of the multivectors that no element of the group moves: 1, and e0 or infinity, and their like."""
    alg, engine = symmetry.algebra, invariant_tensors(symmetry)
    rows = []
    for k in range(alg.n + 1):
        read_out = MultilinearBasis(symmetry, 0, {})._read_out(k)
        found = engine.expand((k,), engine.solve((k,), 0)) @ read_out.T
        out = torch.zeros(len(found), alg.dim, dtype=torch.float64)
        out[:, alg.slices[k]] = torch.from_numpy(echelon(found))
        rows.append(out)
    return torch.cat(rows)


def equivariance_defect(symmetry: Symmetry, maps: Float[Tensor, "m k k"]) -> float:
    """The largest entry of any commutator of a map with a generator or a mirror."""
    alg = symmetry.algebra
    matrices = [alg.commutator(b) for b in symmetry.generators] + [alg.action(m) for m in symmetry.mirrors]
    return max((float((maps @ d - d @ maps).abs().max()) for d in matrices if len(maps)), default=0.0)
