"""Say what is in a data file, propose kinds for its arrays, and warn about what will hurt training."""

import shlex
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from anygatr.lab.data.files.arrays import WHOLE, Arrays, Location, read_parts
from anygatr.lab.data.files.findings import GROWS, Finding, findings_of_arrays, findings_of_counts, findings_of_samples
from anygatr.lab.data.files.layout import with_offsets
from anygatr.lab.data.files.propose import ProposedField, propose
from anygatr.lab.data.files.view import ArrayView

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table


@dataclass(frozen=True)
class Inspection:
    """What is in a file; `print` it with rich, or take `inputs` and `targets` straight to `files.load`."""

    path: str
    samples: int
    tokens: tuple[int, int]
    """The smallest and the largest number of tokens in a sample."""
    dim: int
    splits: dict[str, int]
    fields: tuple[ProposedField, ...]
    findings: tuple[Finding, ...]

    @property
    def inputs(self) -> dict[str, str]:
        """Proposed inputs: name -> kind."""
        return {f.name: f.kind for f in self.fields if f.kind and not f.is_target}

    @property
    def targets(self) -> dict[str, str]:
        """Proposed targets: name -> kind."""
        return {f.name: f.kind for f in self.fields if f.kind and f.is_target}

    @property
    def command(self) -> str:
        """The options that declare the proposal on the command line."""
        inputs, targets = ([f"{n}:{k}" for n, k in side.items()] for side in (self.inputs, self.targets))
        pool = ["--pool", "sum"] if any(f.problem.startswith(GROWS) for f in self.findings) else []
        return shlex.join(["--data", self.path, "--inputs", *inputs, "--target", *(targets or ["NAME:KIND"]), *pool])

    def table(self) -> "Table":
        """The arrays as a rich table."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        low, high = self.tokens
        tokens = f"{low}" if low == high else f"{low} to {high}"
        splits = ", ".join(f"{name} {size}" for name, size in self.splits.items())
        title = f"{self.path}: {self.samples} samples of {tokens} tokens in {self.dim}D ({splits or 'no splits'})"
        table = Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        for column in ("array", "shape", "dtype", "range", "per", "proposed", "why"):
            table.add_column(column, overflow="fold")
        for f in self.fields:
            kind = f"{f.kind or '-'}{'?' * f.is_guess}{' (target)' if f.is_target else ''}"
            table.add_row(Text(f.name), str(f.shape), f.dtype, f"{f.low:.4g} to {f.high:.4g}", f.per, kind, Text(f.reason))
        return table

    def __rich__(self) -> "Group":
        from rich.console import Group
        from rich.text import Text

        lines = [Text(f"! {f.field}: {f.problem}; {f.remedy}", style="yellow") for f in self.findings]
        if guesses := [f.name for f in self.fields if f.is_guess]:
            lines.append(Text(f"? a guess, which you know better: {', '.join(guesses)}", style="yellow"))
        return Group(self.table(), *(lines or [Text("nothing to warn about", style="green")]))

    def to_json(self) -> dict[str, Any]:
        """The same as plain dictionaries and lists."""
        return asdict(self) | {"command": self.command}


def inspect(source: Location) -> Inspection:
    """Read a file (or a directory with one file per split) and describe it; nothing needs to be declared."""
    parts = {name: with_offsets(arrays) for name, arrays in read_parts(source).items()}
    views = {name: ArrayView.of(arrays) for name, arrays in parts.items()}
    first = next(iter(views.values()))
    if not first.arrays:
        raise ValueError(f"data={str(source)!r} holds no arrays of numbers; save some with np.savez(path, name=array)")
    dim, fields = propose(first)
    counts = np.concatenate([view.counts for view in views.values()])
    findings = [finding for split, view in views.items() for finding in findings_of_arrays(view, fields, split)]
    findings += [*findings_of_samples(views), *findings_of_counts(views, fields)]
    tokens = int(counts.min()), int(counts.max())
    return Inspection(str(source), len(counts), tokens, dim, _split_sizes(parts, views), tuple(fields), tuple(findings))


def _split_sizes(parts: dict[str, Arrays], views: dict[str, ArrayView]) -> dict[str, int]:
    if WHOLE not in parts:
        return {name: view.samples for name, view in views.items()}
    labels = parts[WHOLE].get("split", np.array([])).ravel().tolist()
    return {str(label): count for label, count in Counter(labels).items()}
