"""Forces as -dE/dx of a learned energy, trained through the second derivative; then dynamics that keep its energy.

A network that predicts forces directly fits them too, but they belong to no energy: around a closed loop they do work.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from anygatr.interface.model import Model, model
from anygatr.spaces.presets import geometry

torch.manual_seed(0)
REST = torch.tensor([[0, 3**0.5 / 3], [-0.5, -(3**0.5) / 6], [0.5, -(3**0.5) / 6]]).double()  # three atoms at distance 1


def true_energy(x: Tensor) -> Tensor:
    """Every pair of atoms is joined by a stiffening spring of length 1."""
    stretch = (x - x.roll(1, -2)).norm(dim=-1) - 1
    return (2 * stretch.square() + 2 * stretch**4).sum(-1)


def forces(energy: Callable[[Tensor], Tensor], x: Tensor, training: bool = False) -> Tensor:
    """-dE/dx; `create_graph` lets a loss on the forces reach the weights."""
    x = x.detach().requires_grad_()
    return -torch.autograd.grad(energy(x).sum(), x, create_graph=training)[0]


def fit(net: Model, predict: Callable[[Tensor, bool], Tensor], label: str) -> None:
    """Learn the forces at random shapes of the molecule."""
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-2)
    for step in range(STEPS + 1):
        optimiser.param_groups[0]["lr"] = 1e-2 * (1 - step / (STEPS + 1))
        x = REST + 0.15 * torch.randn(32, 3, 2).double()
        target = forces(true_energy, x)
        loss = (predict(x, True) - target).square().mean() / target.square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % (STEPS // 3) == 0:
            print(f"{label}: step {step:3d}  relative error of the forces {loss.item() ** 0.5:.3f}")


def simulate(force: Callable[[Tensor], Tensor], steps: int, dt: float) -> tuple[Tensor, Tensor]:
    """Velocity Verlet from the molecule at rest, a little out of shape: positions and velocities at all times."""
    generator = torch.Generator().manual_seed(1)
    x, v = REST + 0.1 * torch.randn(8, 3, 2, generator=generator).double(), torch.zeros(8, 3, 2).double()
    path, f = [(x, v)], force(x)
    for _ in range(steps):
        v = v + dt / 2 * f
        x = x + dt * v
        f = force(x)
        v = v + dt / 2 * f
        path.append((x, v))
    xs, vs = zip(*path, strict=True)
    return torch.stack(xs), torch.stack(vs)


def change(energy: Tensor) -> float:
    """The mean distance of the total energy from its start, over the last quarter of the time."""
    return float((energy[-len(energy) // 4 :] - energy[0]).abs().mean())


def loop_work(force: Callable[[Tensor], Tensor]) -> float:
    """The work of a force along closed loops of shapes: zero, to rounding, if and only if it has an energy."""
    generator, t = torch.Generator().manual_seed(2), torch.linspace(0, 2 * torch.pi, 129).double()[:-1, None, None, None]
    a, b = 0.15 * torch.randn(2, 8, 3, 2, generator=generator).double()
    velocity = b * t.cos() - a * t.sin()
    f = force((REST + a * t.cos() + b * t.sin()).flatten(0, 1)).detach().view_as(velocity)
    power = (f * velocity).sum((-1, -2))
    return float(power.mean(0).abs().mean() / (f.norm(dim=(-1, -2)) * velocity.norm(dim=(-1, -2))).mean())


STEPS, ATOMS = 120, {"position": "point"}
learned = model(geometry("E", 2), ATOMS, {"energy": "scalar"}, (8, 16), blocks=2, heads=2, per="sample").double()
direct = model(geometry("E", 2), ATOMS, {"force": "vector"}, (8, 16), blocks=2, heads=2).double()


def learned_energy(x: Tensor) -> Tensor:
    return learned(position=x)["energy"]


def predict_direct(x: Tensor) -> Tensor:
    return direct(position=x)["force"]


fit(learned, lambda x, training: forces(learned_energy, x, training), "energy")
fit(direct, lambda x, training: predict_direct(x), "direct")

kept = []
for dt in (0.08, 0.04):
    x, v = simulate(lambda x: forces(learned_energy, x), int(4 / dt), dt)
    with torch.no_grad():
        kinetic = v.square().sum((-1, -2)) / 2
        kept.append(change(kinetic + learned_energy(x)))
    print(f"learned energy, steps of {dt}: kinetic energy up to {kinetic.max():.3f}, the total changes by {kept[-1]:.1e}")
assert kept[1] < kept[0] / 3  # nothing but the integrator's error, which is of second order

work = {"learned energy": loop_work(lambda x: forces(learned_energy, x)), "direct forces": loop_work(predict_direct)}
for label, share in work.items():
    print(f"{label}: work around closed loops, as a share of force times length, {share:.1e}")
assert work["learned energy"] < 1e-6 < 1e-3 < work["direct forces"]
