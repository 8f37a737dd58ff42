"""The generators of the peers' benchmarks by name: (config, set, size) -> chunks."""

from collections.abc import Callable, Iterator
from typing import Any

from anygatr.lab.data.made import Chunk
from anygatr.lab.data.peers.charged import charged_samples
from anygatr.lab.data.peers.functions import hull_samples, o3_samples, o5_samples

SAMPLES: dict[str, Callable[[Any, str, int], Iterator[Chunk]]] = {
    "o3": o3_samples,
    "o5": o5_samples,
    "hulls": hull_samples,
    "charged": charged_samples,
}
