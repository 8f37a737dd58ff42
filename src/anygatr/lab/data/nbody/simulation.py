"""Simulate stars with planets under gravity: initial conditions, the integrator, and which samples are kept."""

# Inside the integrator the axes are (3, bodies, samples): every operation runs along the samples, so it is fast, and
# the bits of a sample do not depend on which others are computed with it.

import math
from collections.abc import Iterator

import numpy as np

from anygatr.lab.data.nbody.config import SPLITS, NBodyConfig

CHUNK = 3072
"""Samples in memory at a time: the more there are, the rarer the small, slow blocks of samples drawn again."""
BLOCK = 768
"""Samples that are integrated together: enough to hide the interpreter, few enough to stay in the cache."""
ATTEMPTS = 100
"""Draws of one sample before its parameters are called impossible."""

_Shapes = dict[str, tuple[int, ...]]


def samples(config: NBodyConfig, split: str, size: int) -> Iterator[tuple[dict[str, np.ndarray], dict[str, int]]]:
    """Samples 0..size of a set in chunks: the arrays by key, and how many draws were rejected for them."""
    streams = _Streams(config, split)
    shift = np.array([config.shift_of(split), 0.0, 0.0])
    for start in range(0, size, CHUNK):
        yield _accepted(config, streams, shift, np.arange(start, min(start + CHUNK, size)))


def integrate(m: np.ndarray, x: np.ndarray, v: np.ndarray, steps: int, dt: float, record: bool = False) -> np.ndarray:
    """Final positions (b, n, 3), or all of them (b, n, steps + 1, 3), by the semi-implicit Euler scheme.

    v += dt a(x);  x += dt v.  With close encounters the scheme and its step are part of what the target *is*.
    """
    blocks = [slice(start, start + BLOCK) for start in range(0, len(m), BLOCK)]
    return np.concatenate([_integrate_block(m[b], x[b], v[b], steps, dt, record) for b in blocks])


def acceleration(m: np.ndarray, x: np.ndarray) -> np.ndarray:
    """a_i = sum_j m_j (x_j - x_i) / |x_j - x_i|^3 for m (n, b) and x (3, n, b); coincident bodies do not act."""
    a = np.zeros_like(x)
    work = np.empty((2, *x.shape))  # fresh temporaries would take longer to map than to fill
    for step in range(1, len(m)):  # all pairs (i, i + step) at once, each pair once
        d = np.subtract(x[:, step:], x[:, :-step], out=work[0, :, step:])
        square = np.multiply(d, d, out=work[1, :, step:])
        r2 = square[0] + square[1] + square[2]
        r2[r2 < 1e-18] = 1.0
        d *= 1.0 / (r2 * np.sqrt(r2))
        a[:, :-step] += np.multiply(d, m[step:], out=square)
        a[:, step:] -= np.multiply(d, m[:-step], out=d)
    return a


def _integrate_block(m: np.ndarray, x: np.ndarray, v: np.ndarray, steps: int, dt: float, record: bool) -> np.ndarray:
    m, x, v = (np.array(a.T, order="C") for a in (m, x, v))
    path = [x.copy()] if record else []
    for _ in range(steps):
        v += dt * acceleration(m, x)
        x += dt * v
        if record:
            path.append(x.copy())
    return np.stack(path).transpose(3, 2, 0, 1) if record else np.ascontiguousarray(x.T)


def _accepted(
    config: NBodyConfig, streams: "_Streams", shift: np.ndarray, indices: np.ndarray
) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """Draw each sample until no body moves farther than allowed; every attempt has a random stream of its own."""
    chunk: dict[str, np.ndarray] = {}
    missing = np.arange(len(indices))
    rejected = 0
    for attempt in range(ATTEMPTS):
        drawn = _simulate(config, *streams.draw(indices[missing], attempt), shift)
        moved = np.linalg.norm(drawn["x_final"] - drawn["x_initial"], axis=-1).max(axis=1)
        kept = moved <= config.max_displacement  # False for NaN
        for key, value in drawn.items():
            chunk.setdefault(key, np.empty((len(indices), *value.shape[1:])))[missing[kept]] = value[kept]
        missing = missing[~kept]
        rejected += len(missing)
        if not len(missing):
            return chunk, {"rejected": rejected}
    raise ValueError(
        f"max_displacement={config.max_displacement} rejected {ATTEMPTS} draws of one sample; raise it, or "
        f"lower cluster_velocity_std={config.cluster_velocity_std} or steps={config.steps}"
    )


