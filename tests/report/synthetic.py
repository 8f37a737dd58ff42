"""A comparison as `anygatr compare` leaves it, made up: errors fall with the size, P hits a floor, seeds scatter."""

import json
from pathlib import Path

import numpy as np

MODELS = ("E", "P", "iP", "C", "transformer")
SIZES = (100, 1000, 3000)
SEEDS = (0, 1, 2)
TRIVIAL = 0.029
# error at 100 samples, exponent, floor, ms per step, MB, parameters, factor far away, factor with more objects
TRAITS = {
    "E": (0.012, 0.55, 4e-4, 21.0, 310.0, 41_000, 1.05, 1.6),
    "P": (0.021, 0.25, 6e-3, 38.0, 520.0, 83_000, 1.1, 1.4),
    "iP": (0.0075, 0.7, 2e-4, 47.0, 560.0, 91_000, 1.02, 1.5),
    "C": (0.007, 0.72, 2e-4, 74.0, 890.0, 166_000, 1.08, 1.45),
    "transformer": (0.026, 0.45, 3e-3, 6.0, 190.0, 52_000, 300.0, 5.0),
}


def write_comparison(
    directory: Path,
    models: tuple[str, ...] = MODELS,
    sizes: tuple[int, ...] = SIZES,
    seeds: tuple[int, ...] = SEEDS,
    dim: int = 3,
    target: str = "point",
    has_shift: bool = True,
    has_predictions: bool = True,
    **asked: object,
) -> Path:
    """A complete directory; `target` is the kind of the one target, and a scalar belongs to the whole sample."""
    (directory / "rows").mkdir(parents=True)
    per = "sample" if target == "scalar" else "token"
    data = {
        "name": "nbody",
        "description": "Gravitating bodies in 1 to 4 clusters; predict where they are after 100 steps.",
        "dim": dim,
        "tokens": 16,
        "fields": {"position": "point", "velocity": "vector", "mass": "scalar"},
        "targets": {"final": target},
        "per": per,
        "trivial_mse": TRIVIAL,
    }
    names = " ".join(models)
    experiment = {
        "version": 1,
        "command": f"anygatr compare --data nbody --models {names} --sizes {' '.join(map(str, sizes))} --seeds {len(seeds)}",
        "data": data,
        "models": list(models),
        "sizes": list(sizes),
        "seeds": list(seeds),
        "match": "steps",
        "preset": "laptop",
        "origin": "mean",
        "environment": {"torch": "2.13.0", "anygatr": "0.1.0", "threads": 1, "machine": "x86_64, 2 cores"},
        "preliminary": True,
    }
    (directory / "experiment.json").write_text(json.dumps(experiment | asked))
    for model in models:
        for size in sizes:
            for seed in seeds:
                write_row(directory, row(model, size, seed, has_shift))
    if has_predictions:
        write_predictions(directory, models, dim, target)
    return directory


def write_row(directory: Path, record: dict) -> None:
    name = f"{record['model']}-{record['size']}-{record['seed']}.json".replace("/", "_")
    (directory / "rows" / name).write_text(json.dumps(record))


def row(model: str, size: int, seed: int, has_shift: bool = True) -> dict:
    rng = np.random.default_rng([size, seed, sum(map(ord, model))])
    start, exponent, floor, pace, memory, parameters, far, more = TRAITS.get(model, TRAITS["transformer"])
    error = (start * (100 / size) ** exponent + floor) * np.exp(0.12 * rng.standard_normal())
    train = error * (0.25 + 0.6 * size / (size + 1000))
    metrics = {"train": _errors(train), "val": _errors(0.97 * error), "eval": _errors(error)}
    if has_shift:
        metrics |= {"e3_generalization": _errors(far * error), "object_generalization": _errors(more * error)}
    steps = 2000
    curve = [
        [
            int(s),
            float(v * train / error * np.exp(0.2 * rng.standard_normal())),
            float(v * np.exp(0.05 * rng.standard_normal())),
        ]
        for s in range(0, steps + 1, 100)
        for v in [error + (1.4 * TRIVIAL - error) * np.exp(-s / 350)]
    ]
    return {
        "model": model,
        "size": size,
        "seed": seed,
        "status": "ok",
        "error": None,
        "parameters": parameters,
        "steps": steps,
        "seconds": steps * pace / 1000,
        "milliseconds_per_step": pace * float(np.exp(0.03 * rng.standard_normal())),
        "milliseconds_inference_per_sample": pace / 200,
        "training_memory_mb": memory * float(np.exp(0.01 * rng.standard_normal())),
        "max_coefficient": {"C": 850.0, "transformer": None}.get(model, 32.0),
        "spikes": 7 if model == "C" and seed == 1 else 0,
        "nonfinite": False,
        "metrics": metrics,
        "curve": curve,
        "equivariance": (0.4 if model == "transformer" else 2e-6) * float(np.exp(0.2 * rng.standard_normal())),
        "config": {
            "model": model,
            "size": size,
            "seed": seed,
            "steps": steps,
            "batch": 64,
            "learning_rate": 3e-4,
            "precision": "float32",
            "width": {"mv": 8, "s": 16} if model != "transformer" else {"mv": 0, "s": 128},
        },
    }


def failed(model: str, size: int, seed: int, error: str, nonfinite: bool = False) -> dict:
    return row(model, size, seed) | {"status": "failed", "error": error, "nonfinite": nonfinite, "metrics": {}, "curve": []}


def write_predictions(directory: Path, models: tuple[str, ...], dim: int, target: str) -> None:
    (directory / "predictions").mkdir()
    rng = np.random.default_rng(7)
    samples, tokens = 6, 16
    clusters = rng.integers(1, 4, samples)
    centres = [3 * rng.standard_normal((n, dim))[rng.integers(0, n, tokens)] for n in clusters]
    position = (
        np.stack(centres) + 0.6 * rng.standard_normal((samples, tokens, dim)) + 20 * rng.standard_normal((samples, 1, dim))
    )
    velocity = 2.0 * rng.standard_normal((samples, tokens, dim))
    truths = {"point": position + 0.1 * velocity, "vector": velocity, "scalar": velocity.sum((1, 2))[:, None]}
    true = truths.get(target, np.concatenate([velocity, velocity], -1))
    for model in models:
        noise = TRAITS.get(model, TRAITS["transformer"])[2] ** 0.5
        prediction = true + noise * rng.standard_normal(true.shape)
        fields = {"position": position, "velocity": velocity, "mass": rng.random((samples, tokens))}
        stem = model.replace("/", "_")
        np.savez(
            directory / "predictions" / f"{stem}.npz", **fields, **{"target/final": true, "prediction/final": prediction}
        )


def _errors(mse: float) -> dict[str, float]:
    return {"mse": float(mse), "median": float(0.3 * mse), "trimmed": float(0.7 * mse)}
