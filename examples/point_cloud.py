"""Coordinates in, coordinates out: learn where attracting bodies go, then turn, mirror and shift the whole system."""

import torch
from torch import Tensor

from anygatr import model

torch.manual_seed(0)


def bodies(samples: int, count: int = 5) -> dict[str, Tensor]:
    """Positions, velocities and masses of bodies that attract each other, somewhere in space."""
    return {
        "position": torch.randn(samples, count, 3, dtype=torch.float64)
        + 20 * torch.randn(samples, 1, 3, dtype=torch.float64),
        "velocity": 0.5 * torch.randn(samples, count, 3, dtype=torch.float64),
        "mass": 0.2 + torch.rand(samples, count, dtype=torch.float64),
    }


def after(position: Tensor, velocity: Tensor, mass: Tensor, time: float = 1.0, steps: int = 50) -> Tensor:
    """The positions after `time`, by semi-implicit Euler steps with a softened attraction."""
    x, v = position, velocity
    for _ in range(steps):
        gap = x.unsqueeze(-3) - x.unsqueeze(-2)  # (samples, at, towards, 3)
        v = v + time / steps * (mass[:, None, :, None] * gap / (gap.square().sum(-1, keepdim=True) + 0.25) ** 1.5).sum(-2)
        x = x + time / steps * v
    return x


net = model(
    "E",
    inputs={"position": "point", "velocity": "vector", "mass": "scalar"},
    targets={"final": "point"},
    hidden=(8, 16),
    blocks=2,
    heads=2,
    origin="mass",  # the centre of mass, subtracted on the way in and added on the way out
)
train, test = bodies(256), bodies(128)
train_final, test_final = (after(d["position"], d["velocity"], d["mass"]) for d in (train, test))

optimiser = torch.optim.Adam(net.parameters(), lr=3e-3)
for step in range(201):
    batch = torch.randint(256, (16,))
    predicted = net(**{name: x[batch] for name, x in train.items()})["final"]
    loss = (predicted - train_final[batch]).square().mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    if step % 50 == 0:
        print(f"step {step:3d}  training error {loss.item():.4f}")

with torch.no_grad():
    predicted = net(**test)["final"]
    print(f"test error          {(predicted - test_final).square().mean():.4f}")
    assert (predicted - test_final).square().mean() < (test["position"] + test["velocity"] - test_final).square().mean()
    print(f"nothing moves       {(test['position'] - test_final).square().mean():.4f}")
    print(f"straight lines      {(test['position'] + test['velocity'] - test_final).square().mean():.4f}")

    mirror = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64)).Q
    mirror[:, 0] *= -torch.linalg.det(mirror)
    shift = 10_000 * torch.randn(3, dtype=torch.float64)
    moved = {**test, "position": test["position"] @ mirror.T + shift, "velocity": test["velocity"] @ mirror.T}
    deviation = (net(**moved)["final"] - predicted @ mirror.T - shift).abs().max()
    print(f"mirrored and shifted by {shift.norm():.0f}: predictions follow to {deviation:.1e} (float32 weights)")
    assert deviation < 1e-3

    # samples of different size: packed one after the other, told apart by offsets
    small, large = bodies(1, 3), bodies(1, 7)
    packed = {name: torch.cat([small[name][0], large[name][0]]) for name in small}
    together = net(**packed, offsets=torch.tensor([0, 3, 10]))["final"]
    alone = torch.cat([net(**small)["final"][0], net(**large)["final"][0]])
    print(f"packed samples equal single ones to {(together - alone).abs().max():.1e}")