def _simulate(
    config: NBodyConfig, u: dict[str, np.ndarray], g: dict[str, np.ndarray], shift: np.ndarray
) -> dict[str, np.ndarray]:
    """Initial conditions from uniform numbers u and Gaussian numbers g, and where they lead."""
    cluster, is_star = _clusters(u["clusters"], u["member"], config.cluster_count)
    star_mass = _log_uniform(u["mass"], config.star_mass)
    mass = np.where(is_star, star_mass, _log_uniform(u["mass"], config.planet_mass))
    centre_mass = np.take_along_axis(star_mass, cluster, axis=1)  # the star of cluster k is body k

    inner, outer = config.radius
    r = np.sqrt(inner**2 + u["radius"] * (outer**2 - inner**2))
    phi = 2 * np.pi * u["angle"]
    speed = np.where(u["sense"] < 0.5, -1.0, 1.0) * np.sqrt(centre_mass / r)
    zero = np.zeros_like(r)
    x = np.stack([r * np.cos(phi), r * np.sin(phi), zero], axis=-1)
    v = np.stack([-speed * np.sin(phi), speed * np.cos(phi), zero], axis=-1) + config.velocity_noise * g["noise"]
    x[is_star], v[is_star] = 0.0, 0.0

    place_std, velocity_std = config.cluster_stds
    rows = np.arange(len(x))[:, None]
    rotation = _rotations(g["cluster_rotation"])[rows, cluster]
    x = _rotate(rotation, x) + place_std * g["cluster_place"][rows, cluster]
    v = _rotate(rotation, v) + velocity_std * g["cluster_velocity"][rows, cluster]

    order = np.argsort(u["order"], axis=1)
    rotation = _rotations(g["rotation"])[:, None]
    mass = mass[rows, order]
    x = _rotate(rotation, x[rows, order]) + config.shift_std * g["shift"][:, None] + shift
    v = _rotate(rotation, v[rows, order])
    path = integrate(mass, x, v, config.steps, config.dt, record=config.trajectories)
    if config.trajectories:
        return {"m": mass, "x_initial": x, "v_initial": v, "x_final": path[:, :, -1], "trajectories": path}
    return {"m": mass, "x_initial": x, "v_initial": v, "x_final": path}


def _clusters(number: np.ndarray, member: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """The cluster of each body (b, n), and whether it is its star.

    Of k clusters, bodies 0..k-1 are the stars, k..2k-1 a planet for each, the others join a cluster at random.
    """
    k = 1 + np.floor(most * number).astype(int)[:, None]
    body = np.arange(member.shape[1])
    cluster = np.where(body < 2 * k, body % k, np.floor(k * member).astype(int))
    return cluster, body < k


def _log_uniform(u: np.ndarray, bounds: tuple[float, float]) -> np.ndarray:
    low, high = np.log(bounds)
    return np.exp(low + u * (high - low))


def _rotations(g: np.ndarray) -> np.ndarray:
    """Rotations distributed uniformly (Haar) from four Gaussian numbers each: (..., 4) -> (..., 3, 3)."""
    x, y, z, w = np.moveaxis(g / np.linalg.norm(g, axis=-1, keepdims=True), -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def _rotate(rotation: np.ndarray, x: np.ndarray) -> np.ndarray:
    # a sum of products rather than matmul, whose rounding may depend on the size of the batch
    return sum(rotation[..., j] * x[..., j, None] for j in range(3))


class _Streams:
    """Random numbers of a set: one stream per (seed, set, sample, attempt), addressed by the counter of Philox.

    Re-keying one bit generator takes a third of the time that constructing one per sample takes.
    """

    def __init__(self, config: NBodyConfig, split: str) -> None:
        key = np.random.SeedSequence((config.seed, SPLITS.index(split))).generate_state(2, np.uint64)
        self._bits = np.random.Philox(key=key)
        self._generator = np.random.Generator(self._bits)
        self._fresh = self._bits.state
        n, k = config.bodies_of(split), config.cluster_count
        per_body = ("member", "mass", "radius", "angle", "sense", "order")
        self._uniform: _Shapes = {"clusters": ()} | dict.fromkeys(per_body, (n,))
        self._gaussian: _Shapes = {"noise": (n, 3), "rotation": (4,), "shift": (3,)} | {
            "cluster_rotation": (k, 4),
            "cluster_place": (k, 3),
            "cluster_velocity": (k, 3),
        }

    def draw(self, samples: np.ndarray, attempt: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """The uniform and the Gaussian numbers of these samples, by what they decide."""
        u = np.empty((len(samples), _total(self._uniform)))
        g = np.empty((len(samples), _total(self._gaussian)))
        for row, sample in enumerate(samples):
            self._fresh["state"]["counter"][:] = (0, attempt, sample, 0)
            self._bits.state = self._fresh
            self._generator.random(out=u[row])
            self._generator.standard_normal(out=g[row])
        return _named(u, self._uniform), _named(g, self._gaussian)


def _total(shapes: _Shapes) -> int:
    return sum(math.prod(shape) for shape in shapes.values())


def _named(numbers: np.ndarray, shapes: _Shapes) -> dict[str, np.ndarray]:
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()])
    pieces = np.split(numbers, ends[:-1], axis=1)
    return {key: x.reshape(len(x), *shape) for (key, shape), x in zip(shapes.items(), pieces, strict=True)}
