"""Dataset: named fields of samples in memory, what the n-body, artery and user's data all become."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Literal

import torch
from torch import Tensor

from anygatr.lab.data.kinds import nearest


@dataclass(frozen=True, eq=False)
class WholeSurface:
    """A surface as it is in its file, of which a sample has only some vertices."""

    points: Tensor
    """(N, 3), in the file's unit."""
    faces: Tensor
    """(M, 3)."""
    kept: Tensor
    """(n,): the vertex that each token of the sample is."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """B samples of tokens with named fields.

    Shapes: (B, n, columns) when every sample has n tokens, else packed (N, columns) with `offsets` (B + 1,): sample b
    owns the tokens offsets[b]:offsets[b + 1]. Scalars, having one column, drop the last axis. Targets of
    per="sample" are (B, columns). Numbers keep the float64 of the file; a trainer casts what it has normalised.
    """

    fields: dict[str, Tensor]
    """Inputs and targets by name."""
    kinds: dict[str, str]
    """The kind of each field: point, vector, scalar, ..., or several side by side: scalar*5."""
    targets: tuple[str, ...]
    """Which of the fields are to be predicted."""
    dim: int
    """Dimension of the space the fields live in."""
    per: Literal["token", "sample"] = "token"
    """Whether the targets belong to each token or to the whole sample."""
    offsets: Tensor | None = None
    """Where each sample's tokens begin, if their number varies."""
    splits: dict[str, Tensor] = field(default_factory=dict)
    """Sample indices of train, val, eval, ..."""
    scored: Tensor | None = None
    """The tokens that count for loss and metrics, (B, n) or (N,) of bool; all by default."""
    faces: tuple[Tensor, ...] | None = None
    """The triangles (m, 3) of each sample, where its tokens are the nodes of a surface."""
    surface: WholeSurface | None = None
    """Of a single sample that was read from a surface file, that surface."""
    reinsert: tuple[str, ...] = ()
    """Input fields that attention should see again in every block."""
    vocabulary: dict[str, tuple[str | int, ...]] = field(default_factory=dict)
    """The classes of each category in the order of their codes, where a file holds names or numbers of its own."""
    token_targets: tuple[str, ...] = ()
    """With per="sample", those of the targets that belong to tokens nevertheless, such as forces beside an energy."""

    def __len__(self) -> int:
        return len(next(iter(self.fields.values()))) if self.offsets is None else len(self.offsets) - 1

    def __str__(self) -> str:
        fields = ", ".join(f"{name}:{kind}" for name, kind in self.kinds.items())
        tokens = f"{int(self.counts.min())} to {int(self.counts.max())}" if self.offsets is not None else self.counts[0]
        splits = ", ".join(f"{name} {len(index)}" for name, index in self.splits.items()) or "none"
        return f"{len(self)} samples of {tokens} tokens in {self.dim}D: {fields}; splits: {splits}"

    @property
    def input_kinds(self) -> dict[str, str]:
        """Name -> kind of the inputs, as a model's constructor takes it."""
        return {name: kind for name, kind in self.kinds.items() if name not in self.targets}

    @property
    def target_kinds(self) -> dict[str, str]:
        """Name -> kind of the targets, as a model's constructor takes it."""
        return {name: self.kinds[name] for name in self.targets}

    @property
    def counts(self) -> Tensor:
        """Tokens in each sample, (B,)."""
        if self.offsets is not None:
            return self.offsets.diff()
        return torch.full((len(self),), self.fields[next(iter(self.input_kinds))].shape[1])

    def select(self, samples: Tensor) -> "Dataset":
        """These samples, in this order."""
        faces = None if self.faces is None else tuple(self.faces[i] for i in samples.tolist())
        if self.offsets is None:
            fields = {k: v[samples] for k, v in self.fields.items()}
            scored = None if self.scored is None else self.scored[samples]
            return replace(self, fields=fields, scored=scored, faces=faces, splits={})
        counts = self.counts[samples]
        offsets = _cumulate(counts)
        tokens = torch.arange(int(offsets[-1])) + (self.offsets[samples] - offsets[:-1]).repeat_interleave(counts)
        fields = {k: v[samples if self.is_per_sample(k) else tokens] for k, v in self.fields.items()}
        scored = None if self.scored is None else self.scored[tokens]
        return replace(self, fields=fields, offsets=offsets, scored=scored, faces=faces, splits={})

    def subset(self, size: int) -> "Dataset":
        """The first `size` samples."""
        if not 0 < size <= len(self):
            raise ValueError(f"size={size} must lie in 1..{len(self)}, the number of samples; ask for less or bring more")
        return self.select(torch.arange(size))

    def split(self, name: str) -> "Dataset":
        """One of the splits; dense if its samples all have the same number of tokens."""
        if name not in self.splits:
            raise ValueError(f"split={name!r} is not in this data set; {nearest(name, self.splits)}")
        return self.select(self.splits[name]).dense()

    def dense(self) -> "Dataset":
        """The same samples as (B, n, columns) if they all have n tokens, else unchanged."""
        if self.offsets is None or len(self.counts.unique()) != 1:
            return self
        shape = (len(self), int(self.counts[0]))
        fields = {k: v if self.is_per_sample(k) else v.unflatten(0, shape) for k, v in self.fields.items()}
        scored = None if self.scored is None else self.scored.unflatten(0, shape)
        return replace(self, fields=fields, offsets=None, scored=scored)

    def packed(self) -> "Dataset":
        """The same samples as packed tokens with offsets."""
        if self.offsets is not None:
            return self
        fields = {k: v if self.is_per_sample(k) else v.flatten(0, 1) for k, v in self.fields.items()}
        scored = None if self.scored is None else self.scored.flatten(0, 1)
        return replace(self, fields=fields, offsets=_cumulate(self.counts), scored=scored)

    def rename(self, names: Mapping[str, str]) -> "Dataset":
        """The same data with other field names; names not mentioned stay."""
        return replace(
            self,
            fields={names.get(k, k): v for k, v in self.fields.items()},
            kinds={names.get(k, k): v for k, v in self.kinds.items()},
            targets=tuple(names.get(k, k) for k in self.targets),
            token_targets=tuple(names.get(k, k) for k in self.token_targets),
        )

    def batch(self) -> dict[str, Tensor]:
        """All samples as one batch: the fields by name, `offsets` if their token counts vary, `scored` if not all count."""
        layout = {"offsets": self.offsets, "scored": self.scored}
        return self.fields | {name: x for name, x in layout.items() if x is not None}

    def batches(
        self, size: int, generator: torch.Generator | None = None, drop_last: bool = False
    ) -> Iterator[dict[str, Tensor]]:
        """One pass over all samples in batches; in random order if a generator is given."""
        if size <= 0:
            raise ValueError(f"size={size} must be positive")
        if drop_last and size > len(self):
            raise ValueError(f"size={size} exceeds the {len(self)} samples: with drop_last there is no batch; shrink it")
        order = torch.arange(len(self)) if generator is None else torch.randperm(len(self), generator=generator)
        for samples in order.split(size):
            if len(samples) == size or not drop_last:
                yield self.select(samples).batch()

    def is_per_sample(self, name: str) -> bool:
        """Whether a field has a row per sample."""
        return self.per == "sample" and name in self.targets and name not in self.token_targets

    def part(self, targets: Iterable[str]) -> "Dataset":
        """The same data with these of the targets alone, which all belong to tokens or all to samples."""
        kept, left = tuple(targets), [name for name in self.targets if name not in set(targets)]
        return replace(
            self,
            fields={name: x for name, x in self.fields.items() if name not in left},
            kinds={name: kind for name, kind in self.kinds.items() if name not in left},
            targets=kept,
            token_targets=(),
            per="token" if set(kept) <= set(self.token_targets) else self.per,
        )


