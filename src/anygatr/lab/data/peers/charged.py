"""Five charged particles, as EGNN's generator simulates them: positions a thousand steps after a snapshot."""

# axes of the simulation: (3, particles, samples); every operation runs along the samples

from collections.abc import Iterator

import numpy as np

from anygatr.lab.data.made import Chunk
from anygatr.lab.data.peers.config import ChargedConfig

PARTICLES = 5
SPEED = 0.5
DT = 1e-3
LARGEST_FORCE = 100.0
BOX = 5.0
"""Where initial positions are reflected; particles leave it freely afterwards."""
SNAPSHOT, TARGET = 3_100, 4_100
"""Steps after which the original stores its frames 30 and 40."""
FRAMES = 49
"""Frames of the original, for each of which it draws noise of variance zero for positions and velocities."""
CHUNK = 200
"""Samples that are simulated together: few enough to stay in the cache."""


def charged_samples(config: ChargedConfig, split: str, size: int) -> Iterator[Chunk]:
    """Charges, positions and velocities at the snapshot, with the positions that follow."""
    charge, x, v = _drawn(config, split, size)
    for start in range(0, size, CHUNK):
        part = slice(start, start + CHUNK)
        (x0, v0), (x1, _) = simulate(charge[part].T, x[part].transpose(1, 2, 0), v[part].transpose(1, 2, 0))
        places = {"position": x0, "velocity": v0, "final": x1}
        yield {"charge": charge[part]} | {name: rows.transpose(2, 1, 0) for name, rows in places.items()}, {}


def simulate(charge: np.ndarray, x: np.ndarray, v: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """(x, v) at the snapshot and at the target, from charges (particles, samples) and x, v at the start.

    Kick, then drift, kick, drift: what is stored after a drift has the velocity of the kick before it.
    """
    charges = charge[:, None] * charge[None]
    x, v, stored = x.copy(), v + DT * forces(x, charges), []
    for step in range(1, TARGET + 1):
        x += DT * v
        if step in (SNAPSHOT, TARGET):
            stored.append((x.copy(), v.copy()))
        v += DT * forces(x, charges)
    return stored


def forces(x: np.ndarray, charges: np.ndarray) -> np.ndarray:
    """F_i = sum_j q_i q_j (x_i - x_j) / |x_i - x_j|^3, each component within the largest force."""
    difference = x[:, :, None] - x[:, None]
    square = (difference * difference).sum(0)
    itself = np.arange(PARTICLES)
    square[itself, itself] = 1.0  # its difference is 0, so is its force
    total = (difference * (charges / (square * np.sqrt(square)))).sum(2)
    return np.clip(total, -LARGEST_FORCE, LARGEST_FORCE)


def _drawn(config: ChargedConfig, split: str, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Charges, positions and velocities at the start of the first samples of a set, from the original's random stream."""
    random = np.random.RandomState(config.seed)  # the original's legacy stream
    charge, x, v = np.empty((size, PARTICLES)), np.empty((size, 3, PARTICLES)), np.empty((size, 3, PARTICLES))
    for name, drawn in config.drawn.items():
        for i in range(size if name == split else drawn):
            sample = _start(random)
            if name == split:
                charge[i], x[i], v[i] = sample
        if name == split:
            break
    return charge, x, v


def _start(random: np.random.RandomState) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    charge = random.choice([1.0, 0.0, -1.0], size=(PARTICLES, 1), p=[0.5, 0.0, 0.5])[:, 0]
    x, v = random.randn(3, PARTICLES), random.randn(3, PARTICLES)
    v *= SPEED / np.linalg.norm(v, axis=0)
    random.randn(2, FRAMES, 3, PARTICLES)
    outside = np.abs(x) > BOX
    v = np.where(outside, -np.sign(x) * np.abs(v), v)
    x = np.where(outside, np.sign(x) * 2 * BOX - x, x)
    return charge, x, v
