"""Small data sets written by plain numpy, as a stranger would write them."""

from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation


def drift(path: Path, samples: int = 40, tokens: int = 4, seed: int = 0) -> Path:
    """Bodies that move on with their velocity: final = position + velocity."""
    rng = np.random.default_rng(seed)
    position, velocity = rng.normal(size=(2, samples, tokens, 3))
    np.savez(
        path, position=position, velocity=velocity, mass=rng.uniform(1, 2, (samples, tokens)), final=position + velocity
    )
    return path


DRIFT = {"inputs": ("position:point", "velocity:vector", "mass:scalar"), "target": ("final:point",)}


def poses(path: Path, samples: int = 600, seed: int = 1) -> Path:
    """A rigid body with six marks seen before and after a motion; the target is the motion, quaternion and translation."""
    rng = np.random.default_rng(seed)
    before = rng.normal(size=(samples, 6, 3))
    turn = Rotation.from_rotvec(rng.normal(scale=0.7, size=(samples, 3)))
    shift = rng.normal(size=(samples, 3))
    after = np.stack([turn[i].apply(before[i]) + shift[i] for i in range(samples)])
    np.savez(path, before=before, after=after, motion=np.concatenate([turn.as_quat(), shift], axis=1))
    return path


def charges(path: Path, samples: int = 2500, seed: int = 2) -> Path:
    """Four to seven charges with their electrostatic energy: ragged tokens, one energy and one count per sample."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(4, 8, samples)
    where = [rng.normal(size=(n, 3)) for n in counts]
    charge = [rng.choice([-1.0, 1.0], n) for n in counts]
    energy = []
    for x, q in zip(where, charge, strict=True):
        r = np.sqrt(((x[:, None] - x[None]) ** 2).sum(-1) + 0.25)
        energy.append(0.5 * ((q[:, None] * q[None] / r).sum() - (q**2 / 0.5).sum()))
    offsets = np.concatenate([[0], np.cumsum(counts)])
    tokens = {"place": np.concatenate(where), "charge": np.concatenate(charge), "offsets": offsets}
    np.savez(path, **tokens, energy=np.array(energy), number=counts.astype(float))
    return path


def planar(path: Path, samples: int = 300, seed: int = 3) -> Path:
    """Five magnets floating in the plane, pushed apart; the target is the force on each."""
    rng = np.random.default_rng(seed)
    xy = rng.normal(size=(samples, 5, 2)) + rng.normal(scale=10.0, size=(samples, 1, 2))
    strength = rng.uniform(0.5, 1.5, (samples, 5))
    d = xy[:, :, None] - xy[:, None]
    r2 = (d**2).sum(-1, keepdims=True) + 0.5
    force = (strength[:, :, None, None] * strength[:, None, :, None] * d / r2).sum(2)
    np.savez(path, xy=xy, strength=strength, force=force)
    return path
