"""The user's own .npz and .h5 files as a Dataset: declared fields, dense or ragged, with splits given or made."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch

from anygatr.lab.data.categories import Vocabulary, category_vocabulary, to_codes
from anygatr.lab.data.dataset import Dataset, join_splits
from anygatr.lab.data.files.arrays import RESERVED, WHOLE, Arrays, Location, checked_offsets, read_parts
from anygatr.lab.data.files.checks import coincident_samples, require_finite
from anygatr.lab.data.files.layout import with_offsets
from anygatr.lab.data.kinds import base_kind, columns, declared_count, infer_dim, is_category, nearest
from anygatr.lab.data.splits import split_name
from anygatr.lab.system.memory import Budget

Per = Literal["token", "sample"]
FRACTIONS = {"val": 0.1, "eval": 0.1}


def load(
    source: Location,
    inputs: Mapping[str, str],
    targets: Mapping[str, str],
    *,
    dim: int | None = None,
    per: Per | None = None,
    fractions: Mapping[str, float] | None = FRACTIONS,
    seed: int = 0,
    vocabulary: Vocabulary | None = None,
) -> Dataset:
    """Read declared fields: name -> kind, as `parse_fields` gives them.

    source     a file, a directory with train.npz, val.npz, ..., or a mapping split -> file
    dim        dimension of space; by default the one in which all columns fit their kinds
    per        whether targets belong to tokens or samples; by default recognised by their shape
    fractions  splits the file does not give, cut from its training samples at random; None makes none
    vocabulary the classes of categories, name -> classes; by default those that occur in the file

    Arrays are (B, n, columns), or (B, n) for scalars and categories; (B, columns) and (B,) belong to samples; several
    channels of one kind are (B, n, channels, columns), or (B, n, channels) for scalars, and are fields of a kind such as
    vector*2 or scalar*14, their columns side by side. Categories are whole numbers or names.
    Ragged data are packed (N, columns) with `offsets` or `ptr` (B + 1,) or `batch` (N,), or padded with a boolean `mask`
    (B, n), or one .h5 group per sample. Inputs that belong to samples are given to each of their tokens.
    """
    _check_declaration(inputs, targets)
    kinds = dict(inputs) | dict(targets)
    parts = read_parts(source, only={*kinds, *RESERVED})
    budget = Budget()
    for split, arrays in parts.items():
        for name in kinds:
            if name not in arrays:
                known = set(read_parts(source)[split]) - set(RESERVED)
                raise ValueError(f"the field {name!r} is missing from data={str(source)!r}; {nearest(name, known)}")
            if not is_category(kinds[name]):
                _require_numbers(name, arrays[name])
            budget.take(f"data={str(source)!r}: the field {name!r} in float64", arrays[name].shape, 8)
    parts = {split: with_offsets(arrays) for split, arrays in parts.items()}
    classes = category_vocabulary(kinds, parts.values(), vocabulary or {})
    for arrays in parts.values():
        arrays |= {name: to_codes(name, arrays[name], known) for name, known in classes.items()}
    kinds |= {name: f"{kinds[name]}*{len(known)}" for name, known in classes.items()}
    if dim is None:
        first = next(iter(parts.values()))
        dim = infer_dim(kinds, {name: first[name].shape[-1] if first[name].ndim else 1 for name in kinds})
    given: dict[str, Dataset] = {}
    for split, arrays in parts.items():
        try:
            given[split] = _dataset(arrays, kinds, tuple(targets), dim, per)
        except ValueError as error:
            raise ValueError(f"data={str(source)!r}{'' if split == WHOLE else f', {split}'}: {error}") from error
    data = replace(join_splits(given), vocabulary=classes)
    splits = _labelled(parts[WHOLE], len(data)) if WHOLE in parts else data.splits
    if fractions is not None:
        splits = _complete(splits or {"train": torch.arange(len(data))}, fractions, seed)
    return replace(data, splits=splits)


def _check_declaration(inputs: Mapping[str, str], targets: Mapping[str, str]) -> None:
    if not inputs:
        raise ValueError("inputs is empty; declare at least one field, for example position:point")
    for name in (*inputs, *targets):
        if name in RESERVED:
            raise ValueError(f"the field name {name!r} is reserved for the layout of a file; rename the array")
    if coded := next((name for name, kind in targets.items() if is_category(kind)), None):
        raise ValueError(
            f"target={coded}:{targets[coded]} is a category, which can be an input only; predict scalars instead"
        )
    if both := set(inputs) & set(targets):
        raise ValueError(f"{sorted(both)} are both inputs and targets; save the target under a name of its own")


def _require_numbers(name: str, array: np.ndarray) -> None:
    if array.dtype.kind == "c":
        raise ValueError(f"the field {name!r} is complex; save its real and imaginary parts as two fields")
    if array.dtype.kind not in "fiub":
        raise ValueError(f"the field {name!r} holds {array.dtype}, not numbers; encode it as numbers")


def _dataset(arrays: Arrays, kinds: Mapping[str, str], targets: tuple[str, ...], dim: int, per: Per | None) -> Dataset:
    """One part of a file: find its layout, give every field its canonical shape, check the numbers."""
    layout = _Layout.of(arrays, {name: kind for name, kind in kinds.items() if name not in targets}, dim)
    fields: dict[str, torch.Tensor] = {}
    found: dict[str, str] = {}
    owners: dict[str, Per] = {}
    for name, kind in kinds.items():
        is_input = name not in targets
        owner = layout.owner(name, kind, arrays[name], dim, None if is_input else per)
        x, found[name] = layout.columns(arrays[name].astype(np.float64), owner, name, kind, dim)
        require_finite(name, x, layout.offsets)
        if is_input and kind == "point" and owner == "token":
            _warn_coincident(name, x, layout.offsets)
        fields[name] = torch.from_numpy(layout.to_tokens(x) if is_input and owner == "sample" else x)
        if not is_input:
            owners[name] = owner
    offsets = None if layout.offsets is None else torch.from_numpy(layout.offsets)
    belongs: Per = "sample" if "sample" in owners.values() else "token"
    mixed = tuple(name for name, owner in owners.items() if owner == "token") if belongs == "sample" else ()
    return Dataset(fields, found, tuple(owners), dim, belongs, offsets, token_targets=mixed)


def _warn_coincident(name: str, points: np.ndarray, offsets: np.ndarray | None) -> None:
    bad = coincident_samples(points, offsets)
    if len(bad):
        message = f"field {name!r}: {len(bad)} samples, the first is sample {bad[0]}, hold points that coincide"
        warnings.warn(message, stacklevel=4)


@dataclass(frozen=True)
class _Layout:
    """How many samples there are and where their tokens lie: the leading axes of the arrays."""

    samples: int
    lead: tuple[int, ...]
    """Leading axes of a token field: (B, n), or (N,) when packed."""
    offsets: np.ndarray | None

    @classmethod
    def of(cls, arrays: Arrays, inputs: Mapping[str, str], dim: int) -> "_Layout":
        if "offsets" in arrays:
            offsets = checked_offsets(arrays["offsets"])
            return cls(len(offsets) - 1, (int(offsets[-1]),), offsets)
        shapes = {name: arrays[name].shape for name in inputs}
        if empty := [name for name, shape in shapes.items() if not shape or not shape[0]]:
            raise ValueError(f"the field {empty[0]!r} has shape {shapes[empty[0]]} and holds no samples")
        wide = [shape[1] for shape in shapes.values() if len(shape) > 2]
        single = {name: columns(base_kind(kind), dim) == 1 for name, kind in inputs.items()}
        flat = [shape[1] for name, shape in shapes.items() if len(shape) == 2 and single[name]]
        only_flat = all(single.values())
        samples = next(iter(shapes.values()))[0]
        # without a field (B, n, columns) to tell n, fields (B, columns) describe samples of a single token
        return cls(samples, (samples, (wide or (flat if only_flat else []) or [1])[0]), None)

    def owner(self, name: str, kind: str, array: np.ndarray, dim: int, per: Per | None) -> Per:
        """Whether an array holds one object (or several channels of them) per token or per sample."""
        width = columns(base_kind(kind), dim)
        leads: dict[Per, tuple[int, ...]] = {"token": self.lead, "sample": (self.samples,)}
        for owner, lead in leads.items():
            rest = array.shape[len(lead) :]
            fits = rest[-1:] == (width,) and len(rest) <= 2 if width > 1 else rest in ((), (1,)) or _is_multi(kind, rest)
            fits = fits or (width > 1 and rest == (columns(kind, dim),))
            if per in (None, owner) and array.shape[: len(lead)] == lead and fits:
                return owner
        tail = (width,) if width > 1 else ()
        if (
            self.offsets is not None
            and len(array) != self.lead[0]
            and per != "sample"
            and array.shape[1:] in (tail, (width,))
        ):
            raise ValueError(
                f"offsets end at {self.lead[0]}, but the field {name!r} has {len(array)} rows; the last offset must be the "
                "number of tokens"
            )
        wanted = " or ".join(f"{lead + tail} per {owner}" for owner, lead in leads.items() if per in (None, owner))
        raise ValueError(f"the field {name!r} has shape {array.shape}, but a {kind} in {dim}D needs {wanted}")

    def columns(self, array: np.ndarray, owner: Per, name: str, kind: str, dim: int) -> tuple[np.ndarray, str]:
        """An array with its columns on the last axis unless there is only one, and its kind with the number of objects."""
        lead = self.lead if owner == "token" else (self.samples,)
        array = array.reshape(*lead, -1)
        if is_category(kind):
            return array[..., 0], kind
        width, declared = columns(base_kind(kind), dim), declared_count(kind)
        count = array.shape[-1] // width
        if declared not in (None, count):
            raise ValueError(f"the field {name!r} holds {count} of {base_kind(kind)}, but {name}:{kind} declares {declared}")
        return (array[..., 0] if array.shape[-1] == 1 else array), base_kind(kind) + (f"*{count}" if count > 1 else "")

    def to_tokens(self, x: np.ndarray) -> np.ndarray:
        """Give each token what belongs to its sample."""
        counts = self.lead[1] if self.offsets is None else np.diff(self.offsets)
        return np.repeat(x, counts, axis=0).reshape(*self.lead, *x.shape[1:])


def _is_multi(kind: str, rest: tuple[int, ...]) -> bool:
    """Only plain numbers come in any number of columns: (B, n, 5) scalars are five channels, five angles an error."""
    return base_kind(kind) in ("scalar", "pseudoscalar") and len(rest) == 1


def _labelled(arrays: Arrays, samples: int) -> dict[str, torch.Tensor]:
    """Splits from an array `split` (B,) of names, or of 0 train, 1 val, 2 eval."""
    if "split" not in arrays:
        return {}
    labels = arrays["split"]
    if labels.shape != (samples,):
        raise ValueError(f"split has shape {labels.shape}; give one label for each of the {samples} samples")
    numbered = dict(enumerate(("train", "val", "eval")))
    splits: dict[str, list[int]] = {}
    for i, label in enumerate(labels.tolist()):
        name = numbered.get(label) if isinstance(label, int) else split_name(str(label))
        if name is None:
            raise ValueError(f"split[{i}]={label!r} is unknown; use train, val, eval (or test), or 0, 1, 2")
        splits.setdefault(name, []).append(i)
    return {name: torch.tensor(indices) for name, indices in splits.items()}


def _complete(splits: dict[str, torch.Tensor], fractions: Mapping[str, float], seed: int) -> dict[str, torch.Tensor]:
    """Cut the splits that are missing from the training samples, at random."""
    if "train" not in splits:
        raise ValueError(f"the data have splits {sorted(splits)} but none called train; label the training samples")
    missing = {name: fraction for name, fraction in fractions.items() if name not in splits}
    train = splits["train"]
    sizes = {name: max(1, round(fraction * len(train))) for name, fraction in missing.items()}
    rest = len(train) - sum(sizes.values())
    if rest < 1:
        raise ValueError(f"{len(train)} samples are too few to cut off {sizes} for {sorted(sizes)}; bring more samples")
    if not missing:
        return splits
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))
    cut = train[order].split([rest, *sizes.values()])
    return splits | dict(zip(("train", *sizes), cut, strict=True))
