"""What a network costs: parameters, FLOPs and activation memory per token, layer by layer, of the path that runs."""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from anygatr.execution import watching
from anygatr.networks.network_program import NAMES, Network, network_flops, network_program
from anygatr.program.program import Step


@dataclass(frozen=True)
class LayerCost:
    """One layer, or all equal layers of the blocks together. FLOPs and bytes are per token."""

    name: str
    kind: str
    count: int
    parameters: int
    flops: int
    bytes: int


@dataclass(frozen=True)
class Summary:
    """The rows, and their totals; printable. FLOPs (two per multiply-add) are those of a forward pass."""

    tokens: int
    rows: tuple[LayerCost, ...]

    @property
    def parameters(self) -> int:
        """Learned numbers."""
        return sum(row.parameters for row in self.rows)

    @property
    def flops(self) -> int:
        """FLOPs per token of a forward pass; attention's share grows with the number of tokens."""
        return sum(row.flops for row in self.rows)

    @property
    def bytes(self) -> int:
        """Bytes per token kept for the backward pass."""
        return sum(row.bytes for row in self.rows)

    def __str__(self) -> str:
        head = ("layer", "kind", "count", "parameters", "FLOPs/token", "bytes/token")
        body = [(r.name, r.kind, str(r.count), f"{r.parameters:,}", f"{r.flops:,}", f"{r.bytes:,}") for r in self.rows]
        last = ("total", f"{self.tokens} tokens", "", f"{self.parameters:,}", f"{self.flops:,}", f"{self.bytes:,}")
        widths = [max(len(line[i]) for line in (head, *body, last)) for i in range(len(head))]
        rule = "  ".join("-" * width for width in widths)
        return "\n".join([_line(head, widths), rule, *(_line(line, widths) for line in body), rule, _line(last, widths)])


def summary(net: nn.Module, tokens: int = 16) -> Summary:
    """Parameters, forward FLOPs and saved activations per token of a network, or of a module that contains one.

    FLOPs are counted on the network's program; activations are measured in a training step's forward pass over one sample
    of `tokens` tokens, on the backend that runs it.
    """
    if tokens < 1:
        raise ValueError(f"tokens={tokens!r} must be positive: the number of tokens in a sample")
    found = next(((n, m) for n, m in net.named_modules() if isinstance(m, Network)), None)
    if found is None:
        raise ValueError(f"net={type(net).__name__} contains none of {NAMES}; pass one, or a module with one")
    prefix, inner = f"{found[0]}." if found[0] else "", found[1]
    program, work, kept = network_program(inner), dict[str, int](), _saved_bytes(inner, tokens)
    for step, done in zip(program.steps, network_flops(inner, program, tokens), strict=True):
        if step.layer:
            work[step.layer] = work.get(step.layer, 0) + done
    groups: dict[str, list[tuple[str, nn.Module]]] = defaultdict(list)
    for name, module in net.named_modules():
        own = name.removeprefix(prefix)
        if list(module.parameters(recurse=False)) or work.get(own) or kept.get(own):
            groups[re.sub(r"\.\d+(?=\.|$)", ".*", name)].append((own, module))
    rows = []
    for name, members in groups.items():
        count = sum(p.numel() for _, m in members for p in m.parameters(recurse=False))
        done, saved = (sum(table.get(own, 0) for own, _ in members) for table in (work, kept))
        kind = type(members[0][1]).__name__
        rows.append(LayerCost(name or type(net).__name__, kind, len(members), count, done // tokens, saved // tokens))
    return Summary(tokens, tuple(rows))


def _saved_bytes(net: Network, tokens: int) -> dict[str, int]:
    """Bytes that are kept for the backward pass, each storage counted once, parameters not, by the layer that wrote it."""
    constants = {t.untyped_storage().data_ptr() for t in (*net.parameters(), *net.buffers())}
    writers: dict[int, str] = {}
    kept: dict[int, Tensor] = {}
    names = {module: name for name, module in net.named_modules()}

    def written(module: nn.Module, step: Step, values: Sequence[Tensor]) -> None:
        name = ".".join(part for part in (names[module], step.layer) if part)
        writers.update((t.untyped_storage().data_ptr(), name) for t in values)

    def keep(t: Tensor) -> Tensor:
        kept.setdefault(t.untyped_storage().data_ptr(), t)  # alive, or its address would be taken again
        return t

    with watching(written), torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        outputs = net(*net.example(tokens))
    saved: dict[str, int] = defaultdict(int)
    for address, t in kept.items():
        if address not in constants:
            saved[writers.get(address, "")] += t.untyped_storage().nbytes()
    del outputs
    return dict(saved)


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    words = [cell.ljust(w) if i < 2 else cell.rjust(w) for i, (cell, w) in enumerate(zip(cells, widths, strict=True))]
    return "  ".join(words).rstrip()