def join_splits(parts: Mapping[str, Dataset]) -> Dataset:
    """One data set from a data set per split; packed if the splits differ in their number of tokens."""
    first = next(iter(parts.values()))
    for name, part in parts.items():
        if (part.kinds, part.targets, part.per, part.dim) != (first.kinds, first.targets, first.per, first.dim):
            raise ValueError(f"split {name!r} has other fields than {next(iter(parts))!r}: {part} against {first}")
    same = all(part.offsets is None for part in parts.values()) and len({int(p.counts[0]) for p in parts.values()}) == 1
    pieces = [part if same else part.packed() for part in parts.values()]
    ends = _cumulate(torch.tensor([len(piece) for piece in pieces])).tolist()
    return replace(
        first,
        fields={k: torch.cat([piece.fields[k] for piece in pieces]) for k in first.fields},
        offsets=None if same else _cumulate(torch.cat([piece.counts for piece in pieces])),
        splits={name: torch.arange(ends[i], ends[i + 1]) for i, name in enumerate(parts)},
    )


def fingerprint(data: Dataset) -> str:
    """A digest of every number of a data set: a run may be resumed only on the data it was started with."""
    digest = blake2b(digest_size=16)
    for name, x in sorted(data.fields.items()):
        digest.update(name.encode() + x.contiguous().numpy().tobytes())
    if data.scored is not None:
        digest.update(b"scored" + data.scored.contiguous().numpy().tobytes())
    return digest.hexdigest()


def _cumulate(counts: Tensor) -> Tensor:
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])
