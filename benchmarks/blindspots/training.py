"""Train one geometry on one task for a bounded number of steps, on new samples in every step."""

import time
from dataclasses import dataclass, replace
from math import cos, pi
from typing import Any

import torch
from torch import Tensor

from anygatr import geometry, model
from benchmarks.blindspots.tasks import Task


@dataclass(frozen=True)
class Budget:
    """The same for every cell."""

    steps: int = 1000
    batch: int = 64
    lr: float = 3e-3
    mv: int = 8
    s: int = 32
    blocks: int = 2
    heads: int = 4
    tested: int = 512


def cell(task: Task, name: str, dim: int, mirrors: bool, budget: Budget, seed: int = 0, **options: Any) -> dict[str, Any]:
    """The mean squared error on new samples over the variance of the target, and what was spent; or why it was refused."""
    geo, began = geometry(name, dim, mirrors), time.process_time()
    torch.manual_seed(seed)
    try:
        net = model(
            geo,
            task.inputs,
            {"y": task.target},
            (budget.mv, budget.s),
            budget.blocks,
            budget.heads,
            per=task.per,
            **{"unit": None} | options,
        )
    except ValueError as reason:
        return {"refused": str(reason)}
    rng, test = torch.Generator().manual_seed(seed + 1), torch.Generator().manual_seed(10_000)
    fields, y = task.draw(budget.tested, dim, test)
    centre, scale = _units(task, y)
    optimiser = torch.optim.Adam(net.parameters(), lr=budget.lr)
    for step in range(budget.steps):
        for group in optimiser.param_groups:
            group["lr"] = budget.lr * (0.01 + 0.99 * (1 + cos(pi * step / budget.steps)) / 2)
        given, wanted = task.draw(budget.batch, dim, rng)
        loss = (_said(net, given) - (wanted - centre).float() / scale).square().mean()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimiser.step()
    with torch.no_grad():
        error = (_said(net, fields) * scale + centre - y).square().mean()
    spent = {"steps": budget.steps, "seconds": round(time.process_time() - began, 1), "seed": seed}
    variance = float((y - y.mean(0)).square().mean())
    return {"error": float(f"{float(error) / variance:.4g}"), "variance": float(f"{variance:.4g}")} | spent


def follows_mirrors(task: Task, name: str, dim: int, mirrors: bool) -> bool:
    """Whether a network with random weights gives the mirrored prediction for the mirrored data of this task.

    Almost all weights agree on it. Three points lie in a plane, which is a mirror: of those also iP follows.
    """
    torch.manual_seed(0)
    geo = replace(geometry(name, dim, mirrors), init="kaiming")
    net = model(geo, task.inputs, {"y": task.target}, (8, 8), 4, 2, per=task.per, unit=None).double()
    fields, _ = task.draw(32, dim, torch.Generator().manual_seed(2))
    with torch.no_grad():
        y, mirrored = (net(**data)["y"] for data in (fields, task.mirrored(fields, dim)))
    return bool((y - task.mirrored_target(mirrored, dim)).abs().max() < 1e-9 * y.abs().max())


def mirror_bound(task: Task, dim: int, samples: int = 4096) -> float:
    """The least error over variance of any prediction that follows mirrors: |y(x) - M^-1 y(M x)|^2 / 4, on average."""
    fields, y = task.draw(samples, dim, torch.Generator().manual_seed(10_001))
    mirrored = task.formula(**task.mirrored(fields, dim))
    return float(((y - task.mirrored_target(mirrored, dim)) / 2).square().mean() / (y - y.mean(0)).square().mean())


def _said(net: torch.nn.Module, fields: dict[str, Tensor]) -> Tensor:
    return net(**{name: x.float() for name, x in fields.items()})["y"]


def _units(task: Task, y: Tensor) -> tuple[Tensor, float]:
    """Numbers are standardised; what has a direction or a sign is divided by its size; positions and rotations stay."""
    if task.target.startswith("scalar"):
        return y.mean(0), float((y - y.mean(0)).square().mean().sqrt())
    free = task.target in ("vector", "pseudoscalar")
    return torch.zeros(()), float(y.square().mean().sqrt()) if free else 1.0
