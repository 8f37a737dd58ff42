"""GATr in a training loop of your own: multivectors in, multivectors out, any geometry.

The task: from the positions and velocities of a few bodies, predict where each is after a free flight of random duration.
A conformal network learns it and, because it is equivariant, knows it everywhere in space at once.
"""

import argparse

import torch

from anygatr import GATr, summary
from anygatr.nn import Width
from anygatr.spaces.presets import geometry


def flight(samples: int, bodies: int = 5) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Positions, velocities, the durations and where the bodies are then."""
    x, v, t = torch.randn(samples, bodies, 3), torch.randn(samples, bodies, 3), torch.rand(samples, bodies, 1)
    return x, v, t, x + t * v


def main(name: str, steps: int) -> None:
    torch.manual_seed(0)
    geo = geometry(name)
    # one channel with the point, one with the velocity as a free vector; the duration is a scalar
    net = GATr(geo, inputs=Width(2, 1), hidden=Width(8, 16), outputs=Width(1, 0), blocks=2, heads=4)
    print(geo)
    print(summary(net))

    def predict(x: torch.Tensor, v: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        out, _ = net(torch.stack([geo.embed_point(x), geo.embed_vector(v)], dim=-2), t)
        return geo.extract_point(out.squeeze(-2))

    optimiser = torch.optim.Adam(net.parameters(), lr=3e-3)
    for step in range(steps + 1):
        x, v, t, target = flight(64)
        loss = (predict(x, v, t) - target).square().mean()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimiser.step()
        if step % max(steps // 5, 1) == 0:
            print(f"step {step:4d}   mean squared error {float(loss.detach()):.1e}")

    x, v, t, target = flight(1000)
    rotation, _ = torch.linalg.qr(torch.randn(3, 3))
    shift = torch.tensor([3.0, -2.0, 1.0])
    with torch.no_grad():
        here = predict(x, v, t)
        there = predict(x @ rotation.T + shift, v @ rotation.T, t)
    print(f"standing still would have a mean squared error of {float((x - target).square().mean()):.1e}")
    print(f"test error {float((here - target).square().mean()):.1e}")
    print(f"rotated and shifted, predictions follow to {float((there - here @ rotation.T - shift).abs().max()):.1e}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--geometry", default="C", help="E, P, iP or C")
    parser.add_argument("--steps", type=int, default=100)
    arguments = parser.parse_args()
    main(arguments.geometry, arguments.steps)
