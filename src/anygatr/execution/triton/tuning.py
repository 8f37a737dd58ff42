"""Tiles chosen by time: few candidates, tried once for a plan, widths, types and device, and kept on disk.

All of them compute the same. Nothing is tried on the interpreter, on few tokens, or while a CUDA graph is recorded.
"""

from collections.abc import Callable, Hashable, Sequence
from statistics import median
from typing import NamedTuple

import torch
from torch import Tensor

from anygatr.execution import cache
from anygatr.execution.triton.surroundings import platform


class Tile(NamedTuple):
    """Tokens of a program, and the warps that share them: always as many registers for each thread."""

    tokens: int
    warps: int


TILES = (Tile(32, 4), Tile(64, 8), Tile(16, 2))
"""The first is what runs where nothing is tried."""
ENOUGH = 1024  # tokens below which the time is that of a launch
REPEATS = 5
BETTER = 0.95  # of the time of the first tile, or the first stays
_chosen: dict[Hashable, Tile] = {}
"""What this process has chosen or recalled."""

Launch = Callable[[Tile], None]


def best_tile(key: tuple[Hashable, ...], tokens: int, results: Sequence[Tensor], launch: Launch) -> Tile:
    """The tile for what `launch` writes to `results`, which may be written again and again."""
    device = results[0].device
    if device.type != "cuda" or tokens < ENOUGH or torch.cuda.is_current_stream_capturing():
        return TILES[0]
    return choose((*key, platform(device)), results, launch, _milliseconds)


def choose(key: Hashable, results: Sequence[Tensor], launch: Launch, clock: Callable[[Callable[[], None]], float]) -> Tile:
    """The fastest tile that writes what the first one does: of this process, of an earlier one, or found now."""
    if key not in _chosen:
        _chosen[key] = _recalled(key) or _fastest(key, results, launch, clock)
    return _chosen[key]


def _recalled(key: Hashable) -> Tile | None:
    kept = cache.recall("tile", key)
    return None if kept is None else next((t for t in TILES if t._asdict() == kept), None)


def _fastest(key: Hashable, results: Sequence[Tensor], launch: Launch, clock: Callable[[Callable[[], None]], float]) -> Tile:
    launch(TILES[0])
    expected = [t.clone() for t in results]
    best, least = TILES[0], BETTER * clock(lambda: launch(TILES[0]))
    for tile in TILES[1:]:
        try:
            launch(tile)
            same = all(torch.allclose(a, b, rtol=1e-2, atol=1e-5) for a, b in zip(results, expected, strict=True))
            time = clock(lambda tile=tile: launch(tile)) if same else least  # type: ignore[misc]
        except Exception:  # a tile that a card cannot run is not the best one
            continue
        if time < least:
            best, least = tile, time
    cache.keep("tile", key, dict(best._asdict()))
    return best


def _milliseconds(launch: Callable[[], None]) -> float:
    """The median of some launches on the device."""
    times = []
    for _ in range(REPEATS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        launch()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return median(times)
