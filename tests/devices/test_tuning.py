"""Choosing tiles by time, with a clock that says what it is told."""

import pytest
import torch

from anygatr.execution import cache
from anygatr.execution.triton import backend

if backend._missing(True) is not None:
    pytest.skip("triton is not installed", allow_module_level=True)

from anygatr.execution.triton import tuning
from anygatr.execution.triton.tuning import TILES, best_tile, choose


class Clock:
    """Launches a tile and says how long it took."""

    def __init__(self, times, wrong=(), broken=()):
        self.times, self.wrong, self.broken = dict(zip(TILES, times, strict=True)), wrong, broken
        self.result, self.last, self.asked = torch.zeros(3), None, 0

    def launch(self, tile):
        if tile in self.broken:
            raise RuntimeError("out of resource: shared memory")
        self.last = tile
        self.result.fill_(2.0 if tile in self.wrong else 1.0)

    def __call__(self, run):
        run()
        self.asked += 1
        return self.times[self.last]

    def choose(self, key="key"):
        return choose(key, [self.result], self.launch, self)


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch, tmp_path):
    monkeypatch.setattr(tuning, "_chosen", {})
    monkeypatch.setattr(cache, "directory", lambda: tmp_path)


def test_the_fastest_tile_is_chosen_once_and_kept(tmp_path, monkeypatch):
    clock = Clock([3.0, 1.0, 2.0])
    assert clock.choose() == clock.choose() == TILES[1]
    assert clock.asked == len(TILES)
    tuning._chosen.clear()  # another process
    assert Clock([1.0, 3.0, 3.0]).choose() == TILES[1]
    assert Clock([1.0, 3.0, 3.0]).choose("another key") == TILES[0]
    for file in tmp_path.glob("tile-*"):
        file.write_text('{"tokens": 48, "warps": 3}')  # none of ours
    tuning._chosen.clear()
    assert Clock([2.0, 3.0, 1.0]).choose() == TILES[2]


def test_a_tile_must_be_right_possible_and_clearly_faster():
    assert Clock([3.0, 1.0, 2.0], wrong=TILES[1:2]).choose("wrong") == TILES[2]
    assert Clock([3.0, 1.0, 2.0], broken=TILES[1:2]).choose("broken") == TILES[2]
    assert Clock([3.0, 2.9, 2.95]).choose("close") == TILES[0]


def test_nothing_is_tried_on_the_interpreter():
    clock = Clock([3.0, 1.0, 2.0])
    assert best_tile(("key",), 10**6, [clock.result], clock.launch) == TILES[0]
    assert clock.last is None
