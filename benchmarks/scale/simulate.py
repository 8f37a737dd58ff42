"""What a training step would take on up to 1 000 GPUs, simulated: `python -m benchmarks.scale.simulate`.

A step is computing, then exchanging: three times the FLOPs of a forward pass at half the peak float32 rate of an A100, as in
`benchmarks.gpu.cost_model`, but at least one launch time for each of 100 launches in a block; then the sum of gradients over
all GPUs, which does not overlap. A mesh that is one sample on many GPUs also gathers keys and values of every block, twice
in a step, and sums their gradients once. Nothing here was timed on a GPU or a network.
"""

from dataclasses import dataclass
from math import ceil, log2

from anygatr import GATr, Width, geometry
from anygatr.networks.network_program import network_program
from anygatr.ops.attention import Attention
from anygatr.program.cost import flops
from benchmarks.gpu.cost_model import CARDS, OURS
from benchmarks.speed.networks.contestants import CONFIGURATIONS, Configuration

GPUS = (1, 8, 64, 256, 1000)
LAUNCHES = 100  # of a block's training step, Triton backend
PASSES = 3  # a backward pass computes twice what a forward pass does
NUMBER = 4  # bytes in float32


@dataclass(frozen=True)
class Network:
    """8 GPUs in a machine, one 200 Gb/s port for each GPU between machines."""

    machine: int = 8
    inside: float = 300e9  # bytes per second and GPU
    between: float = 25e9
    latency: float = 1e-5  # seconds per message

    def rate(self, gpus: int) -> float:
        """The slowest link of a ring."""
        return self.inside if gpus <= self.machine else self.between

    def sum(self, size: float, gpus: int) -> float:
        """Seconds of an all-reduce: each GPU sends and receives its tensor twice, in a tree of messages."""
        return 0.0 if gpus == 1 else 2 * (gpus - 1) / gpus * size / self.rate(gpus) + 2 * ceil(log2(gpus)) * self.latency

    def gather(self, size: float, gpus: int) -> float:
        """Seconds of an all-gather, or of a reduce-scatter, of a tensor of this size in all."""
        return 0.0 if gpus == 1 else (gpus - 1) / gpus * size / self.rate(gpus) + ceil(log2(gpus)) * self.latency


@dataclass(frozen=True)
class Step:
    """Seconds of computing and exchanging, and bytes that a GPU sends."""

    computing: float
    exchanging: float
    sent: float

    @property
    def seconds(self) -> float:
        """One after the other."""
        return self.computing + self.exchanging


def network_of(size: Configuration, preset: str = "iP") -> GATr:
    """Its weights are random; they are only counted."""
    return GATr(geometry(preset), Width(2, 2), Width(size.mv, size.s), Width(1, 0), blocks=size.blocks, heads=size.heads)


def step(size: Configuration, gpus: int, sharded: bool = False, link: Network = Network()) -> Step:  # noqa: B008  frozen
    """A step in which each GPU has a batch of its own or, sharded, its part of the tokens of one."""
    net = network_of(size)
    program = network_program(net)
    work = PASSES * size.batch * size.tokens * sum(flops(program, one, size.tokens) for one in program.steps)
    work = work / gpus if sharded else work
    computing = max(work / (CARDS[0].float32 * OURS), size.blocks * LAUNCHES * CARDS[0].launch)
    weights = NUMBER * sum(p.numel() for p in net.parameters())
    exchanging, sent = link.sum(weights, gpus), 2 * (gpus - 1) / gpus * weights
    if sharded:
        rows = sum(key_numbers(one.op) for one in program.steps if isinstance(one.op, Attention))
        gathered = NUMBER * size.batch * size.tokens * rows
        exchanging += PASSES * link.gather(gathered, gpus)
        sent += PASSES * (gpus - 1) / gpus * gathered
    return Step(computing, exchanging, sent)


def key_numbers(op: Attention) -> int:
    """Numbers of a token's keys and values in one block."""
    return op.key_heads * (op.compared + len(op.mixed) * op.head[0] + op.head[1])


def main() -> None:
    """Print the table."""
    print("| configuration | GPUs | computing, ms | exchange, ms | sent by each GPU, MB | efficiency |")
    print("|---|---|---|---|---|---|")
    mesh = Configuration(1, 10_000_000, 10, 8, 32, 4)
    cases = [(f"{name}, a batch on each", size, False) for name, size in CONFIGURATIONS.items()]
    for name, size, sharded in [*cases, ("10 000 000 nodes, one sample on all", mesh, True)]:
        alone = step(size, 1, sharded).seconds
        for gpus in GPUS:
            found = step(size, gpus, sharded)
            efficiency = alone / found.seconds / (gpus if sharded else 1)
            times = f"{1e3 * found.computing:,.1f} | {1e3 * found.exchanging:,.2f}"
            print(f"| {name} | {gpus} | {times} | {found.sent / 1e6:,.0f} | {efficiency:.0%} |")


if __name__ == "__main__":
    main()
