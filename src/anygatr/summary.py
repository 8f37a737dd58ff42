"""What a network costs: parameters, FLOPs and activation memory per token, layer by layer."""

import re
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Row:
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
    rows: tuple[Row, ...]

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

    FLOPs are counted from the plans of the linear maps, products and attention; activations are measured in a forward pass
    over one sample of `tokens` tokens.
    """
    if tokens < 1:
        raise ValueError(f"tokens={tokens!r} must be positive: the number of tokens in a sample")
    inner = next((m for m in net.modules() if hasattr(m, "example")), None)
    if inner is None:
        raise ValueError(
            f"net={type(net).__name__} contains no GATr, ConditionalGATr or AxialGATr; pass one, or a module with one"
        )
    saved = _saved_bytes(inner, tokens)
    groups: dict[str, list[tuple[str, nn.Module]]] = defaultdict(list)
    for name, module in net.named_modules():
        if list(module.parameters(recurse=False)) or hasattr(module, "flops") or module in saved:
            groups[re.sub(r"\.\d+(?=\.|$)", ".*", name)].append((name, module))
    rows = []
    for name, members in groups.items():
        modules = [module for _, module in members]
        flops = sum(m.flops(tokens) for m in modules if hasattr(m, "flops"))  # type: ignore[operator]
        own = sum(p.numel() for m in modules for p in m.parameters(recurse=False))
        kept = sum(saved.get(m, 0) for m in modules) // tokens
        rows.append(Row(name or type(net).__name__, type(modules[0]).__name__, len(modules), own, flops, kept))
    return Summary(tokens, tuple(rows))


def _saved_bytes(net: nn.Module, tokens: int) -> dict[nn.Module, int]:
    """Bytes that each module's own operations keep for the backward pass, each storage counted once, parameters not."""
    known = {p.untyped_storage().data_ptr() for p in (*net.parameters(), *net.buffers())}
    stack: list[nn.Module] = [net]
    saved: dict[nn.Module, int] = defaultdict(int)
    alive: list[Tensor] = []  # a freed storage's address would be taken again

    def keep(t: Tensor) -> Tensor:
        storage = t.untyped_storage()
        if storage.data_ptr() not in known:
            known.add(storage.data_ptr())
            alive.append(t)
            saved[stack[-1]] += storage.nbytes()
        return t

    def enter(module: nn.Module, _: Any) -> None:
        stack.append(module)

    def leave(*_: Any) -> None:
        stack.pop()

    identity: Callable[[Tensor], Tensor] = lambda t: t  # noqa: E731
    with ExitStack() as hooks:
        for module in net.modules():
            if module is not net:
                hooks.callback(module.register_forward_pre_hook(enter).remove)
                hooks.callback(module.register_forward_hook(leave).remove)
        hooks.enter_context(torch.autograd.graph.saved_tensors_hooks(keep, identity))
        hooks.enter_context(torch.enable_grad())
        net(*net.example(tokens))  # type: ignore[operator]
    return dict(saved)


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    words = [cell.ljust(w) if i < 2 else cell.rjust(w) for i, (cell, w) in enumerate(zip(cells, widths, strict=True))]
    return "  ".join(words).rstrip()
