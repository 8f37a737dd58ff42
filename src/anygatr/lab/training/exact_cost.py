"""What exact attention over the largest sample costs, said before anything starts."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from anygatr.lab.system.memory import free
from anygatr.lab.training.rehearsal import peak_bytes
from anygatr.networks.gatr import GATr
from anygatr.networks.network_program import network_flops, network_program

TOLD = 5_000
"""Tokens from which on the cost of exact attention is said before anything starts."""
SECONDS = 60.0
"""For one sample; if it takes longer, or more memory than is free, the ways that are linear in tokens are named."""
PROBE = 1_000
"""Tokens of the sample that is measured."""


@dataclass(frozen=True)
class ExactCost:
    """About what a network with exact attention takes for one sample of so many tokens, here and now."""

    tokens: int
    flops: float
    seconds: float
    bytes: float

    @property
    def is_much(self) -> bool:
        """Whether attention that is linear in tokens is worth a thought."""
        return self.seconds > SECONDS or self.bytes > free()

    def __str__(self) -> str:
        text = f"{self.tokens:,} tokens attend to each other: about {_duration(self.seconds)} and {self.bytes / 1e9:.2g} GB"
        return f"{text} ({self.flops:.2g} FLOPs) for each pass over such a sample" + REMEDY * self.is_much


REMEDY = "; --large anchors and --large pooled are linear in tokens"


def exact_cost(build: Callable[[], nn.Module], tokens: int, training: bool) -> ExactCost | None:
    """The cost of a sample, extrapolated from a small random one; None where it is small or attention is not exact.

    Time grows as the FLOPs do, memory with the tokens.
    """
    if tokens < TOLD:
        return None
    with torch.random.fork_rng(devices=[]):
        module = build()
    net = next((m for m in module.modules() if isinstance(m, GATr) and not m.anchors), None)
    if net is None:
        return None
    program = network_program(net)
    small, whole = (float(sum(network_flops(net, program, n))) for n in (PROBE, tokens))
    with torch.random.fork_rng(devices=[]):
        example = net.example(PROBE)

    def call() -> None:
        with torch.set_grad_enabled(training):
            loss = net(*example)[0].square().sum()
            if training:
                torch.autograd.grad(loss, [p for p in net.parameters() if p.requires_grad], allow_unused=True)

    call()  # builds what has to be built
    seconds, size = _seconds(call), peak_bytes(call)
    return ExactCost(tokens, (3 if training else 1) * whole, seconds * whole / small, size * tokens / PROBE)


def _seconds(call: Callable[[], None]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _duration(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 120 else f"{seconds / 60:.0f} min"
