"""What a block's training step would take on a GPU, predicted from its launches: `python -m benchmarks.gpu.cost_model`.

A launch takes as long as its slowest part: being launched, moving the bytes of its operands once, or computing. No GPU has
been timed; the assumptions are the two tables below, and a prediction is no better than they are.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from benchmarks.gpu.launches import Launch, block_step, peer_step


@dataclass(frozen=True)
class Card:
    """What a card's data sheet says, and what a launch costs from eager PyTorch."""

    name: str
    launch: float  # seconds
    bandwidth: float  # bytes per second
    float32: float  # FLOP per second without tensor cores
    bfloat16: float  # FLOP per second with tensor cores
    cached: float  # numbers per second from first-level caches: 32 a clock on each of its processors


CARDS = (
    Card("A100 80 GB", 4e-6, 1.5e12, 19.5e12, 312e12, 108 * 32 * 1.41e9),
    Card("H100 SXM", 4e-6, 3.35e12, 67e12, 989e12, 132 * 32 * 1.83e9),
)
OURS = 0.5
"""The share of the peak rate that our kernels reach."""
TORCHS = (1.0, 0.5)
"""The same of torch's: all of it, as in the figures of official GATr, or half, which we had assumed at first."""
OFFICIAL = {"a": (608, 2.79e-3), "c": (608, 15.1e-3)}
"""Launches and, by the same model with all rates at their peak, seconds of official GATr 1.4.3 on an A100."""


def seconds(launches: Iterable[Launch], card: Card, short: bool = False, torchs: float = TORCHS[0]) -> float:
    """The sum over launches."""
    rate = card.bfloat16 if short else card.float32
    total = 0.0
    for name, moved, flops, cached in launches:
        reached = OURS if name.startswith("triton") else torchs
        total += max(card.launch, moved / card.bandwidth, flops / (rate * reached), cached / (card.cached * reached))
    return total


def main() -> None:
    """Print the predictions, and ratios to official GATr on the card for which there are figures of it."""
    cards = " | ".join(f"{card.name}, ms" for card in CARDS)
    print(f"| configuration | network | launches | {cards} | / official GATr, A100 | torch's kernels at half the rate |")
    print("|---|---|---|---|---|---|---|")
    for size in "ac":
        rows: list[tuple[str, list[Launch], bool]] = []
        for preset in ("iP", "C"):
            rows += [(f"{preset}, {b}", block_step(preset, size, b).made, False) for b in ("torch", "triton")]
            rows.append((f"{preset}, triton, bf16", block_step(preset, size, "triton", torch.bfloat16).made, True))
        rows += [(peer, peer_step(peer, size), False) for peer in ("lgatr", "transformer")]
        for name, made, short in rows:
            times = [seconds(made, card, short) for card in CARDS]
            cells = " | ".join(f"{1e3 * t:.2f}" for t in times)
            ratios = (seconds(made, CARDS[0], short, torchs) / OFFICIAL[size][1] for torchs in TORCHS)
            print(
                f"| {size} | {name} | {len(made)} | {cells} | " + " | ".join(f"{r:.2f}" for r in ratios) + " |", flush=True
            )
        print(f"| {size} | official GATr 1.4.3 | {OFFICIAL[size][0]} | {1e3 * OFFICIAL[size][1]:.2f} | | 1 | |")


if __name__ == "__main__":
    main()
